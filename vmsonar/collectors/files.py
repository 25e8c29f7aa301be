"""Files of proc(5) that are read again and again: one descriptor each, kept open and read from its start."""

import os
from pathlib import Path

from vmsonar.collectors.base import Tick

_FIRST_GUESS = 1 << 14


class KeptFile:
    """A file whose descriptor is opened on first use and kept."""

    __slots__ = ("_descriptor", "_guess", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._guess = _FIRST_GUESS

    def read(self) -> bytes:
        """The whole content; raises OSError as open(2) and pread(2) do."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        content = os.pread(self._descriptor, self._guess, 0)
        if len(content) < self._guess:
            tail = b"" if len(content) < self._guess // 2 else os.pread(self._descriptor, 1, len(content))
            if not tail:
                return content
        # procfs may end a read early, at a page of its own; a file may also have grown
        self._guess *= 2
        return self._read_on(content)

    def _read_on(self, content: bytes) -> bytes:
        parts = [content]
        offset = len(content)
        while part := os.pread(self._descriptor, self._guess, offset):
            parts.append(part)
            offset += len(part)
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

    def read(self, tick: Tick) -> bytes:
        """The content at this tick."""
        if tick.boottime != self._tick:
            self._content = self._file.read()
            self._tick = tick.boottime
        return self._content

    def close(self) -> None:
        self._file.close()


def read_text(path: Path) -> str | None:
    """A small file's text without the white space around it, or None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
