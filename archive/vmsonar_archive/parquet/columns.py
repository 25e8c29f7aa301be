"""Turns rows of Structs into Arrow columns and back into rows."""

from array import array
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from vmsonar_archive.fields import Field, element_of
from vmsonar_archive.parquet.schema import arrow, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa


def column(field: Field, rows: Sequence[msgspec.Struct]) -> "pa.Array":
    """One field of many rows."""
    values: list[Any] = list(map(attrgetter(field.name), rows))
    if values.count(None) == len(values):
        return arrow().nulls(len(values), arrow_type(field.type))
    if field.type is int:
        return _integers(values)
    plain = _plain(field)
    if plain is not None:
        values = [None if value is None else plain(value) for value in values]
    return arrow().array(values, arrow_type(field.type))


def _integers(values: list[Any]) -> "pa.Array":
    pa = arrow()
    try:
        whole = array("q", values)
    except TypeError:
        return pa.array(values, pa.int64())
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


def _plain(field: Field) -> Callable[[Any], Any] | None:
    """How a value that Arrow does not know becomes one that it does; None for the simple ones."""
    if element_of(field.type) is not None:
        return lambda rows: [msgspec.structs.asdict(row) for row in rows]
    if get_origin(field.type) is dict:
        if get_args(field.type)[1] is str:
            return lambda labels: list(labels.items())
        return lambda value: msgspec.json.encode(value).decode()
    return None


def row_of(struct: type[msgspec.Struct], fields: Sequence[Field], values: dict[str, Any]) -> msgspec.Struct:
    """The row that a line of a table was made from."""
    given = {field.name: _given(field, values.get(field.name)) for field in fields}
    return msgspec.convert({name: value for name, value in given.items() if value is not None}, struct)


def _given(field: Field, value: Any) -> Any:
    if value is None or get_origin(field.type) is not dict:
        return value
    if get_args(field.type)[1] is str:
        return dict(value)
    return msgspec.json.decode(value, type=dict[str, msgspec.Raw])
