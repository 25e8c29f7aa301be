"""Applies the rules to the figures of one subject, and finds the smallest machine that would have held it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec.structs import replace
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import (
    NO_MARKS,
    Figures,
    Marks,
    filled_in,
    job_marks,
    machine_figures,
    places,
    ratio,
)
from vmsonar_inspect.advice.rules import Enough, Prices, Rule, RuleBook, Sizes, parse_condition
from vmsonar_inspect.facts import model, units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.machine import RATES


def judge(
    book: RuleBook,
    about: str,
    subject: str,
    name: str,
    figures: Figures,
    marks: Marks = NO_MARKS,
    words: Mapping[str, str] | None = None,
) -> list[model.Verdict]:
    """Every verdict on one subject, the costliest first."""
    known = enough(book.thin, figures)
    said = partial(filled_in, figures=figures, marks=marks, words=words)
    found = [
        _verdict(book, rule_name, subject, name, figures, marks, said)
        for rule_name, rule in book.rules.items()
        if rule.about == about and (rule.certain or known) and _fires(rule, figures)
    ]
    return by_cost(found)


def by_cost(verdicts: Iterable[model.Verdict]) -> list[model.Verdict]:
    """The costliest first, of equal cost problems first."""
    return sorted(
        verdicts, key=lambda each: (-(each.cost or 0.0), each.severity is not model.Severity.PROBLEM)
    )


def one_per_cause(
    book: RuleBook, verdicts: Iterable[model.Verdict], containers: Mapping[str, str]
) -> list[model.Verdict]:
    """The costliest first, one of each kind before the second of any; of rules with one cause only the first.

    Problems come before advice, then the order of the file counts; the cost is that of the dearest. What a machine has
    once is one cause for all; any other is one for each job, with its container.
    """
    places = {name: place for place, name in enumerate(book.rules)}
    leads: dict[str, dict[str, model.Verdict]] = {}
    kept: list[model.Verdict] = []
    for verdict in sorted(
        by_cost(verdicts), key=lambda each: (each.severity is not model.Severity.PROBLEM, places[each.rule])
    ):
        is_general = verdict.cause in _OF_THE_MACHINE or verdict.about in ("machine", "gpu")
        scope = "" if is_general else containers.get(verdict.subject, verdict.subject)
        others = leads.setdefault(verdict.cause or verdict.rule, {})
        lead = others.get(scope) or (next(iter(others.values()), None) if is_general else None)
        if lead is None or lead.rule == verdict.rule:
            kept.append(replace(verdict, also=[]))
            others.setdefault(scope, kept[-1])
            continue
        lead.also += [verdict.rule] if verdict.rule not in lead.also else []
        if (verdict.cost or 0.0) > (lead.cost or 0.0):
            lead.cost, lead.cost_words = verdict.cost, verdict.cost_words
            lead.cost_figure, lead.cost_hours = verdict.cost_figure, verdict.cost_hours
    seen: Counter[str] = Counter()
    placed = []
    for verdict in by_cost(kept):
        seen[verdict.title] += 1
        placed.append((seen[verdict.title], verdict))
    return [verdict for _, verdict in sorted(placed, key=lambda each: each[0])]


#: Causes that all jobs of a machine have together.
_OF_THE_MACHINE = ("cores", "memory", "disk", "size")


def _cost(prices: Prices, rule: Rule, figures: Figures) -> tuple[float | None, str | None]:
    """What a verdict weighs, and in words what was lost; a problem never weighs nothing."""
    least = prices.problem if rule.severity is model.Severity.PROBLEM else None
    value = figures.get(rule.cost)
    unit = next((unit for unit in _UNITS if rule.cost.endswith(unit)), None)
    if value is None or unit is None:
        return least, None
    words = f"{units.quantity(value)} {_UNITS[unit]}"
    return max(float(getattr(prices, unit)) * value, least or 0.0), words


_UNITS = {"core_hours": "core hours", "gib_hours": "GiB hours", "gpu_hours": "GPU hours"}


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
    book: RuleBook,
    rule_name: str,
    subject: str,
    name: str,
    figures: Figures,
    marks: Marks,
    said: Callable[[str], str],
) -> model.Verdict:
    rule = book.rules[rule_name]
    lines = [*rule.when, *(line for line in rule.any if parse_condition(line).holds(figures))]
    shown = {figure for line in lines for figure in parse_condition(line).names()} | set(places(rule.says))
    cost, cost_words = _cost(book.prices, rule, figures)
    return model.Verdict(
        rule=rule_name,
        about=rule.about,
        subject=subject,
        name=name,
        severity=rule.severity,
        title=rule.title,
        says=said(rule.says),
        advice=said(rule.advice),
        confidence="high" if rule.certain else _confidence(book, figures),
        figures={each: float(value) for each in sorted(shown) if (value := figures.get(each)) is not None},
        conditions=lines,
        marks={each: marks[each] for each in sorted(shown) if each in marks},
        gain=rule.gain,
        cause=rule.cause or None,
        cost=cost,
        cost_words=cost_words,
        cost_figure=rule.cost if cost_words else None,
        cost_hours=figures.get(rule.cost) if cost_words else None,
    )


_GIB = 2**30
_WHY = {
    "cores": "more cores would have been used",
    "memory": "it ran short of memory",
    "others": "others had the cores that it waited for",
    "disk": "a faster disk would",
    "limit": "a higher limit would",
    "unclear": "processes were killed for lack of memory",
}
#: What no larger machine gives, and what it may give.
_ANSWERS = {"disk": False, "limit": False, "unclear": None}


def machine_advice(
    book: RuleBook,
    machine: model.Machine,
    coverage: model.Coverage,
    use: model.NodeUse,
    gpus: list[model.GpuUse],
    limit_kills: int,
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
    return _judged(book, advice, machine_figures(machine, coverage, use, limit_kills), busy)


#: Fields that an advice on a machine takes over from its use.
_SAME = ("cores", "memory_bytes", "gpu_util", "gpu_memory_bytes", *RATES)


def _was_used(gpu: model.GpuUse) -> bool:
    held = ratio(gpu.memory_bytes.peak, gpu.memory_total_bytes) or 0.0
    return (gpu.gpu_util.p95 or 0.0) > 1 or held > 0.02


def job_advice(
    book: RuleBook,
    job: model.JobUse,
    figures: Figures,
    use: model.NodeUse,
    words: Mapping[str, str] | None = None,
) -> model.Advice:
    """A job's use against what was there."""
    advice = model.Advice(
        about="job",
        subject=job.series_id,
        name=f"job {plain(job.job)} ({plain(job.label or job.program)})",
        cpus=use.cpus,
        memory_total_bytes=use.memory_total_bytes,
        **{field: getattr(job, field) for field in _SAME_OF_JOB},
        gpus=len(job.gpus) or None,
        gpu_util=job.gpu_util,
        gpu_memory_bytes=job.gpu_memory_bytes,
        disk_read_rate=job.read_rate,
        disk_write_rate=job.write_rate,
    )
    busy = None if not job.gpus else len(job.gpus) if (job.gpu_util.p95 or 0) > 5 else 0
    advice.waited_share = figures.get("waited_share")
    return _judged(book, advice, figures, busy, job_marks(job), words)


