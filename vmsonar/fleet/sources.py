"""Folders and buckets where machines leave bundles: what is new in them goes through the intake, file by file."""

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EDQUOT, EMFILE, ENFILE, ENOSPC, EROFS
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

import msgspec
from vmsonar_archive.format.bag import END
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, UsageError, VmsonarError
from vmsonar_inspect.tables.stores import ObjectStore

from vmsonar.fleet.intake import Intake, Receipt, Refused

#: A file that is still being copied here ends before its end; after so long without a change it counts as cut.
_SETTLED_SECONDS = 600.0
_MAX_SECONDS = 20.0
# Somebody else files a bundle of a month in the same archive: others are taken meanwhile.
_LOCK_SECONDS = 5.0
#: When a file that could not be taken is tried again.
_AGAIN_SECONDS = 60.0
#: The next file would fare no better.
_OUR_FAULTS = (ENOSPC, EDQUOT, EROFS, EMFILE, ENFILE)
#: No bundle is that large; what is would fill the disk before it could be looked at.
_MAX_BYTES = 16 * 2**30

#: Size and time of the last change: another version of a file differs in one of them.
Version = tuple[int, int]


class Source(ABC):
    """A place where bundles arrive. `round` takes what is there; one that fails is left alone for a while.

    So is a file that cannot be taken; the others go on.
    """

    place: str
    #: What receipts and holdings call it.
    origin: str

    def __init__(self, intake: Intake, *, keep: bool) -> None:
        self._intake = intake
        self._keep = keep
        self._taken: dict[str, Version] = {}
        #: How many were not taken when it was looked at last: not complete yet, or no plain files.
        self.waiting = 0
        #: Files that could not be taken, when they are tried again, and why.
        self._later: dict[str, tuple[float, str]] = {}
        #: Whether somebody delivered what was not taken yet.
        self.is_behind = False
        #: What is left where it is though it was refused; another collector, or this one started anew, tries again.
        self._stays: set[str] = set()
        self._note = intake.fleet.state / f"taken-{sha256(self.place.encode()).hexdigest()[:16]}.seen"
        if keep:
            with suppress(OSError, *NOT_JSON):
                self._taken = msgspec.json.decode(self._note.read_bytes(), type=dict[str, Version])

    @abstractmethod
    def listed(self) -> dict[str, Version]:
        """The bundles that are complete, by name."""

    @abstractmethod
    def take(self, name: str) -> Receipt:
        """Brings one through the intake and, unless it is to stay, takes it away."""

    def round(self, stopping: Callable[[], bool] = lambda: False) -> Iterator[Receipt]:
        """Takes what is new, in no particular order, so that several collectors seldom meet at one file."""
        found = self.listed()
        self._taken = {name: version for name, version in self._taken.items() if found.get(name) == version}
        began = time.monotonic()
        self._later = {name: told for name, told in self._later.items() if name in found}
        new = [
            name for name in found if name not in self._taken and self._later.get(name, (0.0,))[0] <= began
        ]
        random.shuffle(new)
        self.is_behind = False
        for name in new:
            if stopping() or time.monotonic() - began > _MAX_SECONDS:
                self.is_behind = True
                break
            if (receipt := self._try(name)) is not None:
                yield receipt
                self._taken[name] = found[name]
        if self._keep and new:
            with files.AtomicFile(self._note, durable=False) as file:
                noted = {name: self._taken[name] for name in self._taken if name not in self._stays}
                file.write(msgspec.json.encode(noted))
        elif not self._keep:
            self._taken = {name: version for name, version in self._taken.items() if name in self._stays}

    @property
    def trouble(self) -> str | None:
        """What could not be taken, in a sentence; None where everything could."""
        if not self._later:
            return None
        name, (_, why) = min(self._later.items())
        more = f", and {len(self._later) - 1} more" if len(self._later) > 1 else ""
        return f"{name} cannot be taken: {why}{more}"

    def _put_off(self, name: str, error: Exception) -> None:
        self._later[name] = time.monotonic() + _AGAIN_SECONDS, str(error)

    def _try(self, name: str) -> Receipt | None:
        """What became of a file; None for one that is gone or has to wait. Raises OSError where our own disk fails."""
        is_known = self._later.pop(name, None) is not None
        try:
            receipt = self.take(name)
        except (OSError, VmsonarError) as error:
            if isinstance(error.__cause__ or error, FileNotFoundError):  # another collector was faster
                return None
            if isinstance(error, OSError) and error.errno in _OUR_FAULTS:
                raise
            self.is_behind |= not is_known
            self._put_off(name, error)
            return None
        if receipt.stays:
            self._stays.add(name)
        return receipt


