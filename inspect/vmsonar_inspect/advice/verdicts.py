"""Applies the rules to the figures of one subject, and finds the smallest machine that would have held it."""

import math
from collections.abc import Iterable, Iterator

from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import Figures, filled_in, machine_figures, places, ratio
from vmsonar_inspect.advice.rules import Enough, Rule, RuleBook, Sizes, parse_condition
from vmsonar_inspect.facts import model
from vmsonar_inspect.facts.machine import RATES


def judge(book: RuleBook, about: str, subject: str, name: str, figures: Figures) -> list[model.Verdict]:
    """Every verdict on one subject, problems first."""
    known = enough(book.thin, figures)
    return problems_first(
        _verdict(book, rule_name, rule, subject, name, figures)
        for rule_name, rule in book.rules.items()
        if rule.about == about and (rule.certain or known) and _fires(rule, figures)
    )


def problems_first(verdicts: Iterable[model.Verdict]) -> list[model.Verdict]:
    return sorted(verdicts, key=lambda verdict: verdict.severity is not model.Severity.PROBLEM)


def enough(wanted: Enough, figures: Figures) -> bool:
    """Whether enough was recorded."""
    return (
        (figures.get("samples") or 0) >= wanted.samples
        and (figures.get("coverage") or 0) >= wanted.coverage
        and (figures.get("seconds") or 0) >= wanted.seconds
    )


def _confidence(book: RuleBook, figures: Figures) -> str:
    """How sure a verdict is, by how much was seen."""
    if enough(book.confidence.high, figures):
        return "high"
    return "medium" if enough(book.confidence.medium, figures) else "low"


def _fires(rule: Rule, figures: Figures) -> bool:
    def holding(lines: list[str]) -> Iterator[bool]:
        return (parse_condition(line).holds(figures) for line in lines)

    some = any(holding(rule.any)) or not rule.any
    return all(holding(rule.when)) and some and not any(holding(rule.unless))


def _verdict(
    book: RuleBook, rule_name: str, rule: Rule, subject: str, name: str, figures: Figures
) -> model.Verdict:
    lines = [*rule.when, *(line for line in rule.any if parse_condition(line).holds(figures))]
    shown = {figure for line in lines for figure in parse_condition(line).names()} | set(places(rule.says))
    return model.Verdict(
        rule=rule_name,
        about=rule.about,
        subject=subject,
        name=name,
        severity=rule.severity,
        title=rule.title,
        says=filled_in(rule.says, figures),
        advice=filled_in(rule.advice, figures),
        confidence="high" if rule.certain else _confidence(book, figures),
        figures={each: float(value) for each in sorted(shown) if (value := figures.get(each)) is not None},
        conditions=lines,
        gain=rule.gain,
    )


_GIB = 2**30
_WHY = {
    "cores": "more cores would have been used",
    "memory": "it ran short of memory",
    "disk": "a faster disk, not a larger machine",
}


def machine_advice(
    book: RuleBook,
    machine: model.Machine,
    coverage: model.Coverage,
    use: model.NodeUse,
    gpus: list[model.GpuUse],
    containers: list[model.ContainerUse],
) -> model.Advice:
    """The machine's use against what was there."""
    cards = [gpu for gpu in gpus if gpu.parent is None]
    advice = model.Advice(
        about="machine",
        subject=machine.archive,
        name=plain(machine.hostname or machine.archive[:8]),
        cpus=use.cpus or machine.cpus,
        memory_total_bytes=use.memory_total_bytes or machine.memory_bytes,
        gpus=len(cards) or None,
        gpu_memory_total_bytes=sum(gpu.memory_total_bytes or 0 for gpu in cards) or None,
        **{field: getattr(use, field) for field in _SAME},
    )
    busy = sum(map(_was_used, cards)) if cards else None
    return _judged(book, advice, machine_figures(machine, coverage, use, containers), busy)


#: Fields that an advice on a machine takes over from its use.
_SAME = ("cores", "memory_bytes", "gpu_util", "gpu_memory_bytes", *RATES)


