"""What a field declares in its type: unit, meaning, sensitivity; and how all that is made from the Structs reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta


class Sensitivity(StrEnum):
    """What a field may give away; redaction goes by this."""

    NONE = "none"
    USER = "user"
    HOST = "host"
    COMMAND = "command"
    PATH = "path"
    LABEL = "label"


# Shared: a dictionary for each of a thousand fields would take 0.2 MB.
_EXTRAS = {each: {"sensitivity": each.value} for each in Sensitivity}


def _unit(name: str) -> Meta:
    return Meta(extra={"unit": name})


def about(meaning: str, sensitivity: Sensitivity = Sensitivity.NONE) -> Meta:
    """Says in one line what a field means and where it comes from."""
    return Meta(description=meaning, extra=_EXTRAS[sensitivity])


# Integers: what the kernel or the driver counted, unchanged. All fit int64.
#: For what identifies a record or orders it: a number that no table could hold makes the line a bad one.
IN_64_BITS = Meta(ge=-(2**63), le=2**63 - 1)

Count = Annotated[int, _unit("count")]
Ident = Annotated[int, _unit("id")]
Bytes = Annotated[int, _unit("bytes")]
Sectors = Annotated[int, _unit("sectors of 512 bytes")]
Ticks = Annotated[int, _unit("ticks")]
Nanoseconds = Annotated[int, _unit("nanoseconds")]
Microseconds = Annotated[int, _unit("microseconds")]
Milliseconds = Annotated[int, _unit("milliseconds")]
Seconds = Annotated[int, _unit("seconds")]
Microjoules = Annotated[int, _unit("microjoules")]
Megahertz = Annotated[int, _unit("megahertz")]
MegabitsPerSecond = Annotated[int, _unit("megabits per second")]
KilobytesPerSecond = Annotated[int, _unit("kilobytes per second")]
Bitmask = Annotated[int, _unit("bit mask")]

# Numbers that are fractions at their source.
Percent = Annotated[float, _unit("percent")]
Watts = Annotated[float, _unit("watts")]
Celsius = Annotated[float, _unit("degrees celsius")]
Load = Annotated[float, _unit("tasks")]

Text = Annotated[str, _unit("text")]
Identifier = Annotated[str, _unit("id")]
Choice = Annotated[str, _unit("choice")]
Flag = Annotated[bool, _unit("flag")]
Time = Annotated[datetime, Meta(tz=True, extra={"unit": "time"})]


class Row(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One line of one kind within a sample.

    Fields may be added, never removed or retyped; each new one has a default.
    """


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one kind."""

    name: str
    #: The type without None and without metadata: int, float, str, bool, datetime, list[…], dict[…].
    type: Any
    unit: str
    meaning: str
    sensitivity: Sensitivity
    nullable: bool
    #: Every property that the annotations carry, the title included.
    extras: Mapping[str, Any] = field(default_factory=dict, compare=False)


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a Struct in the order in which they are encoded."""
    hints = get_type_hints(struct, include_extras=True)
    return tuple(_field(name, hints[name]) for name in struct.__struct_fields__)


def _field(name: str, hint: Any) -> Field:
    metas: list[Meta] = []
    bare, nullable = _strip(hint, metas)
    extras = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
    meaning = next((meta.description for meta in metas if meta.description), "")
    return Field(
        name=name,
        type=bare,
        unit=extras.get("unit", "structure" if get_origin(bare) else "id" if bare is str else "count"),
        meaning=meaning,
        sensitivity=Sensitivity(extras.get("sensitivity", Sensitivity.NONE)),
        nullable=nullable,
        extras=extras,
    )


def _strip(hint: Any, metas: list[Meta]) -> tuple[Any, bool]:
    """Takes off Annotated and `| None`, collecting the metadata on the way."""
    if get_origin(hint) is Annotated:
        inner, *annotations = get_args(hint)
        metas += [annotation for annotation in annotations if isinstance(annotation, Meta)]
        return _strip(inner, metas)
    if get_origin(hint) in (Union, UnionType):
        (inner,) = [part for part in get_args(hint) if part is not type(None)]
        return _strip(inner, metas)[0], True
    return hint, False


def element_of(kind: Any) -> type[msgspec.Struct] | None:
    """The Struct that a list field holds, None for other fields."""
    if get_origin(kind) is list:
        (element,) = get_args(kind)
        if isinstance(element, type) and issubclass(element, msgspec.Struct):
            return element
    return None
