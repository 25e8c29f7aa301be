"""Folders and buckets where machines leave bundles: what is new in them goes through the intake, file by file."""

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
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
#: No bundle is that large; what is would fill the disk before it could be looked at.
_MAX_BYTES = 16 * 2**30

#: Size and time of the last change: another version of a file differs in one of them.
Version = tuple[int, int]


class Source(ABC):
    """A place where bundles arrive. `round` takes what is there; one that fails is left alone for a while."""

    place: str

    def __init__(self, intake: Intake, *, keep: bool) -> None:
        self._intake = intake
        self._keep = keep
        self._taken: dict[str, Version] = {}
        #: How many were not taken when it was looked at last: not complete yet, or no plain files.
        self.waiting = 0
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
        new = [name for name in found if name not in self._taken]
        random.shuffle(new)
        end = time.monotonic() + _MAX_SECONDS
        for name in new:
            if stopping() or time.monotonic() > end:
                break
            with suppress(FileNotFoundError):  # another collector was faster
                receipt = self.take(name)
                if receipt.stays:
                    self._stays.add(name)
                yield receipt
                self._taken[name] = found[name]
        if self._keep and new:
            with files.AtomicFile(self._note, durable=False) as file:
                noted = {name: self._taken[name] for name in self._taken if name not in self._stays}
                file.write(msgspec.json.encode(noted))
        elif not self._keep:
            self._taken = {name: version for name, version in self._taken.items() if name in self._stays}


class FolderSource(Source):
    """A folder into which machines copy; what ends in .partial or begins with a dot is not complete."""

    def __init__(self, folder: Path, intake: Intake, *, keep: bool) -> None:
        root = intake.fleet.root.resolve()
        if folder.resolve() == root or root in folder.resolve().parents:
            raise UsageError(f"{folder} lies in the fleet: bundles arrive in a folder outside it")
        self._folder = folder
        self.place = str(folder)
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
        return self._intake.take(self._folder / name, f"folder {self.place}", keep=self._keep)


class BucketSource(Source):
    """A bucket, or a part of one; objects appear whole."""

    def __init__(self, url: str, intake: Intake, *, keep: bool) -> None:
        self._store = ObjectStore(url)
        self.place = url
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
            receipt = self._intake.take(path, self.place, name=name.rpartition("/")[2])
        finally:
            path.unlink(missing_ok=True)
        if not self._keep and not receipt.stays:
            self._store.remove(name)
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
