"""The page of many machines: how each was used, worst first, with charts on one clock."""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Coverage, Gap, Severity, Verdict
from vmsonar_inspect.facts.queries import Record, total, weighted_mean
from vmsonar_inspect.facts.timeline import begin_of, place, step_for
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.page.charts import OTHERS, Values, chart, has_data, series
from vmsonar_inspect.show.page.parts import Markup, bar, joined, table, tag, tile

_FIRST_BARS = 25
_MOST_ROWS = 1000
_NAMES = 12


def name_of(row: FleetRow) -> str:
    return plain(row.hostname or row.archive[:8])


def masthead(rows: Sequence[FleetRow], zone: tzinfo) -> Markup:
    """The number of machines and the time they cover."""
    firsts = [row.first for row in rows if row.first is not None]
    lasts = [row.last for row in rows if row.last is not None]
    when = f"{_time(min(firsts), zone)} to {_time(max(lasts), zone)}" if firsts and lasts else "No samples."
    return joined([tag("h1", f"{len(rows)} machines"), tag("p", f"{when}. Worst used first.", class_="soft")])


def _time(moment: datetime, zone: tzinfo) -> str:
    return f"{in_zone(moment, zone):%Y-%m-%d %H:%M %Z}"


def tiles(rows: Sequence[FleetRow]) -> Markup:
    """All machines together."""
    cpus, memory = total(row.cpus for row in rows), total(row.memory_total_bytes for row in rows)
    busy, held = total(row.cores.mean for row in rows), total(row.memory_bytes.peak for row in rows)
    jobs = units.count(sum(row.jobs for row in rows))
    troubled = sum(1 for row in rows if row.problems)
    every = [
        tile("Machines", str(len(rows)), "recorded", [("with problems", str(troubled)), ("jobs", jobs)], None),
        tile("Cores", units.share(ratio(busy, cpus)), "busy on average",
              [("busy", units.cores(busy)), ("of", units.count(cpus))], ratio(busy, cpus)),
        tile("Memory", units.share(ratio(held, memory)), "used at each one's peak",
              [("peaks", units.size(held)), ("of", units.size(memory))], ratio(held, memory)),
    ]  # fmt: skip
    cards = [row for row in rows if row.gpus]
    if cards:
        share = _gpu_share(cards)
        of = [("GPUs", units.count(total(row.gpus for row in cards))), ("in machines", str(len(cards)))]
        every.append(tile("GPUs", units.share(share), "busy on average", of, share))
    return tag("div", *every, _size_tile(rows), class_="tiles")


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
    if not rest:
        return shown
    inner = tag("div", *map(_machine, rest), class_="machines")
    return joined([shown, tag("details", tag("summary", f"{len(rest)} more"), inner, class_="more")])


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
    found: dict[str, list[tuple[str, Verdict]]] = {}
    for row in rows:
        for verdict in inspection.machine_advice(row.archive).verdicts:
            found.setdefault(verdict.rule, []).append((name_of(row), verdict))
    if not found:
        return tag("p", "No rule has anything to say against these machines.", class_="soft")
    ordered = sorted(
        found.values(), key=lambda each: (each[0][1].severity is not Severity.PROBLEM, -len(each))
    )
    return tag("div", *(_said(each, len(rows)) for each in ordered), class_="verdicts")


def _said(verdicts: Sequence[tuple[str, Verdict]], machines: int) -> Markup:
    first = verdicts[0][1]
    names = list(dict.fromkeys(name for name, _ in verdicts))
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    title = f"{first.title[:1].upper()}{first.title[1:]}: {len(names)} of {machines} machines"
    each = [tag("li", tag("b", verdict.name), f": {verdict.says}.") for _, verdict in verdicts[:_MOST_ROWS]]
    how = f"{len(verdicts)} × rule {first.rule}"  # noqa: RUF001
    return tag(
        "div",
        tag("h3", title),
        tag("p", ", ".join(names[:_NAMES]) + more),
        tag("p", first.advice),
        tag("details", tag("summary", how), tag("ul", *each)),
        class_=f"verdict {first.severity.value}",
    )


def lists(rows: Sequence[FleetRow], gaps: Sequence[Gap], zone: tzinfo) -> list[tuple[str, str, Markup]]:
    """The tables, each with its place and title."""
    damaged = [gap for gap in gaps if gap.kind == "damage"]
    found = [("machines", "Machines", table(columns_of("machines", zone), rows[:_MOST_ROWS]))]
    if damaged:
        found.append(("damage", "What could not be read", table(columns_of("gaps", zone), damaged)))
    return found


