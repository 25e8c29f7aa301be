"""The lines of a segment as they come, while it may still be written (zstd frames, RFC 8878)."""

import os
from typing import BinaryIO

import zstandard
from vmsonar_archive.lines import MAX_LINE, BadLine, checked

# So little that what comes out of it stays small, whatever the size of the segment.
_CHUNK = 16 * 1024
_MAX_WINDOW = 8 * 1024 * 1024


class Damaged(ValueError):
    """The bytes are not what was written; another way of reading may get at what follows."""


class LineStream:
    """Reads on where it stopped; remembers which file it reads, in case another takes its place."""

    def __init__(self, path: str, place: str, file: BinaryIO) -> None:
        """`place` is where the file lies, which may be beside the path for which it is meant."""
        self.path = path
        self.place = place
        self._file = file
        status = os.fstat(file.fileno())
        self._identity = (status.st_dev, status.st_ino)
        self.size = status.st_size
        self._machine: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""

    def reads(self, path: str, status: os.stat_result) -> bool:
        """Whether this is the file that lies at the path now."""
        return path == self.path and (status.st_dev, status.st_ino) == self._identity

    def close(self) -> None:
        self._file.close()

    def next_lines(self) -> list[bytes] | None:
        """The lines of the next piece, which may be none; None at the end of what is written so far."""
        data = self._file.read(_CHUNK)
        if not data:
            return None
        text = self._decompress(data)
        *whole, self._rest = (self._rest + text).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise Damaged("a line is too long")
        try:
            return [checked(line) for line in whole]
        except BadLine as error:
            raise Damaged(str(error)) from None

    def _decompress(self, data: bytes) -> bytes:
        parts = []
        try:
            while data:
                if self._machine is None:
                    self._machine = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
                parts.append(self._machine.decompress(data))
                data = b""
                if self._machine.eof:
                    data = self._machine.unused_data
                    self._machine = None
        except zstandard.ZstdError as error:
            raise Damaged(str(error)) from None
        return b"".join(parts)
