"""One segment while it is being written."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from math import inf
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive.format.frames import LIVE_LEVEL, FrameWriter
from vmsonar_archive.format.journal import SegmentFacts, Tally
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.format.lines import MAX_LINE
from vmsonar_archive.system import files


class SegmentFile:
    """A new file of frames, created exclusively, hashed and counted as it is written."""

    #: A record that was read from a segment can be read again, however long it is.
    longest_line: float = inf

    def __init__(
        self, place: Path, frames: FrameWriter, changed: Callable[[Path], None] = files.fsync_folder
    ) -> None:
        self.file: BinaryIO = files.create(place, changed)
        self.size = 0
        self.tally = Tally()
        self._frames = frames
        self._hash = hashlib.sha256()

    def append(self, line: Iterable[bytes], time: datetime, seq: int) -> int:
        """Writes one record, given in pieces; returns its compressed size. An OSError ends the segment."""
        data = self._frames.add(line)
        if self._frames.line_size > self.longest_line:
            raise OSError(
                errno.EFBIG, f"a record of {self._frames.line_size} bytes is too large to be read back"
            )
        self._write(data)
        self.tally.add(time, seq)
        return len(data)

    def end(self, path: str) -> SegmentFacts:
        """Closes the frame; the caller makes the file durable and journals it under this path."""
        self._write(self._frames.end())
        return self.tally.facts(path, self.size, self._hash.hexdigest())

    def close(self) -> None:
        self.file.close()

    def _write(self, data: bytes) -> None:
        files.write_all(self.file.fileno(), data)
        self.size += len(data)
        self._hash.update(data)


class SegmentWriter(SegmentFile):
    """The segment that takes the records as they come; nobody else ever appends to it."""

    longest_line = MAX_LINE

    def __init__(self, root: Path, name: SegmentName, changed: Callable[[Path], None]) -> None:
        """`changed` hears of each folder with a new name in it, which is not durable yet."""
        place = files.beneath(root, name.path)
        files.make_folders(root, place.parent, changed)
        super().__init__(place, FrameWriter(LIVE_LEVEL), changed)
        self.path = name.path
        self.hour = name.hour

    def cut(self) -> None:
        """Takes off what was written of a record that failed; it may wait for the disk."""
        os.ftruncate(self.file.fileno(), self.size)
