"""Where a bundle goes on this machine: a new file, whole or not at all."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from vmsonar_archive.system.errors import VmsonarError

_MODE = 0o640
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class OutputFile:
    """A file that appears under its name only when commit() says so; until then it is called .partial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = path.name
        self._partial = f"{path.name}.partial"
        try:
            self._folder = os.open(path.parent, _FOLDER)
        except OSError as error:
            raise VmsonarError(f"cannot write to {path.parent}: {error.strerror}") from None
        try:
            self._refuse_existing()
            self.descriptor = self._create()
        except BaseException:
            os.close(self._folder)
            raise

    def commit(self) -> None:
        """Makes it durable and gives it its name, which nobody may have taken meanwhile."""
        os.fsync(self.descriptor)
        try:
            os.link(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileExistsError:
            self.abandon()
            raise self._exists() from None
        except OSError:
            # A file system without hard links.
            self._refuse_existing()
            os.rename(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        with suppress(FileNotFoundError):
            os.unlink(self._partial, dir_fd=self._folder)
        os.fsync(self._folder)
        self._close()

    def abandon(self) -> None:
        """Leaves nothing behind; after commit() it does nothing."""
        if self.descriptor >= 0:
            with suppress(OSError):
                os.unlink(self._partial, dir_fd=self._folder)
            self._close()

    def _close(self) -> None:
        os.close(self.descriptor)
        os.close(self._folder)
        self.descriptor = -1

    def _create(self) -> int:
        self._remove_leftover()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._partial, flags, _MODE, dir_fd=self._folder)
        except FileExistsError:
            raise VmsonarError(f"{self.path}.partial exists and is not ours: remove it first") from None
        except OSError as error:
            raise VmsonarError(f"cannot create {self.path}: {error.strerror}") from None
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def _remove_leftover(self) -> None:
        """Removes what an interrupted run of ours left; anything else under that name stays and is in the way."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._partial, flags, dir_fd=self._folder)
        except OSError:
            return
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(self._partial, dir_fd=self._folder)
        except BlockingIOError:
            raise VmsonarError(f"{self.path} is being written by another run: wait for it") from None
        finally:
            os.close(descriptor)

    def _refuse_existing(self) -> None:
        with suppress(FileNotFoundError):
            os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            raise self._exists()

    def _exists(self) -> VmsonarError:
        return VmsonarError(f"{self.path} exists: nothing is overwritten, remove it or choose another name")
