"""External sort of one table: chunks are sorted, spilled to unnamed files and merged into partitions by series."""

import tempfile
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vmsonar_archive.parquet.decode import Chunk
from vmsonar_archive.parquet.schema import Key, arrow

if TYPE_CHECKING:
    import pyarrow as pa


#: Rows per spilled batch; a batch is read as a whole, and the last one of each run stays in memory.
SPILL_ROWS = 2048
#: Rows per partition, unless a single series has more.
PARTITION_ROWS = 36_000


class Spill:
    """Batches that are written one after the other, then read in any order."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with the spill
        self._writer: Any = None
        self._reader: Any = None
        #: By the batch at which a run begins: the one that was read last.
        self._last: dict[int, tuple[int, Any]] = {}
        self.batches = 0

    def write(self, table: "pa.Table") -> None:
        """Adds one batch."""
        pa = arrow()
        if self._writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            self._writer = pa.ipc.new_file(self._file, table.schema, options=options)
        self._writer.write_batch(table.combine_chunks().to_batches()[0])
        self.batches += 1

    def rows(self, run: int, begin: int, end: int) -> "pa.Table":
        """The rows from begin to end, counted from the batch at which a run begins."""
        first, last = begin // SPILL_ROWS, (end - 1) // SPILL_ROWS
        batches = [self._batch(run, number) for number in range(first, last + 1)]
        return arrow().Table.from_batches(batches).slice(begin - first * SPILL_ROWS, end - begin)

    def _batch(self, run: int, number: int) -> Any:
        known = self._last.get(run)
        if known is None or known[0] != number:
            known = self._last[run] = number, self._open().get_batch(run + number)
        return known[1]

    def _open(self) -> Any:
        if self._reader is None:
            self._writer.close()
            self._file.flush()
            self._reader = arrow().ipc.open_file(arrow().OSFile(f"/proc/self/fd/{self._file.fileno()}", "r"))
        return self._reader

    def close(self) -> None:
        self._last.clear()
        self._reader = self._writer = None
        self._file.close()


@dataclass(frozen=True)
class Run:
    """Consecutive rows sorted by series, in memory or in a spill."""

    keys: list[Key]
    #: How many rows each series has.
    counts: list[int]
    #: The rows from one place to another.
    rows: "Callable[[int, int], pa.Table]"

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *accumulate(self.counts)]

    def between(self, first: Key, last: Key) -> "pa.Table | None":
        """The rows of all series from the first to the last."""
        begin = self._ends[bisect_left(self.keys, first)]
        end = self._ends[bisect_right(self.keys, last)]
        return self.rows(begin, end) if begin < end else None


class Runs:
    """All rows of one table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chunks: list[Chunk] = []
        self._runs: list[Run] = []
        self._spill: Spill | None = None
        #: Numbers the series in the order in which they come.
        self._codes: defaultdict[Key, int] = defaultdict(count().__next__)
        self.in_memory = 0

    def __bool__(self) -> bool:
        return bool(self._runs or self._chunks)

    def add(self, chunk: Chunk) -> None:
        codes = array("i", map(self._codes.__getitem__, chunk.keys))
        table = chunk.distinct.append_column("series", _wrap(codes))
        self._chunks.append(Chunk(table, [], chunk.places, chunk.stamps))
        self.in_memory += table.nbytes + 8 * len(chunk.places)

    def spill(self) -> None:
        """Moves the rows in memory to disk."""
        if not self._chunks:
            return
        run = self._sorted()
        self._spill = self._spill or Spill(self._folder)
        spilled = partial(self._spill.rows, self._spill.batches)
        total = sum(run.counts)
        for begin in range(0, total, SPILL_ROWS):
            self._spill.write(run.rows(begin, min(begin + SPILL_ROWS, total)))
        self._runs.append(replace(run, rows=spilled))

    def _sorted(self) -> Run:
        """The rows in memory by series, each in the order of recording."""
        pa = arrow()
        import pyarrow.compute as pc

        distinct = pa.concat_tables([chunk.distinct for chunk in self._chunks]).combine_chunks()
        places, stamps = _joined(self._chunks)
        self._chunks, self.in_memory = [], 0
        codes = distinct["series"].combine_chunks()
        present = set(codes.unique().to_pylist())
        keys = sorted(key for key, code in self._codes.items() if code in present)
        ranks = self._ranks(keys).take(codes).take(places)
        order = pc.array_sort_indices(ranks)
        counts = ranks.take(order).value_counts().field("counts").to_pylist()
        places, stamps = places.take(order), stamps.take(order)

        def rows(begin: int, end: int) -> Any:
            part = distinct.take(places.slice(begin, end - begin))
            return part.append_column("stamp", stamps.slice(begin, end - begin))

        return Run(keys, counts, rows)

    def _ranks(self, keys: Sequence[Key]) -> "pa.Array":
        """The place in a list of keys, by the number of the series."""
        ranks = array("i", bytes(4 * len(self._codes)))
        for rank, key in enumerate(keys):
            ranks[self._codes[key]] = rank
        return _wrap(ranks)

    def partitions(self) -> Iterator[tuple[list[tuple[Key, int]], "pa.Table"]]:
        """Whole series, in order, in tables of moderate size, each with the number of rows per series."""
        if self._chunks:
            self._runs.append(self._sorted())
        totals: Counter[Key] = Counter()
        for run in self._runs:
            totals.update(dict(zip(run.keys, run.counts, strict=True)))
        keys = sorted(totals)
        ranks = self._ranks(keys)
        groups: list[list[Key]] = []
        size = 0
        for key in keys:
            size += totals[key]
            if not groups or size > PARTITION_ROWS:
                groups.append([])
                size = totals[key]
            groups[-1].append(key)
        for group in groups:
            yield [(key, totals[key]) for key in group], self._merge(group, ranks)

    def _merge(self, group: list[Key], ranks: "pa.Array") -> "pa.Table":
        """The rows of some neighbouring series, series by series, each in the order of the runs."""
        import pyarrow.compute as pc

        found = [run.between(group[0], group[-1]) for run in self._runs]
        together = arrow().concat_tables([rows for rows in found if rows is not None]).combine_chunks()
        if len(self._runs) == 1:
            return together.drop_columns("series")
        order = pc.array_sort_indices(ranks.take(together["series"].combine_chunks()))
        return together.drop_columns("series").take(order)

    def close(self) -> None:
        self._chunks, self._runs = [], []
        if self._spill is not None:
            self._spill.close()


def _joined(chunks: Sequence[Chunk]) -> "tuple[pa.Array, pa.Array]":
    """Which distinct row of them all, and which stamp, for every row of some chunks."""
    pa = arrow()
    import pyarrow.compute as pc

    begins = accumulate((len(chunk.distinct) for chunk in chunks), initial=0)
    places = [
        pc.add(_wrap(chunk.places), pa.scalar(begin, pa.int32()))
        for begin, chunk in zip(begins, chunks, strict=False)
    ]
    return pa.concat_arrays(places), pa.concat_arrays([_wrap(chunk.stamps) for chunk in chunks])


def _wrap(values: "array[int]") -> "pa.Array":
    """An Arrow array over the same memory."""
    pa = arrow()
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
