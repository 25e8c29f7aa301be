"""Decodes the rows of one table from raw JSON into Arrow columns; repeated bytes are decoded once."""

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from vmsonar_archive.parquet.schema import Key, arrow, arrow_type, own_fields
from vmsonar_archive.records import KINDS, SERIES_KEYS
from vmsonar_archive.records.fields import Field, element_of

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

#: A field of a skeleton: a number, a word of capitals and digits, or a value that is always the same, given here.
Member = tuple[type, Any]


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
    found = None if members is None else _values(members, rows)
    if found is None:
        return None
    pa = arrow()
    empty = {field.name: pa.nulls(len(rows), arrow_type(field.type)) for field in fields}
    return pa.table(empty | found)


def _members(fields: Sequence[Field], skeleton: bytes) -> dict[str, Member] | None:
    """The members of a skeleton; None if any is unknown, missing or repeated, or of another type."""
    if not _SKELETON.fullmatch(skeleton):
        return None
    types = {field.name: field.type for field in fields}
    members: dict[str, Member] = {}
    for found in _MEMBERS.findall(skeleton):
        name, value = (part.decode() for part in found)
        kind = types.get(name)
        if name in members:
            return None
        if kind is int and not value:
            members[name] = int, None
        elif kind is str and value.startswith('"'):
            members[name] = str, value.strip('"') or None
        elif kind is bool and value in ("true", "false"):
            members[name] = bool, value == "true"
        else:
            return None
    return members if all(field.nullable or field.name in members for field in fields) else None


def _values(members: dict[str, Member], rows: Sequence[bytes]) -> "dict[str, pa.Array] | None":
    pa = arrow()
    import pyarrow.csv as csv

    text = b"\n".join(rows).translate(_BLANK, _NAMES)
    types = {name: pa.int64() if kind is int else pa.string() for name, (kind, _) in members.items()}
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
    for name, (kind, constant) in members.items():
        if kind is not int:
            columns[name] = _words(columns[name], constant)
    return None if any(column is None for column in columns.values()) else columns


def _words(column: "pa.Array", constant: Any) -> "pa.Array | None":
    """The words after the blank that replaced the colon; None if anything else is found."""
    pa = arrow()
    coded = column.dictionary_encode()
    found: list[str] = coded.dictionary.to_pylist()
    if constant is not None:
        return pa.repeat(constant, len(column)) if found == [" "] else None
    if not all(word.startswith(" ") for word in found):
        return None
    words = pa.array([word[1:] for word in found], pa.string())
    return words.take(coded.indices)


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
    """The conversion for values that Arrow does not know; None for simple types."""
    if element_of(field.type) is not None:
        return lambda rows: [msgspec.structs.asdict(row) for row in rows]
    if get_origin(field.type) is dict:
        if get_args(field.type)[1] is str:
            return lambda labels: list(labels.items())
        return lambda value: msgspec.json.encode(value).decode()
    return None


# Raised for rows that are not ours: other types, numbers beyond 64 bits, lone surrogates.
_NOT_OURS = (msgspec.MsgspecError, OverflowError, UnicodeError)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Distinct rows, and for every row which of them it is and the number of its stamp."""

    distinct: "pa.Table"
    #: Of each distinct row: what names its series.
    keys: list[Key]
    places: "array[int]"
    stamps: "array[int]"


class RowCollector:
    """The rows of one table in consecutive samples of one boot."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._fields = own_fields(table)
        # Without keys they stay in the order in which they were taken.
        self._keys = SERIES_KEYS.get(table, ())
        self._decode_all = msgspec.json.Decoder(list[KINDS[table]]).decode  # type: ignore[valid-type]
        self._decode_one = msgspec.json.Decoder(KINDS[table]).decode
        self._is_plain = all(field.type in (int, str, bool) for field in self._fields)
        self.bad = 0
        self._clear()

    def _clear(self) -> None:
        # Numbers every row that it has not met, without a step of Python.
        self._seen: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._places = array("i")
        self._stamps = array("i")
        self.bytes = 0

    def add(self, stamp: int, rows: Iterable[msgspec.Raw]) -> None:
        """Adds the rows of one sample."""
        before = len(self._seen)
        found = list(map(self._seen.__getitem__, map(bytes, rows)))
        self._places.extend(found)
        self._stamps.extend([stamp] * len(found))
        self.bytes += 400 * (len(self._seen) - before) + 8 * len(found)

    def flush(self, boot: int) -> Chunk | None:
        """The rows so far."""
        if not self._places:
            return None
        distinct = self._distinct()
        columns = [distinct[name].to_pylist() for name in self._keys]
        keys = list(zip(repeat(boot, len(distinct)), *columns, strict=True))
        chunk = Chunk(distinct, keys, self._places, self._stamps)
        self._clear()
        return chunk if chunk.places else None

    def _distinct(self) -> "pa.Table":
        plain = plain_columns(self._fields, list(self._seen)) if self._is_plain else None
        if plain is not None:
            return plain
        try:
            return self._table(self._decode_all(b"[" + b",".join(self._seen) + b"]"))
        except _NOT_OURS:
            return self._salvaged()

    def _table(self, rows: Sequence[msgspec.Struct]) -> "pa.Table":
        return arrow().table({field.name: column(field, rows) for field in self._fields})

    def _salvaged(self) -> "pa.Table":
        """Decodes row by row and leaves out invalid ones."""
        good: list[msgspec.Struct] = []
        places: dict[int, int] = {}
        for place, row in enumerate(self._seen):
            try:
                decoded = self._decode_one(row)
                self._table([decoded])
            except _NOT_OURS:
                self.bad += 1
            else:
                places[place] = len(good)
                good.append(decoded)
        kept = [number for number, place in enumerate(self._places) if place in places]
        self._stamps = array("i", [self._stamps[number] for number in kept])
        self._places = array("i", [places[self._places[number]] for number in kept])
        return self._table(good)
