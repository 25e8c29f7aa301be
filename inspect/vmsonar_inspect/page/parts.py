"""The parts of the page that are text: machine, tiles, advice, lists."""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any

from vmsonar_inspect import units
from vmsonar_inspect.answers import Summary
from vmsonar_inspect.figures import written
from vmsonar_inspect.model import EnergyUse, GroupUse, Machine, Use
from vmsonar_inspect.model_advice import Advice, Verdict
from vmsonar_inspect.page.markup import Markup, joined, table, tag
from vmsonar_inspect.render.columns import (
    Column,
    container_columns,
    event_columns,
    gap_columns,
    gpu_columns,
    group_columns,
    job_columns,
)
from vmsonar_inspect.render.screen import varied
from vmsonar_inspect.render.summary import covered
from vmsonar_inspect.render.verdicts import size_sentence

_FIRST_ROWS = 25
_MOST_ROWS = 200
_FIRST_VERDICTS = 8


def masthead(found: Summary, zone: tzinfo) -> Markup:
    """What the machine is and what was seen of it."""
    machine = found.machine
    facts = [tag("span", fact) for fact in _facts(machine)]
    return joined(
        [
            tag("h1", machine.hostname or machine.archive),
            tag("div", *facts, class_="facts"),
            tag("p", covered(found.coverage, zone)),
        ]
    )


def _facts(machine: Machine) -> list[str]:
    place = " ".join(part for part in (machine.cloud_provider, machine.instance_type, machine.region) if part)
    cards = f"{machine.gpus} × {', '.join(machine.gpu_models) or 'GPU'}" if machine.gpus else ""  # noqa: RUF001
    size = f"{units.count(machine.cpus)} cores, {units.size(machine.memory_bytes)}" if machine.cpus else ""
    parts = (place, size, cards, machine.cpu_model, machine.os_name, machine.kernel_release)
    return [part for part in parts if part]


def tiles(found: Summary) -> Markup:
    """How busy each resource was."""
    use = found.use
    cpus, memory = use.cpus, use.memory_total_bytes
    every = [
        _tile("CPU", use.cores, units.cores, ("of", f"{units.count(cpus)} cores"), cpus),
        _tile("Memory", use.memory_bytes, units.size, ("of", units.size(memory)), memory),
    ]
    if found.gpus:
        every.append(_tile("GPU", use.gpu_util, units.percent, ("of", f"{len(found.gpus)} GPU"), 100))
    every += [
        _tile("Disk read", use.disk_read_rate, units.rate, ("in all", units.size(use.disk_read_bytes))),
        _tile("Disk written", use.disk_write_rate, units.rate, ("in all", units.size(use.disk_write_bytes))),
        _tile("Received", use.received_rate, units.rate, ("in all", units.size(use.received_bytes))),
        _tile("Sent", use.sent_rate, units.rate, ("in all", units.size(use.sent_bytes))),
    ]
    return tag("div", *every, class_="tiles")


def _tile(
    name: str,
    use: Use,
    write: Callable[[float | None], str],
    last: tuple[str, str],
    whole: float | None = None,
) -> Markup:
    rows = [("median", write(use.median)), ("peak", write(use.peak)), last]
    cells = [tag("dt", label) + tag("dd", value) for label, value in rows]
    bar = ""
    if whole and use.p95 is not None:
        share = f"{min(1.0, use.p95 / whole):.3f}"
        bar = tag("progress", max="1", value=share, aria_label=f"{name}: share in use at the 95th percentile")
    return tag(
        "div",
        tag("h3", name),
        tag("b", write(use.p95)),
        tag("span", "95th percentile", class_="soft small"),
        Markup(bar),
        tag("dl", *(Markup(cell) for cell in cells)),
        class_="tile",
    )


def advice(found: Summary) -> Markup:
    """The size that would have done, and every verdict."""
    verdicts = varied([verdict for each in found.advice for verdict in each.verdicts])
    parts = [_size(found.advice[0])] if found.advice else []
    if verdicts:
        parts.append(tag("div", *map(_verdict, verdicts[:_FIRST_VERDICTS]), class_="verdicts"))
        parts.append(_more_verdicts(verdicts[_FIRST_VERDICTS:_MOST_ROWS]))
    else:
        parts.append(tag("p", "No rule has anything to say against this machine or its jobs.", class_="soft"))
    return joined(parts)


