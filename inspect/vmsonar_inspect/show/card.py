"""The card of one command: what ended it, what it used, what it waited for, what would have been enough."""

from collections.abc import Iterator

from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.runs import RunUse

_WIDTH = 80
_LABEL = 12


def card_lines(run: RunUse, width: int = _WIDTH) -> list[str]:
    """At most 24 lines, none wider than the width."""
    lines = [f"{label:<{_LABEL}}{words}" for label, words in card_rows(run)]
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def card_markdown(run: RunUse) -> str:
    """The same as a table, for the summary of a CI job."""
    rows = [(label, plain(words).replace("|", "\\|").replace("`", "'")) for label, words in card_rows(run)]
    title, rest = rows[0][1], rows[1:]
    return "\n".join(
        [f"### `{title}`", "", "| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rest), "", ""]
    )


def card_rows(run: RunUse) -> Iterator[tuple[str, str]]:
    """Each line of the card: its label, and what there is to say."""
    yield "command", plain(run.command or units.UNKNOWN)
    when = "" if run.ended is None else f" at {run.ended:%Y-%m-%d %H:%M:%S} UTC"
    yield "ended", f"{plain(run.ended_by or units.UNKNOWN)}{when}"
    if run.trouble:
        yield "record", f"none or not all: {plain(run.trouble)}" if not run.samples else plain(run.trouble)
    yield "elapsed", seconds(run.elapsed_seconds)
    yield "CPU", _cpu(run)
    yield from _doubt(run)
    yield "memory", _memory(run)
    if run.read_bytes is not None:
        least = "≥" if run.io_is_lower_bound else ""
        moved = f"read {least}{units.size(run.read_bytes)}, written {least}{units.size(run.write_bytes)}"
        yield "disk", moved
    if run.received_bytes is not None:
        yield (
            "network",
            f"received {units.size(run.received_bytes)}, sent {units.size(run.sent_bytes)} (all of the machine)",
        )
    if run.gpu_util is not None:
        yield "GPUs", f"{units.percent(run.gpu_util)} busy on average (all of the machine)"
    waits = {"CPU": run.waited_cpu, "memory": run.waited_memory, "disk": run.waited_io}
    known = [f"{name} {units.share(value)}" for name, value in waits.items() if value is not None]
    if known:
        whose = "of its own" if run.waited_source == "cgroup" else "anybody on the machine"
        yield "waited for", f"{', '.join(known)} of the time ({whose})"
    yield from _programs(run)
    if run.energy.joules is not None:
        emitted = units.grams(run.energy.grams_co2e)
        yield "energy", f"{units.energy(run.energy.joules, run.energy.source)}, {emitted} CO2e"
    if run.left_behind:
        yield (
            "left",
            f"{units.plural(run.left_behind, 'process')[:40]} ran on after its end".replace("ss s", "sses"),
        )
    for verdict in run.verdicts[:2]:
        yield "verdict", verdict
    if run.size:
        yield "enough", run.size
    if run.archive:
        yield "record", plain(run.archive)


def seconds(value: float | None) -> str:
    """An elapsed time, of a short command to the hundredth of a second."""
    return f"{value:.2f} s" if value is not None and value < 120 else units.duration(value)


def _cpu(run: RunUse) -> str:
    text = f"{units.hours(run.cpu_seconds)}, {units.cores(run.cores)} cores"
    if run.cores is not None and run.cores_available:
        text += f" of {run.cores_available:g} ({units.share(run.cores / run.cores_available)})"
    sources = {"cgroup": "control group", "wait4": "wait4", "record": "by the record"}
    return f"{text}, {sources.get(run.cpu_source or '', 'not known')}"


def _doubt(run: RunUse) -> Iterator[tuple[str, str]]:
    """By how much the record and the totals differ, where that is more than what ticks round off."""
    exact, low, high = run.cpu_seconds, run.recorded_cpu_seconds_low, run.recorded_cpu_seconds_high
    if run.cpu_source == "record" or exact is None or low is None or high is None:
        return
    slack = 0.01 * exact + 0.05
    if not low - slack <= exact <= high + slack:
        yield "", f"the record has {units.hours(run.recorded_cpu_seconds)}"


def _memory(run: RunUse) -> str:
    peak, low, high = run.memory_peak_bytes, run.memory_peak_low_bytes, run.memory_peak_high_bytes
    if peak is None:
        text = f"largest process {units.size(run.resident_peak_bytes)}"
    else:
        text = f"peak {units.mark(units.size, peak, low, high)}{units.size(peak)}"
    if run.memory_total_bytes:
        text += f" of {units.size(run.memory_total_bytes)}"
    if run.memory_limit_bytes and run.memory_limit_bytes < (run.memory_total_bytes or 0):
        text += f", limit {units.size(run.memory_limit_bytes)}"
    if run.memory_charged_peak_bytes is not None:
        text += f", charged {units.size(run.memory_charged_peak_bytes)} with cache"
    return text


def _programs(run: RunUse) -> Iterator[tuple[str, str]]:
    for place, each in enumerate(run.programs[:3]):
        share = "" if not run.cpu_seconds or each.cpu_seconds is None else each.cpu_seconds / run.cpu_seconds
        much = f", {units.share(min(1.0, share))} of the CPU" if isinstance(share, float) else ""
        yield "inside" if place == 0 else "", f"{plain(each.program)} \u00d7 {each.processes}{much}"
