"""The parts of the page that are text; everything that comes from an archive is escaped."""

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from html import escape
from typing import Any

from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio, written
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import EnergyUse, GroupUse, Happening, Machine, NodeUse, Verdict
from vmsonar_inspect.facts.units import UNKNOWN
from vmsonar_inspect.show.answers import Summary
from vmsonar_inspect.show.columns import Column, columns_of, legend
from vmsonar_inspect.show.terminal.lists import size_sentence
from vmsonar_inspect.show.terminal.screen import covered, end_sentence


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


#: A part of the page with its place and title.
Section = tuple[str, str, Markup]


def tag(name: str, *children: str, **attributes: str | None) -> Markup:
    """An element; children that are not Markup are escaped, and so is every attribute."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(plain(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(text(child) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def text(content: str) -> Markup:
    """Text made harmless."""
    return content if isinstance(content, Markup) else Markup(escape(plain(content)))


def joined(parts: Iterable[str]) -> Markup:
    return Markup("\n".join(text(part) for part in parts if part))


def table(columns: Sequence[Column], rows: Sequence[Any]) -> Markup:
    """A table without its empty columns."""
    cells = [[column.write(row) for column in columns] for row in rows]
    places = [place for place, column in enumerate(columns) if _says(column, [row[place] for row in cells])]
    head = [tag("th", columns[place].title, class_=_align(columns[place]), scope="col") for place in places]
    body = [tag("tr", *(_cell(columns[place], row[place]) for place in places)) for row in cells]
    inner = tag("thead", tag("tr", *head)) + tag("tbody", joined(body))
    return tag("div", tag("table", Markup(inner)), class_="scroll", tabindex="0")


def _says(column: Column, cells: Sequence[str]) -> bool:
    """Whether a column has any content."""
    return any(cell and not (column.optional and cell == UNKNOWN) for cell in cells)


def _cell(column: Column, content: str) -> Markup:
    long = not column.right and len(content) > 40
    return tag("td", content, class_="long" if long else _align(column))


def _align(column: Column) -> str | None:
    return "right" if column.right else None


_FIRST_ROWS = 25
_MOST_ROWS = 200
_FIRST_VERDICTS = 8


def masthead(found: Summary, zone: tzinfo) -> Markup:
    """What the machine is and what was seen of it."""
    title = tag("h1", found.machine.hostname or found.machine.archive)
    facts = tag("div", *(tag("span", fact) for fact in _facts(found.machine)), class_="facts")
    said = [covered(found.coverage, zone), end_sentence(found)]
    return joined([title, facts, *(tag("p", words) for words in said if words)])


def _facts(machine: Machine) -> list[str]:
    place = " ".join(part for part in (machine.cloud_provider, machine.instance_type, machine.region) if part)
    cards = f"{machine.gpus} × {', '.join(machine.gpu_models) or 'GPU'}" if machine.gpus else ""  # noqa: RUF001
    size = f"{units.count(machine.cpus)} cores, {units.size(machine.memory_bytes)}" if machine.cpus else ""
    parts = (place, size, cards, machine.cpu_model, machine.os_name, machine.kernel_release)
    return [part for part in parts if part]


def tiles(found: Summary) -> Markup:
    """How busy each resource was."""
    use, memory = found.use, found.use.memory_total_bytes
    every = [
        _tile("CPU", use, "cores", ("of", f"{units.count(use.cpus)} cores"), use.cpus),
        _tile("Memory", use, "memory_bytes", ("of", units.size(memory)), memory),
    ]
    if found.gpus:
        every.append(_tile("GPU", use, "gpu_util", ("of", f"{len(found.gpus)} GPU"), 100))
    every += [
        _tile("Disk read", use, "disk_read_rate", ("in all", units.size(use.disk_read_bytes))),
        _tile("Disk written", use, "disk_write_rate", ("in all", units.size(use.disk_write_bytes))),
        _tile("Received", use, "received_rate", ("in all", units.size(use.received_bytes))),
        _tile("Sent", use, "sent_rate", ("in all", units.size(use.sent_bytes))),
    ]
    return tag("div", *every, class_="tiles")


def _tile(name: str, node: NodeUse, field: str, last: tuple[str, str], whole: float | None = None) -> Markup:
    use, write = getattr(node, field), shown_field(NodeUse, field).write
    rows = [("median", write(use.median)), ("peak", write(use.peak)), last]
    label = f"{name}: share in use at the 95th percentile"
    return tile(name, write(use.p95), "95th percentile", rows, ratio(use.p95, whole), label)


def tile(
    name: str, big: str, small: str, rows: Sequence[tuple[str, str]], share: float | None, label: str = ""
) -> Markup:
    """A figure with its details, and a bar where it is a share."""
    cells = [Markup(tag("dt", title) + tag("dd", value)) for title, value in rows]
    head = [tag("h3", name), tag("b", big), tag("span", small, class_="soft small")]
    return tag("div", *head, bar(share, label or name), tag("dl", *cells), class_="tile")


def bar(share: float | None, label: str) -> Markup:
    """A share as a bar; nothing where it is unknown."""
    if share is None:
        return Markup()
    return tag("progress", max="1", value=f"{min(1.0, max(0.0, share)):.3f}", aria_label=label)


def advice(found: Summary) -> Markup:
    """The size that would have done, and every verdict."""
    verdicts = found.verdicts
    parts = [tag("p", size_sentence(found.advice[0]).plain, class_="size")]
    if verdicts:
        parts.append(tag("div", *map(_verdict, verdicts[:_FIRST_VERDICTS]), class_="verdicts"))
        rest = verdicts[_FIRST_VERDICTS:_MOST_ROWS]
        parts.append(more(len(rest), tag("div", *map(_verdict, rest), class_="verdicts")))
    else:
        parts.append(tag("p", "No rule has anything to say against this machine or its jobs.", class_="soft"))
    return joined(parts)


def more(count: int, inner: Markup) -> Markup:
    """What opens on request; nothing where there is nothing."""
    if not count:
        return Markup()
    return tag("details", tag("summary", f"{count} more"), inner, class_="more")


def sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _verdict(verdict: Verdict) -> Markup:
    figures = ", ".join(
        f"{name} {written(name, value, verdict.marks)}" for name, value in verdict.figures.items()
    )
    how = tag(
        "details",
        tag("summary", f"Rule {verdict.rule}, {verdict.confidence} confidence"),
        tag("p", "Holds when: ", tag("code", "; ".join(verdict.conditions))),
        tag("p", f"Seen: {figures}"),
    )
    return tag(
        "div",
        tag("h3", sentence(verdict.title)),
        tag("p", tag("b", verdict.name), f": {verdict.says}."),
        tag("p", verdict.advice),
        how,
        class_=f"verdict {verdict.severity.value}",
    )


def energy(use: EnergyUse) -> Markup:
    """Energy and emissions, with where the figures come from."""
    mark = "about " if use.source == "estimate" else ""
    shares = f"jobs {units.energy(use.jobs_joules)}, idle {units.energy(use.idle_joules)}"
    used = f"{mark}{units.energy(use.joules)}: {shares}; {mark}{units.grams(use.grams_co2e)} CO2e."
    factor = f"{use.factor_country} {use.factor_year}, {use.factor_grams_per_kwh:.0f} g CO2e per kWh"
    how = f"{use.source}: {use.method}. PUE {use.pue:g}. {factor}, {use.factor_source}."
    return joined([tag("p", sentence(used)), tag("p", how, class_="soft small")])


def lists(found: Summary, users: list[GroupUse], programs: list[GroupUse], zone: tzinfo) -> list[Section]:
    """The tables, each with its place and title."""
    every: list[tuple[str, str, str, Sequence[Any]]] = [
        ("jobs", "Jobs", "jobs", found.jobs),
        ("containers", "Containers", "containers", found.containers),
        ("cards", "GPUs", "gpus", found.gpus),
        ("users", "Users", "users", users),
        ("programs", "Programs", "programs", programs),
        ("gaps", "What was not seen", "gaps", found.gaps),
    ]
    return [(name, title, _listed(view, rows, zone)) for name, title, view, rows in every if rows]


def events(found: Sequence[Happening], zone: tzinfo) -> list[Section]:
    """What happened, but for what ended well."""
    told = [event for event in found if event.event != "exit" or event.exit_code != 0]
    return [("events", "Events", _listed("events", told, zone))] if told else []


def wrong(found: Summary, zone: tzinfo) -> list[Section]:
    """What went wrong, if anything did."""
    if not found.wrong:
        return []
    return [("wrong", "What went wrong", _listed("events", found.wrong, zone))]


def _listed(view: str, rows: Sequence[Any], zone: tzinfo) -> Markup:
    """The first rows at once, more on request, and a word about the rest."""
    columns = columns_of(view, zone)
    if view == "jobs":
        columns = _command_early(columns)
    rest = rows[_FIRST_ROWS:_MOST_ROWS]
    shown = [table(columns, rows[:_FIRST_ROWS]), more(len(rest), table(columns, rest))]
    if words := legend([column.write(row) for row in rows[:_MOST_ROWS] for column in columns]):
        shown.append(tag("p", words, class_="soft small"))
    if len(rows) > _MOST_ROWS:
        shown.append(tag("p", f"and {len(rows) - _MOST_ROWS} that are not on this page", class_="soft"))
    return joined(shown)


def _command_early(columns: list[Column]) -> list[Column]:
    """Moves the command to the left: a page scrolls sideways."""
    *rest, command = columns
    return [*rest[:3], command, *rest[3:]]
