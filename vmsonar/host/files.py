"""Files that are read again and again: those of proc(5) by a descriptor kept open, others when they change."""

import os
from pathlib import Path

_CHUNK = 1 << 16
# seq_file(9) answers a page at a time: less than half a page is all there is, as no line is longer.
_SURELY_ALL = 2048


class KeptFile:
    """A file whose descriptor is opened on first use and kept."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def read(self, surely_all: int = _SURELY_ALL) -> bytes:
        """The whole content; raises OSError as open(2) and pread(2) do. With 0 also where records are long."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.pread(self._descriptor, _CHUNK, 0)
            return content if len(content) < surely_all else self._read_on(content)
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


def read_text(path: Path) -> str | None:
    """A small file's text without the white space around it, or None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


#: No sum of such counters is more than int64 holds.
MOST_COUNTED = 1 << 55


def counter(text: bytes) -> int:
    """What a kernel has counted; raises ValueError for what is no such number."""
    value = int(text)
    if not 0 <= value < MOST_COUNTED:
        raise ValueError(f"no counter: {value}")
    return value


def listed(folder: Path, most: int = 256) -> list[Path]:
    """The first entries of a folder in the order of their names; none where it cannot be read."""
    try:
        return sorted(folder.iterdir())[:most]
    except OSError:
        return []


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
