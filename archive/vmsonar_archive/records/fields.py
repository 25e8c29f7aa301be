"""What the Structs say of their fields: name, type, unit, meaning and sensitivity, for everything made from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from vmsonar_archive.records.units import Sensitivity


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
