"""The parts of the page of many machines: how each was used, worst first."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any

from vmsonar_archive.system.moments import in_zone

from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Severity, Verdict
from vmsonar_inspect.facts.queries import grouped, total
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow, by_machine, names_of
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.page.charts import fleet_data
from vmsonar_inspect.show.page.details import MACHINES, MACHINES_GPUS, courses
from vmsonar_inspect.show.page.parts import (
    CHARTS,
    Markup,
    Section,
    bar,
    joined,
    more,
    sentence,
    table_place,
    tag,
    tile,
    verdict_card,
)
from vmsonar_inspect.show.page.tables import MOST_ROWS, Table, table

_FIRST_BARS = 25
_MOST_BARS = 1000
_MOST_SAID = 1000
_NAMES = 12

#: The verdicts on each machine, by its archive.
Verdicts = Mapping[str, Sequence[Verdict]]


#: What each archive is called.
Names = Mapping[str, str]


def title(rows: Sequence[FleetRow]) -> str:
    """`500 machines`; several archives of one are one."""
    number = len(by_machine(rows))
    archives = f" in {len(rows):,} archives" if len(rows) > number else ""
    return units.plural(number, "machine") + archives


def masthead(rows: Sequence[FleetRow], zone: tzinfo) -> Markup:
    """The number of machines and the time they cover."""
    times = [in_zone(time, zone) for row in rows for time in (row.first, row.last) if time is not None]
    when = f"{min(times):%Y-%m-%d %H:%M %Z} to {max(times):%Y-%m-%d %H:%M %Z}" if times else "No samples."
    return joined(
        [
            tag("h1", title(rows)),
            tag("p", f"{when}. Worst used first.", class_="soft"),
        ]
    )


def tiles(rows: Sequence[FleetRow]) -> Markup:
    """All machines together; of several archives of one machine the latest stands for what it is."""
    machines = by_machine(rows)
    each = [latest for latest, *_ in machines]
    cpus, memory = total(row.cpus for row in each), total(row.memory_total_bytes for row in each)
    busy, held = total(map(_busy, machines)), total(map(_peak, machines))
    jobs = units.count(sum(row.jobs for row in rows))
    troubled = len(by_machine([row for row in rows if row.problems]))
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
    return tag("div", *every, _size_tile(machines), class_="tiles")


def _busy(archives: Sequence[FleetRow]) -> float | None:
    """The cores that were busy on average, over all archives of a machine."""
    known = [(row.cores.mean, row.span_seconds or 0.0) for row in archives if row.cores.mean is not None]
    weights = sum(seconds for _, seconds in known)
    return total(mean * seconds / weights for mean, seconds in known) if weights else None


def _peak(archives: Sequence[FleetRow]) -> float | None:
    peaks = (row.memory_bytes.peak for row in archives)
    return max((peak for peak in peaks if peak is not None), default=None)


def _gpu_share(rows: Sequence[FleetRow]) -> float | None:
    """How busy the GPUs were, as far as it is known."""
    known = [(row.gpu_util.mean, row.gpus) for row in rows if row.gpu_util.mean is not None]
    return ratio(total(mean * gpus for mean, gpus in known), total(100 * gpus for _, gpus in known))


def _size_tile(machines: Sequence[Sequence[FleetRow]]) -> Markup:
    """What would have held the 95th percentile of each, together; of a machine the most that any archive asks for."""
    sized = [[(row, row.size_p95) for row in rows if row.size_p95 is not None] for rows in machines]
    sized = [each for each in sized if each]
    cores = total(max(size.cores or 0 for _, size in each) for each in sized)
    memory = total(max(size.memory_gib or 0 for _, size in each) for each in sized)
    there = total(each[0][0].cpus for each in sized)
    had = total(each[0][0].memory_total_bytes for each in sized)
    lines = [
        ("of", f"{units.count(there)} cores"),
        ("memory", f"{units.count(memory)} of {units.count(None if had is None else had / 2**30)} GiB"),
    ]
    mark = "≥ " * any(row.size_is_lower_bound for each in sized for row, _ in each)
    big = units.UNKNOWN if cores is None else f"{mark}{units.count(cores)} cores"
    return tile("Would have done", big, "each one's 95th percentile", lines, ratio(cores, there))


def fleet_page(
    inspection: Inspection, rows: Sequence[FleetRow], zone: tzinfo
) -> tuple[list[Section], dict[str, Any]]:
    """The sections, and the data behind them."""
    names = names_of(rows, zone)
    verdicts = {row.archive: inspection.verdicts(row.archive) for row in rows}
    data = fleet_data(inspection, rows, zone)
    tables = {"machines": _machines(rows, zone)}
    damaged = [gap for _, gap in inspection.gaps if gap.kind == "damage"]
    if damaged:
        tables["damage"] = table("What could not be read", columns_of("gaps", zone), damaged)
    sections = [
        ("advice", "Advice", advice(rows, verdicts, names)),
        (
            "use",
            "Use of each, worst first",
            joined([tiles(rows), bars(rows, data.get("colours", {}), names)]),
        ),
        *([("charts", "Over time", CHARTS)] if data else []),
        *((name, tables[name]["title"], table_place(name)) for name in tables),
    ]
    details = _details(inspection, rows[:MOST_ROWS], verdicts, names)
    return sections, data | {"tables": tables, "kind": "machine", "of": "machines", "details": details}


def _machines(rows: Sequence[FleetRow], zone: tzinfo) -> Table:
    first, *rest, said = columns_of("machines", zone)
    return table("Machines", [first, said, *rest], rows, "that were used more", ids=lambda row: row.archive)


def _details(
    inspection: Inspection, rows: Sequence[FleetRow], verdicts: Verdicts, names: Names
) -> list[dict[str, Any]]:
    """What the section of each machine shows beyond its row."""
    sources = [MACHINES, MACHINES_GPUS] if inspection.queries.has("gpu") else [MACHINES]
    inspection.queries.require_node_steps()
    found = []
    for row, course in zip(rows, courses(inspection, rows, [None] * len(rows), sources), strict=True):
        cards = tag("div", *(verdict_card(each, False) for each in verdicts[row.archive]), class_="verdicts")
        page = shlex.quote(f"{names[row.archive].replace(' ', '_')}.html")
        whole = f"vmsonar inspect {shlex.quote(row.source)} --html {page}"
        how = tag("p", "Its own page, with its jobs: ", tag("code", whole), class_="soft small")
        capacity = {"cores": row.cpus, "memory": row.memory_total_bytes}
        found.append({"course": course, "capacity": capacity, "notes": str(joined([cards, how]))})
    return found


def bars(rows: Sequence[FleetRow], colours: dict[str, int], names: Names) -> Markup:
    """The use of each machine as bars."""
    every = [_machine(row, colours.get(row.archive), names) for row in rows[:_MOST_BARS]]
    shown, rest = every[:_FIRST_BARS], every[_FIRST_BARS:]
    hidden = f"and {len(rows) - _MOST_BARS:,} more in the table below" if len(rows) > _MOST_BARS else ""
    rest_of_them = more(len(rest), tag("div", *rest, class_="machines"))
    return joined([tag("div", *shown, class_="machines"), rest_of_them, tag("p", hidden) if hidden else ""])


def _machine(row: FleetRow, colour: int | None, names: Names) -> Markup:
    cores = f"{units.cores(row.cores.mean)} of {units.plural(row.cpus, 'core')}"
    memory = f"{units.size(row.memory_bytes.peak)} of {units.size(row.memory_total_bytes)}"
    lines = [
        _use("CPU, mean", ratio(row.cores.mean, row.cpus), cores),
        _use("memory, peak", ratio(row.memory_bytes.peak, row.memory_total_bytes), memory),
    ]
    if row.gpus:
        busy = f"{units.percent(row.gpu_util.mean)} of {row.gpus} GPU" + ("" if row.gpus == 1 else "s")
        lines.append(_use("GPU, mean", ratio(row.gpu_util.mean, 100), busy))
    kind = "machine problem" if row.problems else "machine"
    swatch = Markup() if colour is None else tag("i", data_colour=str(colour))
    return tag("div", tag("h3", swatch, _link(row, names)), *lines, class_=kind)


def _use(label: str, share: float | None, words: str) -> Markup:
    return tag("div", tag("span", label, class_="soft"), tag("span", words), bar(share, label), class_="use")


#: Where the link to a machine leads: to its section of this page.
HERE = "#machine="


def advice(
    rows: Sequence[FleetRow],
    verdicts: Verdicts,
    names: Names,
    place: str = HERE,
    count: Callable[[Sequence[FleetRow]], int] = lambda rows: len(by_machine(rows)),
) -> Markup:
    """Every rule that fired, with the machines it is about; `place` is what their addresses begin with."""
    said = [(row, verdict) for row in rows for verdict in verdicts[row.archive]]
    found = grouped(said, lambda each: each[1].rule)
    if not found:
        return tag("p", "No problems found.", class_="good")
    ordered = sorted(
        found.values(), key=lambda each: (each[0][1].severity is not Severity.PROBLEM, -len(each))
    )
    number = count(rows)
    return tag("div", *(_said(each, number, names, place, count) for each in ordered), class_="verdicts")


def _said(
    verdicts: Sequence[tuple[FleetRow, Verdict]],
    machines: int,
    names: Names,
    place: str,
    count: Callable[[Sequence[FleetRow]], int],
) -> Markup:
    first = verdicts[0][1]
    named = {row.archive: _link(row, names, place) for row, _ in verdicts}
    concerned = count([*{row.archive: row for row, _ in verdicts}.values()])
    hidden = f" and {len(named) - _NAMES} more" if len(named) > _NAMES else ""
    about = f"{sentence(first.title)}: {concerned} of {units.plural(machines, 'machine')}"
    each = [
        tag("li", _link(row, names, place), f" {verdict.name}: {verdict.says}.")
        for row, verdict in verdicts[:_MOST_SAID]
    ]
    if len(verdicts) > _MOST_SAID:
        each.append(tag("li", f"and {len(verdicts) - _MOST_SAID:,} more, in the sections of the machines"))
    how = f"Each of them, rule {first.rule}"
    return tag(
        "div",
        tag("h3", about),
        tag("p", Markup(", ".join([*named.values()][:_NAMES])), hidden),
        tag("p", first.advice),
        tag("details", tag("summary", how), tag("ul", *each)),
        class_=f"verdict {first.severity.value}",
    )


def _link(row: FleetRow, names: Names, place: str = HERE) -> Markup:
    return tag("a", names[row.archive], href=f"{place}{row.archive}")
