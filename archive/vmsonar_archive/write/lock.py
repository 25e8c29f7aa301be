"""One writer per archive, by flock(2): the kernel lets go when the holder dies, however it dies."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import Locked, VmsonarError

# Enough for a good hundred journal lines: a full disk must not keep us from making room.
_RESERVE = 64 * 1024


class WriterLock:
    """Holds writer.lock from construction to close(); its padding is a reserve for a full disk."""

    def __init__(self, root: Path) -> None:
        path = root / layout.LOCK_FILE
        self._descriptor = files.open_own(path, os.O_RDWR)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise Locked(
                f"{root} is being written by process {holder}: stop it, or choose another archive"
            ) from None
        if not path.exists() or path.stat().st_ino != os.fstat(self._descriptor).st_ino:
            os.close(self._descriptor)
            raise Locked(f"{root} was taken away while its lock was waited for: try again")
        try:
            os.pwrite(self._descriptor, b"%-31d\n" % os.getpid(), 0)
        except OSError:
            self.close()
            raise
        self.set_aside_reserve()

    def set_aside_reserve(self) -> None:
        """Takes up space that can be given back when nothing else is left; does without on a full disk."""
        with suppress(OSError):
            if os.fstat(self._descriptor).st_size < _RESERVE:
                os.pwrite(self._descriptor, b" " * (_RESERVE - 32), 32)

    def use_reserve(self) -> None:
        """Gives the reserve back to the file system."""
        os.ftruncate(self._descriptor, 32)

    def close(self) -> None:
        os.close(self._descriptor)


def holder(root: Path) -> int | None:
    """Process id of the writer, None when nobody writes."""
    try:
        file = files.open_inside(root, layout.LOCK_FILE)
    except (OSError, VmsonarError):
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(file.fileno(), 32, 0).strip()
            return int(text) if text.isdigit() else 0
    return None


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the file for us until it is closed; None while somebody else does."""
    descriptor = files.open_own(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
