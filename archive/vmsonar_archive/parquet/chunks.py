"""Collects the rows of one table from raw JSON; a row whose bytes were met before is decoded only once."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from vmsonar_archive.parquet.columns import column
from vmsonar_archive.parquet.keys import SERIES_KEYS
from vmsonar_archive.parquet.schema import JOINED, arrow, own_fields
from vmsonar_archive.records import KINDS

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows sorted by series, and how many each series has, in that order."""

    table: "pa.Table"
    runs: list[tuple[Key, int]]


class Collector:
    """The rows of one table in consecutive samples of one boot."""

    def __init__(self, table: str, series: Callable[[str, int, int], int | None]) -> None:
        self.table = table
        self._series = series
        self._fields = own_fields(table)
        self._keys = SERIES_KEYS.get(table, ())
        self._decode_all = msgspec.json.Decoder(list[KINDS[table]]).decode  # type: ignore[valid-type]
        self._decode_one = msgspec.json.Decoder(KINDS[table]).decode
        self.bad = 0
        self._clear()

    def _clear(self) -> None:
        # Numbers every row that it has not met, without a step of Python.
        self._seen: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._index = array("q")
        self._stamps = array("i")
        self.bytes = 0

    def add(self, stamp: int, rows: Iterable[msgspec.Raw]) -> None:
        """Takes in the rows of one sample."""
        before = len(self._seen)
        found = list(map(self._seen.__getitem__, map(bytes, rows)))
        self._index.extend(found)
        self._stamps.extend([stamp] * len(found))
        self.bytes += 400 * (len(self._seen) - before) + 12 * len(found)

    def flush(self, boot: int) -> tuple[Chunk | None, Sequence[msgspec.Struct]]:
        """The rows so far as a sorted chunk, and the distinct rows among them."""
        if not self._index:
            return None, ()
        rows = self._decode()
        chunk = self._chunk(rows, boot)
        self._clear()
        return chunk, rows

    def _decode(self) -> Sequence[msgspec.Struct]:
        try:
            return self._decode_all(b"[" + b",".join(self._seen) + b"]")
        except msgspec.MsgspecError:
            return self._salvage()

    def _salvage(self) -> Sequence[msgspec.Struct]:
        """Leaves out the rows that are not what they should be."""
        good: list[msgspec.Struct] = []
        places: dict[int, int] = {}
        for place, row in enumerate(self._seen):
            try:
                good.append(self._decode_one(row))
                places[place] = len(good) - 1
            except msgspec.MsgspecError:
                self.bad += 1
        kept = [number for number, place in enumerate(self._index) if place in places]
        self._stamps = array("i", [self._stamps[number] for number in kept])
        self._index = array("q", [places[self._index[number]] for number in kept])
        return good

    def _chunk(self, rows: Sequence[msgspec.Struct], boot: int) -> Chunk:
        pa = arrow()
        import pyarrow.compute as pc

        keys = self._row_keys(rows)
        distinct = sorted(set(keys))
        ranks = {key: rank for rank, key in enumerate(distinct)}
        index, stamps = _wrap(self._index, pa.int64()), _wrap(self._stamps, pa.int32())
        rank = pa.array(list(map(ranks.__getitem__, keys)), pa.int32()).take(index)
        if len(distinct) > 1:
            order = pc.sort_indices(
                pa.table([rank, stamps], names=["rank", "stamp"]),
                sort_keys=[("rank", "ascending"), ("stamp", "ascending")],
            )
            index, stamps, rank = index.take(order), stamps.take(order), rank.take(order)
        codes, counts = (part.to_pylist() for part in rank.value_counts().flatten())
        columns = {"stamp": stamps}
        if self.table in JOINED:
            series = [self._series(self.table, *key) for key in distinct]
            columns["series"] = pa.array(series, pa.int32()).take(rank)
        columns |= {field.name: column(field, rows).take(index) for field in self._fields}
        runs = [((boot, *distinct[code]), count) for code, count in zip(codes, counts, strict=True)]
        return Chunk(pa.table(columns), runs)

    def _row_keys(self, rows: Sequence[msgspec.Struct]) -> list[Key]:
        if not self._keys:
            return [()] * len(rows)
        return list(zip(*(map(attrgetter(name), rows) for name in self._keys), strict=True))


def _wrap(values: "array[int]", kind: "pa.DataType") -> "pa.Array":
    pa = arrow()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(bytes(values))])
