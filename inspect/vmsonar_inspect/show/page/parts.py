"""The parts of the page that are text; everything that comes from an archive is escaped."""

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from html import escape

from vmsonar_archive.system.moments import span_words
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio, written
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import EnergyUse, Machine, NodeUse, Verdict
from vmsonar_inspect.inspection import InspectionSettings
from vmsonar_inspect.show.answers import Summary, asked_for
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


_FIRST_VERDICTS = 8
_MOST_VERDICTS = 200


def masthead(found: Summary, zone: tzinfo) -> Markup:
    """What the machine is and what was seen of it."""
    title = tag("h1", found.machine.hostname or found.machine.archive)
    facts = tag("div", *(tag("span", fact) for fact in _facts(found.machine)), class_="facts")
    said = [covered(found.coverage, zone), end_sentence(found)]
    return joined([title, facts, *(tag("p", words) for words in said if words)])


def filtered(wish: InspectionSettings) -> Markup:
    """What the page was limited to; nothing where it shows all."""
    asked, span = asked_for(wish), span_words(wish.frame.since, wish.frame.until)
    words = [f"only jobs{asked}" if asked else "", f"only the time {span}" if span else ""]
    said = ", ".join(word for word in words if word)
    kept = " The machine's own figures and charts count everybody." if asked else ""
    return tag("p", f"Made with a filter: {said}.{kept}", class_="filter") if said else Markup()


def _facts(machine: Machine) -> list[str]:
    place = " ".join(part for part in (machine.cloud_provider, machine.instance_type, machine.region) if part)
    cards = f"{machine.gpus} × {', '.join(machine.gpu_models) or 'GPU'}" if machine.gpus else ""  # noqa: RUF001
    size = f"{units.plural(machine.cpus, 'core')}, {units.size(machine.memory_bytes)}" if machine.cpus else ""
    parts = (place, size, cards, machine.cpu_model, machine.os_name, machine.kernel_release)
    return [part for part in parts if part]


def tiles(found: Summary) -> Markup:
    """How busy each resource was."""
    use, memory = found.use, found.use.memory_total_bytes
    every = [
        _tile("CPU", use, "cores", ("of", units.plural(use.cpus, "core")), use.cpus),
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
        parts.append(tag("div", *map(verdict_card, verdicts[:_FIRST_VERDICTS]), class_="verdicts"))
        rest = verdicts[_FIRST_VERDICTS:_MOST_VERDICTS]
        parts.append(more(len(rest), tag("div", *map(verdict_card, rest), class_="verdicts")))
    elif found.advice[0].enough_data and not found.wrong:
        parts.append(tag("p", "No problems found.", class_="good"))
    if hidden := len(verdicts[_MOST_VERDICTS:]):
        parts.append(tag("p", f"and {hidden:,} more, each in the section of its job", class_="soft"))
    return joined(parts)


def more(count: int, inner: Markup) -> Markup:
    """What opens on request; nothing where there is nothing."""
    if not count:
        return Markup()
    return tag("details", tag("summary", f"{count} more"), inner, class_="more")


def table_place(name: str) -> Markup:
    """Where the script puts a table."""
    return tag("div", data_table=name)


#: Where the script puts the charts.
CHARTS = tag("div", id="drawn")


def sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def verdict_card(verdict: Verdict, has_jobs: bool = True) -> Markup:
    """A verdict with its figures; one about a job leads to it on a page that has its jobs."""
    figures = ", ".join(
        f"{name} {written(name, value, verdict.marks)}" for name, value in verdict.figures.items()
    )
    how = tag(
        "details",
        tag(
            "summary",
            f"Rule {', also '.join([verdict.rule, *verdict.also])}, {verdict.confidence} confidence",
        ),
        tag("p", "Holds when: ", tag("code", "; ".join(verdict.conditions))),
        tag("p", f"Seen: {figures}"),
    )
    return tag(
        "div",
        tag("h3", sentence(verdict.title)),
        tag("p", _name(verdict, has_jobs), f": {verdict.says}."),
        tag("p", verdict.advice),
        how,
        class_=f"verdict {verdict.severity.value}",
    )


def _name(verdict: Verdict, has_jobs: bool) -> Markup:
    if has_jobs and verdict.about == "job" and verdict.subject:
        return tag("a", verdict.name, href=f"#job={verdict.subject}")
    return tag("b", verdict.name)


def energy(use: EnergyUse) -> Markup:
    """Energy and emissions, with where the figures come from."""
    mark = "about " if use.source == "estimate" else ""
    jobs, idle = (units.energy(each, like=use.joules) for each in (use.jobs_joules, use.idle_joules))
    shares = f"jobs {jobs}, idle {idle}"
    used = f"{mark}{units.energy(use.joules)}: {shares}; {mark}{units.grams(use.grams_co2e)} CO2e."
    factor = f"{use.factor_country} {use.factor_year}, {use.factor_grams_per_kwh:.0f} g CO2e per kWh"
    how = f"{use.source}: {use.method}. PUE {use.pue:g}. {factor}, {use.factor_source}."
    return joined([tag("p", sentence(used)), tag("p", how, class_="soft small")])
