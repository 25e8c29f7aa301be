"""Sorted chunks of one table, spilled to disk when they grow, and merged into partitions of whole series."""

import tempfile
from array import array
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vmsonar_archive.parquet.chunks import Chunk, Key
from vmsonar_archive.parquet.schema import arrow

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_ROWS = 36_000
# A partition takes a few hundred rows of each run: larger batches would be read mostly in vain.
_SPILL_ROWS = 256


class Run:
    """One sorted chunk, in memory or in a nameless file."""

    def __init__(self, chunk: Chunk) -> None:
        counts = [count for _, count in chunk.runs]
        ends = list(accumulate(counts))
        self.places: dict[Key, tuple[int, int]] = {
            key: (end - count, count) for (key, count), end in zip(chunk.runs, ends, strict=True)
        }
        self._table: pa.Table | None = chunk.table
        self._file: IO[bytes] | None = None
        self._reader: Any = None

    @property
    def in_memory(self) -> int:
        return 0 if self._table is None else self._table.nbytes

    def spill(self, folder: Path) -> None:
        """Moves the rows to a file that has no name, so that nothing is left behind whatever happens."""
        if self._table is None:
            return
        pa = arrow()
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with the run
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_file(self._file, self._table.schema, options=options) as sink:
            sink.write_table(self._table, max_chunksize=_SPILL_ROWS)
        self._table = None
        self._file.flush()
        self._reader = pa.ipc.open_file(pa.OSFile(f"/proc/self/fd/{self._file.fileno()}", "r"))

    def rows(self, start: int, end: int) -> "pa.Table":
        """The rows from start to end."""
        if self._table is not None:
            return self._table.slice(start, end - start)
        first, last = start // _SPILL_ROWS, (end - 1) // _SPILL_ROWS
        batches = [self._reader.get_batch(number) for number in range(first, last + 1)]
        table = arrow().Table.from_batches(batches)
        return table.slice(start - first * _SPILL_ROWS, end - start)

    def close(self) -> None:
        self._table = None
        if self._file is not None:
            self._file.close()


class Runs:
    """All chunks of one table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, chunk: Chunk) -> None:
        self._runs.append(Run(chunk))

    @property
    def in_memory(self) -> int:
        return sum(run.in_memory for run in self._runs)

    def spill(self) -> None:
        for run in self._runs:
            run.spill(self._folder)

    def partitions(self) -> Iterator[tuple[list[tuple[Key, int]], "pa.Table"]]:
        """Whole series, in order, in tables of moderate size, each with the number of rows per series."""
        totals: dict[Key, int] = {}
        for run in self._runs:
            for key, (_, count) in run.places.items():
                totals[key] = totals.get(key, 0) + count
        group: list[Key] = []
        size = 0
        for key in sorted(totals):
            if group and size + totals[key] > PARTITION_ROWS:
                yield [(one, totals[one]) for one in group], self._merge(group)
                group, size = [], 0
            group.append(key)
            size += totals[key]
        if group:
            yield [(one, totals[one]) for one in group], self._merge(group)

    def _merge(self, group: list[Key]) -> "pa.Table":
        """The rows of some neighbouring series, series by series, each in the order of the runs."""
        pa = arrow()
        blocks: list[Any] = []
        pieces: dict[Key, list[range]] = {key: [] for key in group}
        size = 0
        for run in self._runs:
            present = [key for key in group if key in run.places]
            if not present:
                continue
            first = run.places[present[0]][0]
            last, count = run.places[present[-1]]
            blocks.append(run.rows(first, last + count))
            for key in present:
                start, count = run.places[key]
                pieces[key].append(range(size + start - first, size + start - first + count))
            size += len(blocks[-1])
        together = pa.concat_tables(blocks).combine_chunks()
        if len(blocks) == 1:
            return together
        blocks.clear()
        order = array("q")
        for piece in chain.from_iterable(pieces.values()):
            order.extend(piece)
        return together.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))

    def close(self) -> None:
        for run in self._runs:
            run.close()
