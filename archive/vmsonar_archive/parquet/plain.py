"""Turns rows of whole numbers and short words into columns without decoding them one by one.

What is left of a row without its digits and capitals is its skeleton. Rows of JSON that have the same one differ in
nothing but numbers, so that a reader of CSV can take them: in less than half the time that decoding takes. Whatever is
not that simple is left to the decoder, and so is every doubt.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vmsonar_archive.fields import Field
from vmsonar_archive.parquet.schema import arrow, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

_CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SMALL = b"abcdefghijklmnopqrstuvwxyz"
#: Taken off for the skeleton; what remains of a key or a word cannot change unseen, except by these.
_VALUES = b"-0123456789" + _CAPITALS
#: Taken off for the values. The colon becomes a blank, so that digits of a key never touch those of its value.
_NAMES = _SMALL + b'_"{}'
_BLANK = bytes.maketrans(b":", b" ")
_MEMBER = rb'"([a-z_]+)":(""|"[a-z_]+"|true|false|)'
_SKELETON = re.compile(rb"\{%b(?:,%b)*\}" % (_MEMBER, _MEMBER))
_MEMBERS = re.compile(_MEMBER)


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a skeleton: a number, a word of capitals and digits, or a value that is always the same."""

    field: Field
    constant: Any = None


def plain_columns(fields: Sequence[Field], rows: Sequence[bytes]) -> "pa.Table | None":
    """The fields of rows that are known to be JSON; None when they are not all plain."""
    skeletons = (b"\n".join(rows) + b"\n").translate(None, _VALUES)
    first = skeletons[: skeletons.index(b"\n") + 1]
    if skeletons == first * len(rows):
        return _alike(fields, rows, first[:-1])
    each = skeletons.split(b"\n")[:-1]
    return _sorted_out(fields, rows, each) if len(each) == len(rows) else None


def _sorted_out(fields: Sequence[Field], rows: Sequence[bytes], skeletons: list[bytes]) -> "pa.Table | None":
    """The same for rows of several skeletons, each kind by itself."""
    pa = arrow()
    import pyarrow.compute as pc

    places: dict[bytes, list[int]] = {}
    for place, skeleton in enumerate(skeletons):
        places.setdefault(skeleton, []).append(place)
    parts = []
    for skeleton, own in places.items():
        part = _alike(fields, [rows[place] for place in own], skeleton)
        if part is None:
            return None
        parts.append(part)
    order = pa.array([place for own in places.values() for place in own], pa.int64())
    return pa.concat_tables(parts).take(pc.array_sort_indices(order))


def _alike(fields: Sequence[Field], rows: Sequence[bytes], skeleton: bytes) -> "pa.Table | None":
    members = _members(fields, skeleton)
    if members is None:
        return None
    found = _values(members, rows)
    if found is None:
        return None
    pa = arrow()
    empty = {field.name: pa.nulls(len(rows), arrow_type(field.type)) for field in fields}
    return pa.table(empty | found)


def _members(fields: Sequence[Field], skeleton: bytes) -> dict[str, Member] | None:
    """What a skeleton is made of; None when that is anything unknown, missing or said twice."""
    if not _SKELETON.fullmatch(skeleton):
        return None
    known = {field.name: field for field in fields}
    members: dict[str, Member] = {}
    for name, value in _MEMBERS.findall(skeleton):
        field = known.get(name.decode())
        member = None if field is None else _member(field, value.decode())
        if field is None or member is None or field.name in members:
            return None
        members[field.name] = member
    missing = [field for field in fields if not field.nullable and field.name not in members]
    return None if missing else members


def _member(field: Field, value: str) -> Member | None:
    if field.type is int and not value:
        return Member(field)
    if field.type is str and value.startswith('"'):
        return Member(field, value.strip('"') or None)
    if field.type is bool and value in ("true", "false"):
        return Member(field, value == "true")
    return None


def _values(members: dict[str, Member], rows: Sequence[bytes]) -> "dict[str, pa.Array] | None":
    pa = arrow()
    import pyarrow.csv as csv

    text = b"\n".join(rows).translate(_BLANK, _NAMES)
    types = {
        name: pa.int64() if member.field.type is int else pa.string() for name, member in members.items()
    }
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            csv.ReadOptions(use_threads=False, column_names=list(members), block_size=len(text) + 1),
            csv.ParseOptions(quote_char=False),
            csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
        )
    except pa.ArrowInvalid:
        return None
    columns: dict[str, Any] = {name: table[name].combine_chunks() for name in members}
    for name, member in members.items():
        if member.field.type is not int:
            columns[name] = _words(columns[name], member.constant)
    return None if any(column is None for column in columns.values()) else columns


def _words(column: "pa.Array", constant: Any) -> "pa.Array | None":
    """The words behind the blank that stands for the colon; None when anything stands before it, or is new."""
    pa = arrow()
    coded = column.dictionary_encode()
    found: list[str] = coded.dictionary.to_pylist()
    if constant is not None:
        return pa.repeat(constant, len(column)) if found == [" "] else None
    if not all(word.startswith(" ") for word in found):
        return None
    words = pa.array([word[1:] for word in found], pa.string())
    return words.take(coded.indices)
