"""Delivers a planned bundle, to a URL or to a file that appears whole or not at all.

Each destination is plain data, so that it can be handed to a worker.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from stat import S_ISREG

import msgspec

from vmsonar_archive.bundle.plan import BundlePlan
from vmsonar_archive.bundle.send import mint, s3
from vmsonar_archive.bundle.send.mint import Mint, Place
from vmsonar_archive.bundle.send.upload import PAUSES, Digests, Upload, Write
from vmsonar_archive.bundle.write import Bundled, Signer, Sink, bundle_size, write_bundle
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.progress import Progress

#: Given the bundle's name, the descriptor to write it to.
OpenOutput = Callable[[str], int]
#: Asked for instead of a name when the file is whole and durable and is to get its name.
FINISH = ""
_MODE = 0o640
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ToDescriptor(msgspec.Struct, frozen=True, tag=True):
    """To an open file or pipe."""

    #: Whether it is a file that gets its name before anything in it counts as taken.
    finish: bool = False


class ToUrl(msgspec.Struct, frozen=True, tag=True):
    """To https:// or s3://, or to wherever an endpoint says."""

    url: str = ""
    mint: Mint | None = None
    pauses: tuple[float, ...] = PAUSES


Delivery = ToDescriptor | ToUrl


def deliver(
    how: Delivery, plan: BundlePlan, signer: Signer | None, ask: OpenOutput, progress: Progress
) -> Bundled:
    """Writes the bundle there and returns the result."""
    progress.expect(sum(item.size for item in plan.items))
    if isinstance(how, ToUrl):
        return _to_url(how, plan, signer, progress)
    descriptor = ask(plan.folder)
    write = partial(files.write_all, descriptor)
    digests = Digests(write) if how.finish else None
    try:
        bundled = write_bundle(plan, digests.send if digests else write, signer, progress.advance)
    except BrokenPipeError:
        raise VmsonarError("the reader of the bundle has gone: what it got is not whole") from None
    if digests is not None:
        os.fsync(descriptor)
        os.close(ask(FINISH))
        bundled.sha256, bundled.confirmed = digests.sha256.hexdigest(), True
    return bundled


def _to_url(how: ToUrl, plan: BundlePlan, signer: Signer | None, progress: Progress) -> Bundled:
    made: list[Bundled] = []

    def write(sink: Sink) -> None:
        # From its beginning each time: what went out before does not count.
        progress.advance(-progress.done)
        made.append(write_bundle(plan, sink, signer, progress.advance))

    if how.url.startswith("s3:"):
        sent = s3.put(how.url, plan.folder, write)
    else:
        sent = upload_to(how, f"{plan.folder}.tar", bundle_size(plan, signer), write).put(how.pauses)
    bundled = made[-1]
    bundled.output, bundled.sha256, bundled.confirmed = sent.where, sent.sha256, sent.confirmed
    if not sent.confirmed:
        detail = "the server took it but gives neither hash nor access to compare with"
        bundled.findings.append(Finding.of(Code.UNCONFIRMED, "", detail, Severity.WARNING))
    return bundled


def upload_to(how: ToUrl, name: str, size: int, write: Write) -> Upload:
    """An upload to the one URL, or to a fresh one for each attempt."""
    minting = how.mint
    if minting is None:
        return Upload(lambda: Place(url=how.url), size, write)
    return Upload(lambda: mint.ask(minting, name, size), size, write, fresh_places=True)


class OutputFile:
    """A file that appears under its name only when commit() says so; until then it is called .partial.

    It replaces a regular file where the caller has looked at that; nothing else is ever replaced.
    """

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self.path = path
        self._replaces = replaces
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
            if self._replaces:
                self._rename()
            else:
                os.link(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileExistsError:
            self.abandon()
            raise self._exists() from None
        except OSError:
            # A file system without hard links.
            self._rename()
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

    def _rename(self) -> None:
        self._refuse_existing()
        os.rename(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _refuse_existing(self) -> None:
        with suppress(FileNotFoundError):
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            if not (self._replaces and S_ISREG(status.st_mode)):
                raise self._exists()

    def _exists(self) -> VmsonarError:
        return VmsonarError(f"{self.path} exists: nothing is overwritten, remove it or choose another name")
