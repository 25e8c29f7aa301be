"""The unit and title that each field of the model declares in its type, and how its value is written for people."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Meta
from vmsonar_archive.records.fields import fields_of
from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import units


def unit(name: str) -> Meta:
    return Meta(extra={"unit": name})


def titled(title: str, missing: str = units.UNKNOWN, bound: str = "", only_with: str = "") -> Meta:
    """The title of a field where people see it.

    `missing` is what null means, `bound` the flag that makes the figure a lower bound, `only_with` the field without
    which there is nothing to say.
    """
    return Meta(extra={"title": title, "missing": missing, "bound": bound, "only_with": only_with})


_WRITERS: dict[str, Callable[[Any], str]] = {
    "text": lambda value: plain(", ".join(value) if isinstance(value, list) else value),
    "choice": lambda value: plain(value.replace("_", " ")),
    "archive id": lambda value: plain(value[:8]),
    "container id": lambda value: plain(value[:12]),
    "number": str,
    "count": units.count,
    "share": units.share,
    "percent": units.percent,
    "cores": units.cores,
    "seconds": units.duration,
    "busy seconds": units.hours,
    "bytes": units.size,
    "bytes per second": units.rate,
    "joules": units.energy,
    "energy": lambda energy: units.energy(energy.joules, energy.source),
    "grams": units.grams,
    "watts": units.watts,
    "degrees celsius": units.degrees,
}


@dataclass(frozen=True, slots=True)
class ShownField:
    """A field of a Struct as people see it."""

    title: str
    unit: str
    #: Figures are aligned to the right, words to the left.
    is_figure: bool
    value: Callable[[Any], Any]
    missing: str = units.UNKNOWN
    bound: str = ""
    only_with: str = ""

    def write(self, value: Any) -> str:
        """A value of this field, with its unit."""
        return self.missing if value is None else _WRITERS[self.unit](value)

    def is_known(self, row: Any) -> bool:
        return self.value(row) not in (None, "")

    def is_lower_bound(self, row: Any) -> bool:
        return bool(self.bound) and self.value(row) is not None and getattr(row, self.bound)

    def is_relevant(self, row: Any) -> bool:
        return not self.only_with or bool(getattr(row, self.only_with))


@cache
def shown_field(kind: type[msgspec.Struct], name: str) -> ShownField:
    """The field of that name, or the part of one: `cores.p95`."""
    outer, _, inner = name.partition(".")
    field = {field.name: field for field in fields_of(kind)}[outer]
    title, unit, figure = field.extras.get("title", ""), field.unit, field.type
    if inner:
        part = {part.name: part for part in fields_of(figure)}[inner]
        title = f"{title} {part.extras.get('title', '')}".strip()
        # The parts of a use have the unit of the whole.
        unit, figure = part.extras.get("unit", unit), part.type
    is_figure = figure in (int, float) or unit == "energy"
    said = {key: field.extras[key] for key in ("missing", "bound", "only_with") if key in field.extras}
    return ShownField(title, unit, is_figure, attrgetter(name), **said)
