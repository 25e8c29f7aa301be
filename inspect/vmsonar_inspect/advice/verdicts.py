"""Applies the rules to the figures of one subject, and finds the smallest machine that would have held it."""

import math
from collections.abc import Mapping

from vmsonar_inspect.advice.figures import filled_in, places
from vmsonar_inspect.advice.rules import Enough, Rule, RuleBook, Sizes, parse_condition
from vmsonar_inspect.facts.model import Severity, Size, Verdict

HIGH, MEDIUM, LOW = "high", "medium", "low"


def judge(
    book: RuleBook, about: str, subject: str, name: str, figures: Mapping[str, float | None]
) -> list[Verdict]:
    """Every verdict on one subject, problems first."""
    found = [
        _verdict(book, rule_name, rule, subject, name, figures)
        for rule_name, rule in book.rules.items()
        if rule.about == about and (rule.certain or enough(book.thin, figures)) and _fires(rule, figures)
    ]
    return sorted(found, key=lambda verdict: verdict.severity is not Severity.PROBLEM)


def enough(wanted: Enough, figures: Mapping[str, float | None]) -> bool:
    """Whether enough was recorded."""
    return (
        (figures.get("samples") or 0) >= wanted.samples
        and (figures.get("coverage") or 0) >= wanted.coverage
        and (figures.get("seconds") or 0) >= wanted.seconds
    )


def confidence(book: RuleBook, figures: Mapping[str, float | None]) -> str:
    """How sure a verdict is, by how much was seen."""
    if enough(book.confidence.high, figures):
        return HIGH
    return MEDIUM if enough(book.confidence.medium, figures) else LOW


def _fires(rule: Rule, figures: Mapping[str, float | None]) -> bool:
    holds = [parse_condition(line).holds(figures) for line in rule.when]
    some = [parse_condition(line).holds(figures) for line in rule.any]
    against = [parse_condition(line).holds(figures) for line in rule.unless]
    return all(holds) and (any(some) or not some) and not any(against)


def _verdict(
    book: RuleBook,
    rule_name: str,
    rule: Rule,
    subject: str,
    name: str,
    figures: Mapping[str, float | None],
) -> Verdict:
    lines = [*rule.when, *(line for line in rule.any if parse_condition(line).holds(figures))]
    shown = {figure for line in lines for figure in parse_condition(line).names()} | set(places(rule.says))
    known = {figure: value for figure in sorted(shown) if (value := figures.get(figure)) is not None}
    return Verdict(
        rule=rule_name,
        about=rule.about,
        subject=subject,
        name=name,
        severity=rule.severity,
        title=rule.title,
        says=filled_in(rule.says, figures),
        advice=filled_in(rule.advice, figures),
        confidence=HIGH if rule.certain else confidence(book, figures),
        figures={figure: float(value) for figure, value in known.items()},
        conditions=lines,
        gain=rule.gain,
    )


_GIB = 2**30


def fitting(sizes: Sizes, cores: float | None, memory: float | None, gpus: int | None) -> Size | None:
    """The smallest size with that many busy cores, that much memory and headroom, and that many GPUs."""
    if cores is None and memory is None:
        return None
    need = None if memory is None else memory * (1 + sizes.headroom) / _GIB
    return Size(
        cores=None if cores is None else _step(sizes.cores, cores_needed(cores)),
        memory_gib=None if need is None else _step(sizes.memory_gib, need),
        gpus=gpus,
        flavour=_flavour(sizes, cores, need, gpus),
    )


def cores_needed(busy: float) -> int:
    """Whole cores for that many busy ones; an excess of a twentieth of a core is sampling noise."""
    return max(1, math.ceil(busy - 0.05))


def _step(ladder: list[int], need: float) -> int:
    for step in sorted(ladder):
        if step >= need:
            return step
    return math.ceil(need)


def _flavour(sizes: Sizes, cores: float | None, memory_gib: float | None, gpus: int | None) -> str | None:
    for flavour in sizes.flavours:
        if (
            flavour.cpus >= cores_needed(cores or 0)
            and flavour.memory_gib >= (memory_gib or 0)
            and flavour.gpus >= (gpus or 0)
        ):
            return flavour.name
    return None