#: Fields that an advice on a job takes over from its use.
_SAME_OF_JOB = (
    *("cores", "cpu_seconds", "cpu_seconds_low", "cpu_seconds_high", "cpu_is_lower_bound", "memory_bytes"),
    *("memory_source", "memory_peak_low_bytes", "memory_peak_high_bytes", "memory_peak_source"),
)


def _judged(
    book: RuleBook,
    advice: model.Advice,
    figures: Figures,
    busy_gpus: int | None,
    marks: Marks = NO_MARKS,
    words: Mapping[str, str] | None = None,
) -> model.Advice:
    """Adds the verdicts, and the sizes that would have done where enough was seen."""
    advice.verdicts = judge(book, advice.about, advice.subject, advice.name, figures, marks, words)
    advice.enough_data = enough(book.thin, figures)
    advice.larger_would_help, advice.larger_why = _gain(advice.verdicts, advice.enough_data, figures)
    short = list(_censored(advice, figures))
    if short and advice.larger_would_help is False:
        advice.larger_would_help = None
    if advice.enough_data:
        most, cores, memory = advice.cpus or math.inf, advice.cores, advice.memory_bytes
        wanted = (figures.get("wanted_cores") or 0.0) if short else 0.0
        p95, peak = (
            None if busy is None else min(max(busy * _safe_factor(advice), wanted), most)
            for busy in (cores.p95, cores.peak)
        )
        advice.size_p95 = fitting(book.sizes, p95, memory.p95, busy_gpus)
        advice.size_peak = fitting(book.sizes, peak, _safe_need(advice, book.sizes.headroom), busy_gpus)
        doubts = [*short, *_cpu_doubt(advice), *_memory_doubt(advice)]
        advice.size_doubt = " ".join(doubts) or None
        wanted_more = any(verdict.gain not in ("none", "disk") for verdict in advice.verdicts)
        wanted_more |= bool(short) or (figures.get("throttled_share") or 0.0) >= _THROTTLED
        advice.size_is_lower_bound = wanted_more or any("at least" in each for each in doubts)
    advice.conclusion = _conclusion(advice, bool(short))
    return advice


