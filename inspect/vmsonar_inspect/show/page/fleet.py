"""The parts of the page of many machines: how each was used, worst first."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Severity, Verdict
from vmsonar_inspect.facts.queries import grouped, total
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow, one_per_machine
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


def fleet_page(
    inspection: Inspection, rows: Sequence[FleetRow], zone: tzinfo
) -> tuple[list[Section], dict[str, Any]]:
    """The sections, and the data behind them."""
    verdicts = {row.archive: inspection.machine_advice(row.archive).verdicts for row in rows}
    data = fleet_data(inspection, rows, zone)
    tables = {"machines": _machines(rows, verdicts, zone)}
    damaged = [gap for _, gap in inspection.gaps if gap.kind == "damage"]
    if damaged:
        tables["damage"] = table("What could not be read", columns_of("gaps", zone), damaged)
    sections = [
        ("advice", "Advice", advice(rows, verdicts)),
        ("use", "Use of each, worst first", joined([tiles(rows), bars(rows, data.get("colours", {}))])),
        *([("charts", "Over time", CHARTS)] if data else []),
        *((name, tables[name]["title"], table_place(name)) for name in tables),
    ]
    details = _details(inspection, rows[:MOST_ROWS], verdicts)
    return sections, data | {"tables": tables, "kind": "machine", "of": "machines", "details": details}


def _machines(rows: Sequence[FleetRow], verdicts: Verdicts, zone: tzinfo) -> Table:
    def titles(row: FleetRow) -> str:
        return "; ".join(dict.fromkeys(sentence(verdict.title) for verdict in verdicts[row.archive]))

    every = columns_of("machines", zone)
    said = [replace(column, write=titles) for column in every if column.names == "verdicts"]
    first, *rest = (column for column in every if column.names != "verdicts")
    return table("Machines", [first, *said, *rest], rows, "that were used more", ids=lambda row: row.archive)


def _details(inspection: Inspection, rows: Sequence[FleetRow], verdicts: Verdicts) -> list[dict[str, Any]]:
    """What the section of each machine shows beyond its row."""
    sources = [MACHINES, MACHINES_GPUS] if inspection.queries.has("gpu") else [MACHINES]
    inspection.queries.require_node_steps()
    found = []
    for row, course in zip(rows, courses(inspection, rows, [None] * len(rows), sources), strict=True):
        cards = tag("div", *map(verdict_card, verdicts[row.archive]), class_="verdicts")
        whole = f"vmsonar inspect {shlex.quote(row.source)} --html {shlex.quote(name_of(row) + '.html')}"
        how = tag("p", "Its own page, with its jobs: ", tag("code", whole), class_="soft small")
        capacity = {"cores": row.cpus, "memory": row.memory_total_bytes}
        found.append({"course": course, "capacity": capacity, "notes": str(joined([cards, how]))})
    return found


def bars(rows: Sequence[FleetRow], colours: dict[str, int]) -> Markup:
    """The use of each machine as bars."""
    every = [_machine(row, colours.get(row.archive)) for row in rows[:_MOST_BARS]]
    shown, rest = every[:_FIRST_BARS], every[_FIRST_BARS:]
    hidden = f"and {len(rows) - _MOST_BARS:,} more in the table below" if len(rows) > _MOST_BARS else ""
    rest_of_them = more(len(rest), tag("div", *rest, class_="machines"))
    return joined([tag("div", *shown, class_="machines"), rest_of_them, tag("p", hidden) if hidden else ""])


def _machine(row: FleetRow, colour: int | None) -> Markup:
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
    return tag("div", tag("h3", swatch, _link(row)), *lines, class_=kind)


def _use(label: str, share: float | None, words: str) -> Markup:
    return tag("div", tag("span", label, class_="soft"), tag("span", words), bar(share, label), class_="use")


def advice(rows: Sequence[FleetRow], verdicts: Verdicts) -> Markup:
    """Every rule that fired, with the machines it is about."""
    said = [(row, verdict) for row in rows for verdict in verdicts[row.archive]]
    found = grouped(said, lambda each: each[1].rule)
    if not found:
        return tag("p", "No problems found.", class_="good")
    ordered = sorted(
        found.values(), key=lambda each: (each[0][1].severity is not Severity.PROBLEM, -len(each))
    )
    return tag("div", *(_said(each, len(rows)) for each in ordered), class_="verdicts")


def _said(verdicts: Sequence[tuple[FleetRow, Verdict]], machines: int) -> Markup:
    first = verdicts[0][1]
    named = {row.archive: _link(row) for row, _ in verdicts}
    hidden = f" and {len(named) - _NAMES} more" if len(named) > _NAMES else ""
    title = f"{sentence(first.title)}: {len(named)} of {machines} machines"
    each = [
        tag("li", _link(row), f" {verdict.name}: {verdict.says}.") for row, verdict in verdicts[:_MOST_SAID]
    ]
    if len(verdicts) > _MOST_SAID:
        each.append(tag("li", f"and {len(verdicts) - _MOST_SAID:,} more, in the sections of the machines"))
    how = f"Each of them, rule {first.rule}"
    return tag(
        "div",
        tag("h3", title),
        tag("p", Markup(", ".join([*named.values()][:_NAMES])), hidden),
        tag("p", first.advice),
        tag("details", tag("summary", how), tag("ul", *each)),
        class_=f"verdict {first.severity.value}",
    )


def _link(row: FleetRow) -> Markup:
    return tag("a", name_of(row), href=f"#machine={row.archive}")
