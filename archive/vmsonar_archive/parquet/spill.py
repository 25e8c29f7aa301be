"""Rows of one table on disk for a while, in a file that has no name, so that nothing is left behind."""

import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vmsonar_archive.parquet.schema import arrow

if TYPE_CHECKING:
    import pyarrow as pa

#: A batch is read as a whole, and the last one of each run is kept for the next who asks.
SPILL_ROWS = 2048


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
