"""The page of many machines: how each was used, worst first, over time, and what is to be said about them."""

from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo

from vmsonar_inspect import units
from vmsonar_inspect.answers import FleetRow
from vmsonar_inspect.figures import ratio
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.model import Gap
from vmsonar_inspect.model_advice import Severity, Verdict
from vmsonar_inspect.page.markup import Markup, joined, table, tag
from vmsonar_inspect.render.columns import gap_columns
from vmsonar_inspect.render.lists import fleet_columns
from vmsonar_inspect.text import plain

_FIRST_BARS = 25
_MOST_ROWS = 1000
_NAMES = 12


def name_of(row: FleetRow) -> str:
    return plain(row.hostname or row.archive[:8])


def masthead(rows: Sequence[FleetRow], zone: tzinfo) -> Markup:
    """How many, and when."""
    firsts = [row.first for row in rows if row.first is not None]
    lasts = [row.last for row in rows if row.last is not None]
    when = f"{_time(min(firsts), zone)} to {_time(max(lasts), zone)}" if firsts and lasts else "No samples."
    return joined([tag("h1", f"{len(rows)} machines"), tag("p", f"{when}. Worst used first.", class_="soft")])


def _time(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def tiles(rows: Sequence[FleetRow]) -> Markup:
    """All machines together."""
    cpus, memory = _sum(row.cpus for row in rows), _sum(row.memory_total_bytes for row in rows)
    busy, held = _sum(row.cores.mean for row in rows), _sum(row.memory_bytes.peak for row in rows)
    troubled = sum(1 for row in rows if row.problems)
    every = [
        _tile("Machines", str(len(rows)), "recorded", [("with problems", str(troubled)), ("jobs", _jobs(rows))]),
        _tile("Cores", units.share(ratio(busy, cpus)), "busy on average",
              [("busy", units.cores(busy)), ("of", units.count(cpus))], ratio(busy, cpus)),
        _tile("Memory", units.share(ratio(held, memory)), "used at each one's peak",
              [("peaks", units.size(held)), ("of", units.size(memory))], ratio(held, memory)),
    ]  # fmt: skip
    cards = [row for row in rows if row.gpus]
    if cards:
        share = _gpu_share(cards)
        of = [("GPUs", units.count(_sum(row.gpus for row in cards))), ("in machines", str(len(cards)))]
        every.append(_tile("GPUs", units.share(share), "busy on average", of, share))
    return tag("div", *every, _size_tile(rows), class_="tiles")


def _gpu_share(rows: Sequence[FleetRow]) -> float | None:
    """How busy the GPUs were of which that is known."""
    known = [(row.gpu_util.mean, row.gpus) for row in rows if row.gpu_util.mean is not None]
    return ratio(_sum(mean * gpus for mean, gpus in known), _sum(100 * gpus for _, gpus in known))


def _jobs(rows: Sequence[FleetRow]) -> str:
    return units.count(sum(row.jobs for row in rows))


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _size_tile(rows: Sequence[FleetRow]) -> Markup:
    """What would have held the 95th percentile of each, together."""
    sized = [(row, row.size_p95) for row in rows if row.size_p95 is not None]
    cores = _sum(size.cores for _, size in sized)
    memory = _sum(size.memory_gib for _, size in sized)
    there = _sum(row.cpus for row, _ in sized)
    had = _sum(row.memory_total_bytes for row, _ in sized)
    lines = [
        ("of", f"{units.count(there)} cores"),
        ("memory", f"{units.count(memory)} of {units.count(None if had is None else had / 2**30)} GiB"),
    ]
    big = units.UNKNOWN if cores is None else f"{units.count(cores)} cores"
    return _tile("Would have done", big, "each one's 95th percentile", lines, ratio(cores, there))


def _tile(
    name: str, big: str, small: str, rows: Sequence[tuple[str, str]], share: float | None = None
) -> Markup:
    cells = [tag("dt", label) + tag("dd", value) for label, value in rows]
    parts = [tag("h3", name), tag("b", big), tag("span", small, class_="soft small")]
    if share is not None:
        parts.append(_bar(share, name))
    return tag("div", *parts, tag("dl", *(Markup(cell) for cell in cells)), class_="tile")


def _bar(share: float | None, label: str) -> Markup:
    if share is None:
        return Markup()
    return tag("progress", max="1", value=f"{min(1.0, max(0.0, share)):.3f}", aria_label=label)


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
    return tag("div", tag("span", label, class_="soft"), tag("span", words), _bar(share, label), class_="use")


def advice(inspection: Inspection, rows: Sequence[FleetRow]) -> Markup:
    """Every rule that has something to say, with the machines that it says it of."""
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
    found = [("machines", "Machines", table(fleet_columns(zone), rows[:_MOST_ROWS]))]
    if damaged:
        found.append(("damage", "What could not be read", table(gap_columns(zone), damaged)))
    return found
