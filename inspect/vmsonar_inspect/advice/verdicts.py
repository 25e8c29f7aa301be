"""Applies the rules to the figures of one subject, and finds the smallest machine that would have held it."""

import math
from collections.abc import Iterable, Iterator

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
from vmsonar_inspect.advice.rules import Enough, Rule, RuleBook, Sizes, parse_condition
from vmsonar_inspect.facts import model, units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.machine import RATES


def judge(
    book: RuleBook, about: str, subject: str, name: str, figures: Figures, marks: Marks = NO_MARKS
) -> list[model.Verdict]:
    """Every verdict on one subject, problems first."""
    known = enough(book.thin, figures)
    return problems_first(
        _verdict(book, rule_name, rule, subject, name, figures, marks)
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
    book: RuleBook, rule_name: str, rule: Rule, subject: str, name: str, figures: Figures, marks: Marks
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
        says=filled_in(rule.says, figures, marks),
        advice=filled_in(rule.advice, figures, marks),
        confidence="high" if rule.certain else _confidence(book, figures),
        figures={each: float(value) for each in sorted(shown) if (value := figures.get(each)) is not None},
        conditions=lines,
        marks={each: marks[each] for each in sorted(shown) if each in marks},
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
    return _judged(book, advice, figures, busy, job_marks(job))


#: Fields that an advice on a job takes over from its use.
_SAME_OF_JOB = (
    *("cores", "cpu_seconds", "cpu_seconds_low", "cpu_seconds_high", "cpu_is_lower_bound", "memory_bytes"),
    *("memory_source", "memory_peak_low_bytes", "memory_peak_high_bytes", "memory_peak_source"),
)


def _judged(
    book: RuleBook, advice: model.Advice, figures: Figures, busy_gpus: int | None, marks: Marks = NO_MARKS
) -> model.Advice:
    """Adds the verdicts, and the sizes that would have done where enough was seen."""
    advice.verdicts = judge(book, advice.about, advice.subject, advice.name, figures, marks)
    advice.enough_data = enough(book.thin, figures)
    advice.larger_would_help, advice.larger_why = _gain(advice.verdicts, advice.enough_data)
    if advice.enough_data:
        # No more cores were busy than there were, whatever ticks and clocks say of a short interval.
        most, cores, memory = advice.cpus or math.inf, advice.cores, advice.memory_bytes
        p95, peak = (
            None if busy is None else min(busy * _safe_factor(advice), most)
            for busy in (cores.p95, cores.peak)
        )
        advice.size_p95 = fitting(book.sizes, p95, memory.p95, busy_gpus)
        advice.size_peak = fitting(book.sizes, peak, _safe_need(advice, book.sizes.headroom), busy_gpus)
        words = [*_cpu_doubt(advice), *_memory_doubt(advice)]
        advice.size_doubt = " ".join(words) or None
        advice.size_is_lower_bound = any("at least" in each for each in words)
    return advice


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
    low, value, high = (
        units.hours(each) for each in (advice.cpu_seconds_low, advice.cpu_seconds, advice.cpu_seconds_high)
    )
    if mark and advice.cpu_seconds_high is not None:
        least = value if advice.cpu_seconds_low is None else low
        yield f"Its CPU time lies between {least} and {high}: the cores are those of the most."
    elif mark:
        yield f"Its CPU time is known only as at least {value if advice.cpu_seconds_low is None else low}."


def _memory_doubt(advice: model.Advice) -> Iterator[str]:
    peak, low = advice.memory_bytes.peak, advice.memory_peak_low_bytes
    most = safe_peak(advice)
    least = units.size(peak if low is None else low)
    if advice.memory_peak_high_bytes is not None and units.size(most) != least:
        yield f"Its memory peak lies between {least} and {units.size(most)}: the size holds the most."
    elif peak is not None and advice.memory_peak_source == "sampled":
        yield f"Its memory peak is known only as at least {units.size(peak)}, the highest sample."


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