def _was_used(gpu: model.GpuUse) -> bool:
    held = ratio(gpu.memory_bytes.peak, gpu.memory_total_bytes) or 0.0
    return (gpu.gpu_util.p95 or 0.0) > 1 or held > 0.02


def job_advice(book: RuleBook, job: model.JobUse, figures: Figures, use: model.NodeUse) -> model.Advice:
    """A job's use against what was there."""
    advice = model.Advice(
        about="job",
        subject=job.series_id,
        name=f"job {plain(job.job)} ({plain(job.command or job.program)})",
        cpus=use.cpus,
        cores=job.cores,
        memory_total_bytes=use.memory_total_bytes,
        memory_bytes=job.memory_bytes,
        gpus=len(job.gpus) or None,
        gpu_util=job.gpu_util,
        gpu_memory_bytes=job.gpu_memory_bytes,
        disk_read_rate=job.read_rate,
        disk_write_rate=job.write_rate,
    )
    busy = None if not job.gpus else len(job.gpus) if (job.gpu_util.p95 or 0) > 5 else 0
    return _judged(book, advice, figures, busy)


def _judged(book: RuleBook, advice: model.Advice, figures: Figures, busy_gpus: int | None) -> model.Advice:
    """Adds the verdicts, and the sizes that would have done where enough was seen."""
    advice.verdicts = judge(book, advice.about, advice.subject, advice.name, figures)
    advice.enough_data = enough(book.thin, figures)
    advice.larger_would_help, advice.larger_why = _gain(advice.verdicts, advice.enough_data)
    if advice.enough_data:
        # No more cores were busy than there were, whatever ticks and clocks say of a short interval.
        most, cores, memory = advice.cpus or math.inf, advice.cores, advice.memory_bytes
        p95, peak = (None if busy is None else min(busy, most) for busy in (cores.p95, cores.peak))
        advice.size_p95 = fitting(book.sizes, p95, memory.p95, busy_gpus)
        advice.size_peak = fitting(book.sizes, peak, memory.peak, busy_gpus)
    return advice


def _gain(verdicts: list[model.Verdict], known: bool) -> tuple[bool | None, str | None]:
    """Whether a larger machine would have helped, and by which verdict."""
    gains = [verdict for verdict in verdicts if verdict.gain in _WHY]
    larger = next((verdict for verdict in gains if verdict.gain != "disk"), None)
    if larger is not None:
        return True, f"{_WHY[larger.gain]} ({larger.rule})"
    if not known:
        return None, None
    return False, f"{_WHY['disk']} ({gains[0].rule})" if gains else "nothing waited for cores or memory"


def fitting(sizes: Sizes, cores: float | None, memory: float | None, gpus: int | None) -> model.Size | None:
    """The smallest size with that many busy cores, that much memory and headroom, and that many GPUs."""
    if cores is None and memory is None:
        return None
    need = None if memory is None else memory * (1 + sizes.headroom) / _GIB
    return model.Size(
        cores=None if cores is None else _step(sizes.cores, cores_needed(cores)),
        memory_gib=None if need is None else _step(sizes.memory_gib, need),
        gpus=gpus,
        flavour=_flavour(sizes, cores, need, gpus),
    )


def cores_needed(busy: float) -> int:
    """Whole cores for that many busy ones; an excess of a twentieth of a core is sampling noise."""
    return max(1, math.ceil(busy - 0.05))


def _step(ladder: list[int], need: float) -> int:
    return min((step for step in ladder if step >= need), default=math.ceil(need))


def _flavour(sizes: Sizes, cores: float | None, memory_gib: float | None, gpus: int | None) -> str | None:
    fit = (
        flavour.name
        for flavour in sizes.flavours
        if flavour.cpus >= cores_needed(cores or 0)
        and flavour.memory_gib >= (memory_gib or 0)
        and flavour.gpus >= (gpus or 0)
    )
    return next(fit, None)
