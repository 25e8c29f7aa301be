"""The card of one command: what ended it, what it used, what it waited for, what would have been enough."""

from collections.abc import Iterator
from textwrap import wrap

from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.runs import RunUse

_LABEL = 12
# Sentences, which may take two lines each; so may the path of the record, which is not cut. With all else that makes
# 23 lines of 80 columns at most.
_FOLDED = ("ended", "verdict")
# Where the programs together have less than this of the CPU time, each may have had more than it is known of.
_TOLD = 0.95
_SOURCES = {"cgroup": "control group", "wait4": "wait4", "record": "by the record"}


def card_lines(run: RunUse, width: int = 80) -> list[str]:
    """Few enough for a screen of 24 lines, none wider than the width."""
    lines = []
    for label, words in card_rows(run):
        parts = wrap(words, width - _LABEL) if label in _FOLDED else [words]
        folded = parts if len(parts) < 3 else [parts[0], " ".join(parts[1:])]
        lines += [f"{'' if line else label:<{_LABEL}}{part}" for line, part in enumerate(folded)]
    last = lines.pop() if run.archive else None
    cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    return [*cut, last] if last else cut


def card_markdown(run: RunUse) -> str:
    """The same as a table, for the summary of a CI job."""
    rows = [(label, plain(words).replace("|", "\\|").replace("`", "'")) for label, words in card_rows(run)]
    title, rest = rows[0][1], rows[1:]
    return "\n".join(
        [f"### `{title}`", "", "| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rest), "", ""]
    )


def card_rows(run: RunUse) -> Iterator[tuple[str, str]]:
    """Each line of the card: its label, and what there is to say."""

    def told(name: str) -> str:
        return shown_field(RunUse, name).marked(run)

    yield "command", told("command")
    yield "ended", told("ended_by") + ("" if run.ended is None else f" at {run.ended:%Y-%m-%d %H:%M:%S} UTC")
    if run.trouble:
        yield "record", f"{'not whole' if run.samples else 'none'}: {told('trouble')}"
    yield "elapsed", told("elapsed_seconds")
    yield "CPU", f"{told('cpu_seconds')}, {_cores(run)}, {_SOURCES.get(run.cpu_source or '', 'not known')}"
    if not run.is_agreed:
        yield "", f"the record has {told('recorded_cpu_seconds')}"
    elif run.cpu_source == "record" and run.wait4_cpu_seconds is not None:
        yield "", f"wait4 has {told('wait4_cpu_seconds')}, of those that were waited for"
    yield "memory", _memory(run, f"peak {told('memory_peak_bytes')}")
    if run.read_bytes is not None:
        yield "disk", f"read {told('read_bytes')}, written {told('write_bytes')}"
    if run.received_bytes is not None:
        yield "network", f"received {told('received_bytes')}, sent {told('sent_bytes')} (all of the machine)"
    if run.gpu_util is not None:
        yield "GPUs", f"{told('gpu_util')} busy on average (all of the machine)"
    if run.waited_cpu is not None:
        whose = "of its own" if run.waited_source == "cgroup" else "anybody on the machine"
        waits = f"CPU {told('waited_cpu')}, memory {told('waited_memory')}, disk {told('waited_io')}"
        yield "waited for", f"{waits} of the time ({whose})"
    whole = run.cpu_seconds or 0.0
    hidden = "≥" if (run.programs_cpu_seconds or 0.0) < _TOLD * whole else ""
    for place, each in enumerate(run.programs[: 2 if run.verdicts else 3]):
        share = units.share(min(1.0, (each.cpu_seconds or 0) / whole) if whole else 0)
        # Less than a tick is not nothing, and at least less than 1 % is no figure.
        much = "" if share == "0 %" or hidden + share[0] == "≥<" else f", {hidden}{share} of the CPU"
        least = "≥" if run.unnamed_processes else ""
        yield "" if place else "inside", f"{plain(each.program)} \u00d7 {least}{each.processes}{much}"
    if run.energy.joules is not None:
        yield "energy", f"{told('energy')}, {units.grams(run.energy.grams_co2e)} CO2e"
    if run.left_behind:
        yield "left", f"{run.left_behind} process{'es' * (run.left_behind > 1)} ran on after its end"
    yield from (("verdict", verdict) for verdict in run.verdicts[:2])
    if run.size:
        yield "enough", run.size
    if run.archive:
        yield "record", told("archive")


def _cores(run: RunUse) -> str:
    text = f"{units.cores(run.cores)} cores"
    if run.cores is None or not run.cores_available:
        return text
    return f"{text} of {run.cores_available:g} ({units.share(run.cores / run.cores_available)})"


def _memory(run: RunUse, text: str) -> str:
    of_one = run.resident_peak_bytes  # of wait4, so that it is known of what no sample saw too
    if run.memory_peak_bytes is None:
        text = units.UNKNOWN if of_one is None else f"largest process {units.size(of_one)}"
    elif shown_field(RunUse, "memory_peak_bytes").mark(run) and (of_one or 0) > run.memory_peak_bytes:
        text += f", largest process {units.size(of_one)}," if run.memory_charged_peak_bytes is None else ""
    if run.memory_total_bytes:
        text += f" of {units.size(run.memory_total_bytes)}"
    if run.memory_limit_bytes and run.memory_limit_bytes < (run.memory_total_bytes or 0):
        text += f", limit {units.size(run.memory_limit_bytes)}"
    if run.memory_charged_peak_bytes is not None:
        text += f", charged {units.size(run.memory_charged_peak_bytes)} with cache"
    return text
