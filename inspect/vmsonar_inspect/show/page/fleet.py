"""The parts of the page of many machines: how each was used, worst first."""

from collections.abc import Sequence
from datetime import tzinfo

from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Gap, Severity, Verdict
from vmsonar_inspect.facts.queries import grouped, total
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow, one_per_machine
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.page.parts import Markup, Section, bar, joined, more, sentence, table, tag, tile

_FIRST_BARS = 25
_MOST_ROWS = 1000
_NAMES = 12


def name_of(row: FleetRow) -> str:
    return plain(row.hostname or row.archive[:8])


def masthead(rows: Sequence[FleetRow], zone: tzinfo) -> Markup:
    """The number of machines and the time they cover."""
    times = [in_zone(time, zone) for row in rows for time in (row.first, row.last) if time is not None]
    when = f"{min(times):%Y-%m-%d %H:%M %Z} to {max(times):%Y-%m-%d %H:%M %Z}" if times else "No samples."
    return joined(
        [
            tag("h1", f"{len(one_per_machine(rows))} machines"),
            tag("p", f"{when}. Worst used first.", class_="soft"),
        ]
    )


def tiles(rows: Sequence[FleetRow]) -> Markup:
    """All machines together; of several archives of one machine the latest stands for what it is."""
    each = one_per_machine(rows)
    cpus, memory = total(row.cpus for row in each), total(row.memory_total_bytes for row in each)
    busy, held = total(row.cores.mean for row in each), total(row.memory_bytes.peak for row in each)
    jobs = units.count(sum(row.jobs for row in rows))
    troubled = len(one_per_machine([row for row in rows if row.problems]))
    every = [
        tile("Machines", str(len(each)), "recorded", [("with problems", str(troubled)), ("jobs", jobs)], None),
        tile("Cores", units.share(ratio(busy, cpus)), "busy on average",
              [("busy", units.cores(busy)), ("of", units.count(cpus))], ratio(busy, cpus)),
        tile("Memory", units.share(ratio(held, memory)), "used at each one's peak",
              [("peaks", units.size(held)), ("of", units.size(memory))], ratio(held, memory)),
    ]  # fmt: skip
    cards = [row for row in each if row.gpus]
    if cards:
        share = _gpu_share(cards)
        of = [("GPUs", units.count(total(row.gpus for row in cards))), ("in machines", str(len(cards)))]
        every.append(tile("GPUs", units.share(share), "busy on average", of, share))
    return tag("div", *every, _size_tile(each), class_="tiles")


def _gpu_share(rows: Sequence[FleetRow]) -> float | None:
    """How busy the GPUs were, as far as it is known."""
    known = [(row.gpu_util.mean, row.gpus) for row in rows if row.gpu_util.mean is not None]
    return ratio(total(mean * gpus for mean, gpus in known), total(100 * gpus for _, gpus in known))


def _size_tile(rows: Sequence[FleetRow]) -> Markup:
    """What would have held the 95th percentile of each, together."""
    sized = [(row, row.size_p95) for row in rows if row.size_p95 is not None]
    cores = total(size.cores for _, size in sized)
    memory = total(size.memory_gib for _, size in sized)
    there = total(row.cpus for row, _ in sized)
    had = total(row.memory_total_bytes for row, _ in sized)
    lines = [
        ("of", f"{units.count(there)} cores"),
        ("memory", f"{units.count(memory)} of {units.count(None if had is None else had / 2**30)} GiB"),
    ]
    big = units.UNKNOWN if cores is None else f"{units.count(cores)} cores"
    return tile("Would have done", big, "each one's 95th percentile", lines, ratio(cores, there))


def bars(rows: Sequence[FleetRow]) -> Markup:
    """The use of each machine as bars."""
    shown = tag("div", *map(_machine, rows[:_FIRST_BARS]), class_="machines")
    rest = rows[_FIRST_BARS:_MOST_ROWS]
    return joined([shown, more(len(rest), tag("div", *map(_machine, rest), class_="machines"))])


def _machine(row: FleetRow) -> Markup:
    cores = f"{units.cores(row.cores.mean)} of {units.count(row.cpus)} cores"
    memory = f"{units.size(row.memory_bytes.peak)} of {units.size(row.memory_total_bytes)}"
    lines = [
        _use("CPU, mean", ratio(row.cores.mean, row.cpus), cores),
        _use("memory, peak", ratio(row.memory_bytes.peak, row.memory_total_bytes), memory),
    ]
    if row.gpus:
        busy = f"{units.percent(row.gpu_util.mean)} of {row.gpus} GPU" + ("" if row.gpus == 1 else "s")
        lines.append(_use("GPU, mean", ratio(row.gpu_util.mean, 100), busy))
    kind = "machine problem" if row.problems else "machine"
    return tag("div", tag("h3", name_of(row)), *lines, class_=kind)


def _use(label: str, share: float | None, words: str) -> Markup:
    return tag("div", tag("span", label, class_="soft"), tag("span", words), bar(share, label), class_="use")


def advice(inspection: Inspection, rows: Sequence[FleetRow]) -> Markup:
    """Every rule that fired, with the machines it is about."""
    said = [
        (name_of(row), verdict) for row in rows for verdict in inspection.machine_advice(row.archive).verdicts
    ]
    found = grouped(said, lambda each: each[1].rule)
    if not found:
        return tag("p", "No rule has anything to say against these machines.", class_="soft")
    ordered = sorted(
        found.values(), key=lambda each: (each[0][1].severity is not Severity.PROBLEM, -len(each))
    )
    return tag("div", *(_said(each, len(rows)) for each in ordered), class_="verdicts")


def _said(verdicts: Sequence[tuple[str, Verdict]], machines: int) -> Markup:
    first = verdicts[0][1]
    names = list(dict.fromkeys(name for name, _ in verdicts))
    hidden = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    title = f"{sentence(first.title)}: {len(names)} of {machines} machines"
    each = [tag("li", tag("b", verdict.name), f": {verdict.says}.") for _, verdict in verdicts[:_MOST_ROWS]]
    how = f"{len(verdicts)} × rule {first.rule}"  # noqa: RUF001
    return tag(
        "div",
        tag("h3", title),
        tag("p", ", ".join(names[:_NAMES]) + hidden),
        tag("p", first.advice),
        tag("details", tag("summary", how), tag("ul", *each)),
        class_=f"verdict {first.severity.value}",
    )


def lists(rows: Sequence[FleetRow], gaps: Sequence[Gap], zone: tzinfo) -> list[Section]:
    """The tables, each with its place and title."""
    damaged = [gap for gap in gaps if gap.kind == "damage"]
    found = [("machines", "Machines", table(columns_of("machines", zone), rows[:_MOST_ROWS]))]
    if damaged:
        found.append(("damage", "What could not be read", table(columns_of("gaps", zone), damaged)))
    return found
