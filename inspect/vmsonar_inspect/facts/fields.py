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


def titled(title: str, missing: str = units.UNKNOWN, only_with: str = "", **doubt: Any) -> Meta:
    """The title of a field where people see it.

    `missing` is what null means, `only_with` the field without which there is nothing to say. What is not exact names
    the fields that say so: `low` and `high` its bounds, `bound` the flag (or `field=value`) that makes it a lower bound
    where there is no upper one, `estimate` that which makes it an estimate, `like` the field whose mark it shares,
    `peak` the low, high and bound of the peak of a use.
    """
    return Meta(extra={"title": title, "missing": missing, "only_with": only_with, "doubt": doubt})


_WRITERS: dict[str, Callable[..., str]] = {
    "text": lambda value: plain(", ".join(value) if isinstance(value, list) else value),
    "choice": lambda value: plain(value.replace("_", " ")),
    "archive id": lambda value: plain(value[:8]),
    "container id": lambda value: plain(value[:12]),
    "number": str,
    "count": units.count,
    "ratio": lambda value: f"{value:.2f}",
    "share": units.share,
    "percent": units.percent,
    "cores": units.cores,
    "seconds": units.duration,
    "seconds each": units.latency,
    "elapsed seconds": units.elapsed,
    "time": lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}",
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
    only_with: str = ""
    #: The fields that say how sure it is.
    low: str = ""
    high: str = ""
    bound: str = ""
    estimate: str = ""
    like: str = ""

    def write(self, value: Any, **like: Any) -> str:
        """A value of this field, with its unit; a size or a time in that of `like`, where it is given."""
        return self.missing if value is None else _WRITERS[self.unit](value, **like)

    def is_known(self, row: Any) -> bool:
        return self.value(row) not in (None, "")

    def mark(self, row: Any) -> str:
        """What stands before the figure where it is not exact."""
        if self.like:
            kind: type[msgspec.Struct] = type(row)
            return shown_field(kind, self.like).mark(row)
        value = self.value(row)
        if value is None:
            return ""
        low, high = (getattr(row, name) if name else None for name in (self.low, self.high))
        at_least, estimated = (_holds(row, name) for name in (self.bound, self.estimate))
        return units.mark(self.write, value, low, high, at_least, estimated)

    def marked(self, row: Any) -> str:
        """Its value of a row, with its unit and its mark; "at least 0" is no figure."""
        mark, words = self.mark(row), self.write(self.value(row))
        is_open = mark == "≥" and not (self.high and getattr(row, self.high) is not None)
        return units.UNKNOWN if is_open and words == self.write(0) else mark + words

    def is_relevant(self, row: Any) -> bool:
        return not self.only_with or bool(getattr(row, self.only_with))


def _holds(row: Any, condition: str) -> bool:
    """Whether a flag is set, or a field has the value behind `=`."""
    name, _, value = condition.partition("=")
    found = getattr(row, name) if name else None
    return found == value if value else bool(found)


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
    said = {key: field.extras[key] for key in ("missing", "only_with") if key in field.extras}
    doubt = dict(field.extras.get("doubt", {}))
    peak = doubt.pop("peak", ())
    if inner == "peak":
        doubt |= dict(zip(("low", "high", "bound"), peak, strict=False))
    return ShownField(title, unit, is_figure, attrgetter(name), **said, **doubt)
