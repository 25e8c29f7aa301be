"""One segment while it is being written."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive.format.frames import LIVE_LEVEL, FrameWriter
from vmsonar_archive.format.journal import SegmentFacts, Tally
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.format.lines import MAX_LINE
from vmsonar_archive.system import files


class SegmentWriter:
    """A new segment, created exclusively; nobody else ever appends to it."""

    def __init__(self, root: Path, name: SegmentName, changed: Callable[[Path], None]) -> None:
        """`changed` hears of each folder with a new name in it, which is not durable yet."""
        path = files.beneath(root, name.path)
        files.make_folders(root, path.parent, changed)
        self.name = name
        self.hour = name.hour
        self.file: BinaryIO = files.create(path, changed)
        self.size = 0
        self._frames = FrameWriter(LIVE_LEVEL)
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

    def end(self) -> SegmentFacts:
        """Closes the frame; the caller makes it durable and journals it."""
        self._write(self._frames.end())
        return self._tally.facts(self.name.path, self.size, self._hash.hexdigest())

    def cut(self) -> None:
        """Takes off what was written of a record that failed; it may wait for the disk."""
        os.ftruncate(self.file.fileno(), self.size)

    def close(self) -> None:
        self.file.close()

    def _write(self, data: bytes) -> int:
        files.write_all(self.file.fileno(), data)
        self.size += len(data)
        self._hash.update(data)
        return len(data)