#: Most steps of a chart, roughly: finer than a screen is wide.
_STEPS = 1500
_NAMED = 9

_USED = f"""
    SELECT {{place}} AS place, archive, {weighted_mean("cpu_busy_cores")} AS cores,
        {weighted_mean("memory_used")} AS memory
    FROM node_steps GROUP BY 1, 2"""  # noqa: S608

_GPUS = "SELECT {place} AS place, archive, AVG(gpu_util) AS util FROM gpu GROUP BY 1, 2"


class FleetCharts:
    """Use over time of all machines that were opened together."""

    def __init__(self, inspection: Inspection, rows: Sequence[FleetRow]) -> None:
        self.inspection = inspection
        self.rows = [row for row in rows if row.first is not None and row.last is not None]
        firsts = [row.first for row in self.rows if row.first is not None]
        lasts = [row.last for row in self.rows if row.last is not None]
        intervals = [inspection.coverage[row.archive].interval_seconds or 1.0 for row in self.rows]
        span = Coverage(
            span_seconds=(max(lasts) - min(firsts)).total_seconds(), interval_seconds=max(intervals)
        )
        self.step = step_for(span, _STEPS)
        self.first = begin_of(min(firsts), self.step)
        self.count = max(1, -(-(max(lasts) - self.first) // timedelta(seconds=self.step)))

    def data(self, zone: str) -> dict[str, Any]:
        """What the page draws."""
        every = {**self._used(), **self._gpus()}
        return {
            "first": self.first.timestamp(),
            "step": self.step,
            "count": self.count,
            "zone": zone,
            "holes": [],
            "charts": {name: each for name, each in every.items() if has_data(each)},
        }

    def _rows(self, sql: str) -> dict[str, list[Record]]:
        self.inspection.queries.require_node_steps()
        first = self.first.replace(tzinfo=None)
        found: dict[str, list[Record]] = {row.archive: [] for row in self.rows}
        for row in self.inspection.queries.rows(sql.format(place=place(self.step)), first=first):
            found.setdefault(row["archive"], []).append(row)
        return found

    def _used(self) -> dict[str, Any]:
        rows = self._rows(_USED)
        cpus = sum(row.cpus or 0 for row in self.rows) or None
        memory = sum(row.memory_total_bytes or 0 for row in self.rows) or None
        cores = self._stacked(rows, "cores", lambda row: row.cores.mean)
        held = self._stacked(rows, "memory", lambda row: row.memory_bytes.mean)
        return {
            "fleet-cores": chart("cores", cores, stacked=True, capacity=cpus, top=cpus),
            "fleet-memory": chart("bytes", held, stacked=True, capacity=memory, top=memory),
        }

    def _stacked(self, rows: dict[str, list[Record]], name: str, size: Any) -> list[dict[str, Any]]:
        """The largest by name, all others as one."""
        ordered = sorted(self.rows, key=lambda row: -(size(row) or 0.0))
        found = [
            series(row.hostname or row.archive[:8], colour, self._spread(rows[row.archive], name))
            for colour, row in enumerate(ordered[:_NAMED])
        ]
        rest = [each for row in ordered[_NAMED:] for each in rows[row.archive]]
        return [*found, series("other machines", OTHERS, self._spread(rest, name))] if rest else found

    def _spread(self, rows: Sequence[Record], name: str) -> Values:
        values: Values = [None] * self.count
        for row in rows:
            if 0 <= row["place"] < self.count and row[name] is not None:
                values[row["place"]] = (values[row["place"]] or 0.0) + row[name]
        return values

    def _gpus(self) -> dict[str, Any]:
        cards = [row for row in self.rows if row.gpus]
        if not cards or not self.inspection.queries.has("gpu"):
            return {}
        rows = self._rows(_GPUS)
        # Idle GPUs are what the reader looks for.
        least = sorted(cards, key=lambda row: row.gpu_util.mean or 0.0)[:_NAMED]
        lines = [
            series(
                row.hostname or row.archive[:8], colour, self._spread(rows[row.archive], "util"), line=True
            )
            for colour, row in enumerate(least)
        ]
        return {"fleet-gpus": chart("percent", lines, top=100)}