def _censored(advice: model.Advice, figures: Figures) -> Iterator[str]:
    """Why the cores that were busy are fewer than were wanted: what a full machine shows is a lower bound."""
    full, waited = figures.get("saturated_share") or 0.0, figures.get("waited_share")
    if full < _FULL:
        return
    if advice.about == "machine":
        yield f"All cores were busy while tasks waited for one {units.share(full)} of the time."
    elif waited is None and (figures.get("cores_mean") or 0.0) >= _FULL:
        yield f"All cores were busy {units.share(full)} of its time."
    elif (waited or 0.0) >= 0.1 and (figures.get("wanted_cores") or 0.0) >= _FULL:
        yield f"It waited for a core {units.share(waited)} of the time that it could have run."


#: A machine that is full for less of the time shows in its 95th percentile what was wanted.
_FULL = 0.05
_THROTTLED = 0.1


def size_words(size: model.Size) -> str:
    """`2 cores, 8 GiB, 1 GPU`."""
    parts = [
        units.plural(size.cores, "core") if size.cores is not None else "",
        f"{size.memory_gib} GiB" if size.memory_gib is not None else "",
        units.plural(size.gpus, "GPU") if size.gpus is not None else "",
    ]
    named = f" ({size.flavour})" if size.flavour else ""
    return ", ".join(part for part in parts if part) + named


def _conclusion(advice: model.Advice, censored: bool) -> str:
    """What would have held it, and whether more would have helped, without a contradiction."""
    if not advice.enough_data:
        return "Too little was recorded to advise a size."
    typical, most = advice.size_p95, advice.size_peak
    said = []
    if most is not None and advice.size_is_lower_bound:
        said.append(f"at least {size_words(most)}.")
    elif typical is not None and typical == most:
        said.append(f"{size_words(typical)} would have done.")
    elif typical is not None and most is not None:
        said.append(
            f"{size_words(typical)} would have held the 95th percentile, {size_words(most)} the peak."
        )
    said += [advice.size_doubt] if advice.size_doubt else []
    helped = {
        True: "A larger machine would have helped",
        False: "A larger machine would not have helped",
        None: "Whether a larger machine would have helped is not known",
    }[advice.larger_would_help]
    # That cores were short has just been said.
    why = "" if censored else f": {advice.larger_why}"
    return " ".join([*said, f"{helped}{why}."])