class FolderSource(Source):
    """A folder into which machines copy; what ends in .partial or begins with a dot is not complete."""

    def __init__(self, folder: Path, intake: Intake, *, keep: bool) -> None:
        root = intake.fleet.root.resolve()
        if folder.resolve() == root or root in folder.resolve().parents:
            raise UsageError(f"{folder} lies in the fleet: bundles arrive in a folder outside it")
        self._folder = folder
        self.place = str(folder)
        self.origin = f"folder {folder}"
        super().__init__(intake, keep=keep)

    def listed(self) -> dict[str, Version]:
        if not self._folder.is_dir():
            raise VmsonarError(f"{self._folder} is not a folder: make it, or name another")
        found: dict[str, Version] = {}
        self.waiting = 0
        for above, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in (*names, *folders):
                path = Path(above, name)
                if name.endswith(".tar") and not name.startswith("."):
                    version = _version(path)
                    self.waiting += version is None
                    if version is not None:
                        found[str(path.relative_to(self._folder))] = version
        return found

    def take(self, name: str) -> Receipt:
        return self._intake.take(self._folder / name, self.origin, keep=self._keep, patience=_LOCK_SECONDS)


class BucketSource(Source):
    """A bucket, or a part of one; objects appear whole."""

    def __init__(self, url: str, intake: Intake, *, keep: bool) -> None:
        self._store = ObjectStore(url)
        self.place = self.origin = url
        super().__init__(intake, keep=keep)

    def listed(self) -> dict[str, Version]:
        versions = self._store.list_versions()
        found = {name: version for name, version in versions.items() if name.endswith(".tar")}
        self._sizes = {name: size for name, (size, _) in found.items()}
        return found

    def take(self, name: str) -> Receipt:
        if (size := self._sizes.get(name, 0)) > _MAX_BYTES:
            detail = f"is {size} bytes, no bundle is that large; it stays where it is"
            receipt = self._intake.refuse_content(b"", name, self.place, Refused("too_large", detail))
            receipt.stays = True
            return receipt
        digits = sha256(f"{self.place}/{name}".encode()).hexdigest()[:16]
        path = self._intake.fleet.incoming / f"{digits}-{os.getpid()}.partial"
        try:
            self._store.download(name, path)
            short = name.rpartition("/")[2]
            receipt = self._intake.take(path, self.origin, name=short, patience=_LOCK_SECONDS)
        finally:
            path.unlink(missing_ok=True)
        if not self._keep and not receipt.stays:
            try:
                self._store.remove(name)
            except VmsonarError as error:
                # It is filed; the next time it brings nothing new.
                self._put_off(name, error)
        return receipt


def source_at(place: str, intake: Intake, *, keep: bool) -> Source:
    """The source at a path or an s3:// address."""
    if place.startswith("s3://"):
        return BucketSource(place, intake, keep=keep)
    return FolderSource(Path(place), intake, keep=keep)


def _version(path: Path) -> Version | None:
    """Size and time of a plain file that is whole, or has not grown for long."""
    try:
        status = path.lstat()
        if not S_ISREG(status.st_mode):
            return None
        if time.time() - status.st_mtime < _SETTLED_SECONDS:
            with files.open_regular(path) as file:
                file.seek(max(0, status.st_size - len(END)))
                if file.read(len(END)) != END:
                    return None
    except (OSError, files.Refused):
        return None
    return status.st_size, status.st_mtime_ns
