"""Collects the rows of one table from raw JSON; a row whose bytes were met before is decoded only once."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

import msgspec

from vmsonar_archive.parquet.columns import column
from vmsonar_archive.parquet.keys import SERIES_KEYS
from vmsonar_archive.parquet.plain import plain_columns
from vmsonar_archive.parquet.schema import arrow, own_fields
from vmsonar_archive.records import KINDS

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Any, ...]

# What a row can be that is not one of ours: of other types, with numbers beyond 64 bits, with half a character.
_NOT_OURS = (msgspec.MsgspecError, OverflowError, UnicodeError)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Distinct rows, and for every row that was taken which of them it is and the number of its stamp."""

    distinct: "pa.Table"
    #: Of each distinct row: what names its series.
    keys: list[Key]
    places: "array[int]"
    stamps: "array[int]"


class Collector:
    """The rows of one table in consecutive samples of one boot."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._fields = own_fields(table)
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
        """Takes in the rows of one sample."""
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
        chunk = Chunk(distinct, self._row_keys(distinct, boot), self._places, self._stamps)
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
        """Leaves out the rows that are not what they should be."""
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

    def _row_keys(self, rows: "pa.Table", boot: int) -> list[Key]:
        columns = [rows[name].to_pylist() for name in self._keys]
        return list(zip(repeat(boot, len(rows)), *columns, strict=True))