def _safe_factor(advice: model.Advice) -> float:
    """How much more CPU time it may have used than is known."""
    return (ratio(advice.cpu_seconds_high, advice.cpu_seconds) or 1.0) if advice.cpu_seconds_high else 1.0


def safe_peak(advice: model.Advice) -> float | None:
    """The most memory that it can have had: its upper bound, but not more than the machine had."""
    peak, high = advice.memory_bytes.peak, advice.memory_peak_high_bytes
    if peak is None or high is None:
        return peak
    return max(peak, min(high, advice.memory_total_bytes or high))


def _safe_need(advice: model.Advice, headroom: float) -> float | None:
    """The memory that a size must hold; a bound that only the machine's own size limits asks for no larger one."""
    peak, most, whole = advice.memory_bytes.peak, safe_peak(advice), advice.memory_total_bytes
    if peak is None or most is None or whole is None:
        return most
    return max(peak, min(most, whole / (1 + headroom)))


def _cpu_doubt(advice: model.Advice) -> Iterator[str]:
    mark = shown_field(model.Advice, "cpu_seconds").mark(advice)
    low, high = advice.cpu_seconds_low, advice.cpu_seconds_high
    least = units.hours(advice.cpu_seconds if low is None else low, like=high)
    if mark and high is not None:
        yield f"Its CPU time lies between {least} and {units.hours(high)}: the cores are those of the most."
    elif mark and low != 0:
        yield f"Its CPU time is known only as at least {least}."
    elif mark:
        yield "Its CPU time is not known exactly."


def _memory_doubt(advice: model.Advice) -> Iterator[str]:
    peak, low = advice.memory_bytes.peak, advice.memory_peak_low_bytes
    most, least = safe_peak(advice), peak if low is None else low
    if advice.memory_peak_high_bytes is not None:
        said, highest = units.size(least, like=most), units.size(most)
        # Bounds that read alike are no doubt worth a sentence.
        if said != highest:
            yield f"Its memory peak lies between {said} and {highest}: the size holds the most."
    elif peak and low != 0 and advice.memory_peak_source == "sampled":
        yield f"Its memory peak is known only as at least {units.size(least)}, the highest sample."


def _gain(verdicts: list[model.Verdict], known: bool, figures: Figures) -> tuple[bool | None, str | None]:
    """Whether a larger machine would have helped, and by which verdict."""
    gains = [verdict for verdict in verdicts if verdict.gain in _WHY]
    first = next((verdict for verdict in gains if verdict.gain not in _ANSWERS), None)
    if first is not None:
        return True, f"{_WHY[first.gain]} ({first.rule})"
    if not known:
        return None, None
    if gains:
        return _ANSWERS[gains[0].gain], f"{_WHY[gains[0].gain]} ({gains[0].rule})"
    if (stopped := figures.get("throttled_share") or 0.0) >= _THROTTLED:
        return False, f"a higher CPU quota would, which stopped it in {units.share(stopped)} of its periods"
    return waiting(figures)


def waiting(figures: Figures) -> tuple[bool | None, str]:
    """What the figures say of waiting where no rule does: its own, the machine's pressure, or how long it was full."""
    own, memory = figures.get("waited_share"), figures.get("pressure_memory_mean")
    known = (own, figures.get("pressure_cpu_mean"), figures.get("saturated_share"))
    cpu = next((share for share in known if share is not None), None)
    if cpu is None:
        return None, "whether anything waited for cores was not recorded"
    if max(cpu, memory or 0.0) < _LITTLE:
        who = "nothing waited" if own is None else "it did not wait"
        return False, f"{who} for cores" + ("" if memory is None else " or memory")
    said = f"{'it' if own is not None else 'some task'} waited for a core {units.share(cpu)} of the time"
    said += "" if memory is None else f", for memory {units.share(memory)}"
    return (False if max(cpu, memory or 0.0) < 0.25 else None), said


_LITTLE = 0.05


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
