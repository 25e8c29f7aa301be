"""One segment while it is being written, and what is known of it when it is done."""

import errno
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive import files
from vmsonar_archive.frames import LIVE_LEVEL, FrameWriter
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.lines import MAX_LINE


@dataclass(frozen=True, slots=True)
class Sealed:
    """What the journal says of a closed segment."""

    path: str
    bytes: int
    sha256: str
    records: int
    first: datetime | None
    last: datetime | None
    first_seq: int | None
    last_seq: int | None
    damaged: bool = False


class Tally:
    """Counts the records that go into a file and remembers the lowest and highest times and numbers.

    Not those of the first and the last record: the clock can be set back in between.
    """

    def __init__(self) -> None:
        self.records = 0
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.first_seq: int | None = None
        self.last_seq: int | None = None

    def add(self, time: datetime, seq: int) -> None:
        self.records += 1
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)
        self.first_seq = seq if self.first_seq is None else min(self.first_seq, seq)
        self.last_seq = seq if self.last_seq is None else max(self.last_seq, seq)

    def sealed(self, path: str, size: int, sha256: str, damaged: bool = False) -> Sealed:
        return Sealed(
            path, size, sha256, self.records, self.first, self.last, self.first_seq, self.last_seq, damaged
        )


class SegmentWriter:
    """A new segment, created exclusively; nobody else ever appends to it."""

    def __init__(self, root: Path, name: SegmentName, level: int = LIVE_LEVEL) -> None:
        path = root / name.path
        files.make_folders(root, path.parent)
        self.name = name
        self.hour = name.hour
        self.file: BinaryIO = files.create(path)
        self.size = 0
        self._frames = FrameWriter(level)
        self._hash = hashlib.sha256()
        self._tally = Tally()

    def append(self, line: Iterable[bytes], time: datetime, seq: int) -> int:
        """Writes one record, given in pieces; returns its compressed size. An OSError ends the segment."""
        data = self._frames.add(line)
        if self._frames.line_size > MAX_LINE:
            raise OSError(
                errno.EFBIG, f"a record of {self._frames.line_size} bytes is too large to be read back"
            )
        written = self._write(data)
        self._tally.add(time, seq)
        return written

    def end(self) -> Sealed:
        """Closes the frame; the caller makes it durable and journals it."""
        self._write(self._frames.end())
        return self._tally.sealed(self.name.path, self.size, self._hash.hexdigest())

    def close(self) -> None:
        self.file.close()

    def _write(self, data: bytes) -> int:
        try:
            files.write_all(self.file.fileno(), data)
        except OSError:
            # What was written of it is no use to anybody.
            os.ftruncate(self.file.fileno(), self.size)
            raise
        self.size += len(data)
        self._hash.update(data)
        return len(data)