def _more_verdicts(verdicts: list[Verdict]) -> Markup:
    if not verdicts:
        return Markup()
    inner = tag("div", *map(_verdict, verdicts), class_="verdicts")
    return tag("details", tag("summary", f"{len(verdicts)} more"), inner, class_="more")


def _size(about: Advice) -> Markup:
    return tag("p", size_sentence(about).plain, class_="size")


def _verdict(verdict: Verdict) -> Markup:
    figures = ", ".join(f"{name} {written(name, value)}" for name, value in verdict.figures.items())
    how = tag(
        "details",
        tag("summary", f"Rule {verdict.rule}, {verdict.confidence} confidence"),
        tag("p", "Holds when: ", tag("code", "; ".join(verdict.conditions))),
        tag("p", f"Seen: {figures}"),
    )
    return tag(
        "div",
        tag("h3", verdict.title[:1].upper() + verdict.title[1:]),
        tag("p", tag("b", verdict.name), f": {verdict.says}."),
        tag("p", verdict.advice),
        how,
        class_=f"verdict {verdict.severity.value}",
    )


def energy(use: EnergyUse) -> Markup:
    """Energy and emissions, with where the figures come from."""
    if use.joules is None:
        return tag("p", "Nothing was recorded.", class_="soft")
    mark = "about " if use.source == "estimate" else ""
    shares = f"jobs {units.energy(use.jobs_joules)}, idle {units.energy(use.idle_joules)}"
    used = f"{mark}{units.energy(use.joules)}: {shares}; {mark}{units.grams(use.grams_co2e)} CO2e."
    factor = f"{use.factor_country} {use.factor_year}, {use.factor_grams_per_kwh:.0f} g CO2e per kWh"
    return joined(
        [
            tag("p", used[:1].upper() + used[1:]),
            tag(
                "p",
                f"{use.source}: {use.method}. PUE {use.pue:g}. {factor}, {use.factor_source}.",
                class_="soft small",
            ),
        ]
    )


def section(identity: str, title: str, *content: str) -> Markup:
    return tag("section", tag("h2", title), *content, id=identity)


def lists(
    found: Summary, users: list[GroupUse], programs: list[GroupUse], zone: tzinfo
) -> list[tuple[str, str, Markup]]:
    """The tables, each with its place and title."""
    every: list[tuple[str, str, list[Column], Sequence[Any]]] = [
        ("jobs", "Jobs", _command_early(job_columns(zone, False)), found.jobs),
        ("containers", "Containers", container_columns(zone, False), found.containers),
        ("cards", "GPUs", gpu_columns(False), found.gpus),
        ("users", "Users", group_columns("user"), users),
        ("programs", "Programs", group_columns("program"), programs),
        ("gaps", "What was not seen", gap_columns(zone), found.gaps),
    ]
    return [(name, title, _listed(columns, rows)) for name, title, columns, rows in every if rows]


def wrong(found: Summary, zone: tzinfo) -> list[tuple[str, str, Markup]]:
    """What went wrong, if anything did."""
    if not found.wrong:
        return []
    return [("wrong", "What went wrong", _listed(event_columns(zone), found.wrong))]


def _listed(columns: list[Column], rows: Sequence[Any]) -> Markup:
    """The first rows at once, more on request, and a word about the rest."""
    shown = [table(columns, rows[:_FIRST_ROWS])]
    more = rows[_FIRST_ROWS:_MOST_ROWS]
    if more:
        inner = table(columns, more)
        shown.append(tag("details", tag("summary", f"{len(more)} more"), inner, class_="more"))
    if len(rows) > _MOST_ROWS:
        shown.append(tag("p", f"and {len(rows) - _MOST_ROWS} that are not on this page", class_="soft"))
    return joined(shown)


def _command_early(columns: list[Column]) -> list[Column]:
    """A page scrolls sideways: what a job is belongs to the left."""
    *rest, command = columns
    return [*rest[:3], command, *rest[3:]]
