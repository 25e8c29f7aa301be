"""Files of proc(5) that are read again and again: one descriptor each, kept open and read from its start."""

import os
from pathlib import Path

from vmsonar.collectors.base import Tick

_CHUNK = 1 << 16
# seq_file(9) answers a page at a time: less than half a page is all there is, as no line is longer.
_SURELY_ALL = 2048


class KeptFile:
    """A file whose descriptor is opened on first use and kept."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def read(self) -> bytes:
        """The whole content; raises OSError as open(2) and pread(2) do."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.pread(self._descriptor, _CHUNK, 0)
            return content if len(content) < _SURELY_ALL else self._read_on(content)
        except OSError:
            self.close()
            raise

    def _read_on(self, content: bytes) -> bytes:
        parts, size = [content], len(content)
        while part := os.pread(self._descriptor, _CHUNK, size):
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SharedFile:
    """A file that several collectors need at the same tick: read once for all of them."""

    __slots__ = ("_content", "_file", "_tick")

    def __init__(self, path: Path) -> None:
        self._file = KeptFile(path)
        self._tick = -1
        self._content = b""

    @property
    def path(self) -> Path:
        return self._file.path

    def read(self, tick: Tick) -> bytes:
        """The content at this tick."""
        if tick.boottime != self._tick:
            self._content = self._file.read()
            self._tick = tick.boottime
        return self._content

    def close(self) -> None:
        self._file.close()


class RowCache:
    """Encoded rows by the line they were made from: an unchanged line is not parsed or encoded again."""

    __slots__ = ("_last", "_next")

    def __init__(self) -> None:
        self._last: dict[bytes, bytes] = {}
        self._next: dict[bytes, bytes] = {}

    def get(self, line: bytes) -> bytes | None:
        encoded = self._last.get(line)
        if encoded is not None:
            self._next[line] = encoded
        return encoded

    def put(self, line: bytes, encoded: bytes) -> bytes:
        self._next[line] = encoded
        return encoded

    def turn(self) -> None:
        """The tick is over: what was not asked for is forgotten."""
        self._last, self._next = self._next, {}


def read_text(path: Path) -> str | None:
    """A small file's text without the white space around it, or None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
