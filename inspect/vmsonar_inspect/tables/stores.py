"""The storage of a lake: a folder, or an object store through pyarrow, so that DuckDB never uses the network."""

import hashlib
import itertools
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any
from urllib.parse import urlsplit

from vmsonar_archive.system.errors import FormatError, UsageError, VmsonarError
from vmsonar_archive.system.files import beneath, open_regular, parts_of, sha256_at
from vmsonar_archive.write.outputs import remove_unfinished, whole

#: The folder of the manifests; other readers of lakes pass over names that begin so.
LISTS = "_manifest"
_TOP = ("kind=", LISTS)
_DEPTH = 3
# Ten kinds of a thousand machines over two months; it bounds what a hostile lake can make us hold.
_MAX_FILES = 1_000_000

#: Copies a file from elsewhere to a path.
Copier = Callable[[Path], None]


class LakeStore(ABC):
    """Files under names with slashes, in a folder or an object store."""

    #: The path or address, for people.
    place: str

    @abstractmethod
    def put(self, source: Path, name: str) -> None:
        """Stores a file, completely or not at all."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Every file with its size, sorted by name; -1 for what is not a regular file. Unfinished ones are left out."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """The content of a small file."""

    @abstractmethod
    def sha256(self, name: str) -> str:
        """The hash of a stored file."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file; one that is gone already is no error."""

    @abstractmethod
    def source(self, name: str) -> Path | Copier:
        """The path of a file that can be read in place, or what copies it to one."""


class FolderStore(LakeStore):
    """A lake in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tidied: set[Path] = set()
        self.place = str(root)

    def put(self, source: Path, name: str) -> None:
        path = beneath(self._root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent not in self._tidied:
            self._tidied.add(path.parent)
            remove_unfinished(path.parent)
        with source.open("rb") as content, whole(path, durable=True) as sink:
            shutil.copyfileobj(content, sink, 1024 * 1024)

    def sizes(self) -> dict[str, int]:
        if not self._root.is_dir():
            return {}
        found: dict[str, int] = {}
        self._list(self._root, "", found, 0)
        return dict(sorted(found.items()))

    def _list(self, folder: Path, prefix: str, found: dict[str, int], seen: int) -> int:
        """Counts entries and goes no deeper than a lake does: links may form a loop."""
        with os.scandir(folder) as entries:
            listed = list(itertools.islice(entries, _MAX_FILES + 1 - seen))
        for entry in listed:
            seen += 1
            if seen > _MAX_FILES:
                raise VmsonarError(
                    f"{self.place} holds more than {_MAX_FILES} files and folders: give a part of it"
                )
            if entry.name.startswith(".") or not (prefix or entry.name.startswith(_TOP)):
                continue
            if _is_folder(entry):
                if prefix.count("/") < _DEPTH:
                    seen = self._list(Path(entry.path), f"{prefix}{entry.name}/", found, seen)
            elif prefix:
                found[prefix + entry.name] = _size(entry)
        return seen

    def read(self, name: str, limit: int) -> bytes:
        with open_regular(beneath(self._root, name)) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise FormatError(f"{self.place}/{name} has more than {limit} bytes: it is not one of ours")
            return file.read(limit)

    def sha256(self, name: str) -> str:
        return sha256_at(beneath(self._root, name))[1]

    def remove(self, name: str) -> None:
        path = beneath(self._root, name)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # a folder that is not empty stays
            os.removedirs(path.parent)

    def source(self, name: str) -> Path:
        return beneath(self._root, name)


class ObjectStore(LakeStore):
    """A lake or bundles in an object store, where an object always appears complete."""

    def __init__(self, url: str) -> None:
        """Opens an s3:// address; credentials come from the environment."""
        # Here, because what lies in folders needs nothing of it.
        from vmsonar_archive.bundle.send.s3 import file_system

        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc:
            raise UsageError(f"{url} is not an address such as s3://bucket/prefix")
        self._store = file_system(parts.netloc)
        #: The bucket, and what the names of all objects begin with.
        self.prefix = f"{parts.netloc}{parts.path}".rstrip("/")
        self.place = url

    def put(self, source: Path, name: str) -> None:
        whole = "/".join([self.prefix, *parts_of(name)])
        with source.open("rb") as content, self._store.open_output_stream(whole) as sink:
            shutil.copyfileobj(content, sink, 8 * 1024 * 1024)

    def sizes(self) -> dict[str, int]:
        found = self.list_all()
        return {name: size for name, size in found.items() if name.startswith(("kind=", f"{LISTS}/"))}

    def list_all(self) -> dict[str, int]:
        """The names of all objects below the prefix, relative to it, with their sizes; sorted."""
        return {name: size for name, (size, _) in self.list_versions().items()}

    def list_versions(self) -> dict[str, tuple[int, int]]:
        """The same with the time at which each was written, in nanoseconds."""
        from pyarrow import fs

        try:
            found = self._store.get_file_info(
                fs.FileSelector(self.prefix, recursive=True, allow_not_found=True)
            )
        except OSError as error:
            raise VmsonarError(f"cannot list s3://{self.prefix}: {_short(error)}") from None
        listed = (info for info in found if info.is_file)
        return dict(
            sorted((info.path[len(self.prefix) + 1 :], (info.size, info.mtime_ns or 0)) for info in listed)
        )

    def remove(self, name: str) -> None:
        """Deletes one object."""
        try:
            self._store.delete_file(f"{self.prefix}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise VmsonarError(f"cannot delete s3://{self.prefix}/{name}: {_short(error)}") from None

    def read(self, name: str, limit: int) -> bytes:
        with self._reading(name) as source:
            content: bytes = source.read(limit + 1)
        if len(content) > limit:
            raise FormatError(f"s3://{self.prefix}/{name} has more than {limit} bytes: it is not one of ours")
        return content

    def sha256(self, name: str) -> str:
        with self._reading(name) as source:
            return hashlib.file_digest(source, "sha256").hexdigest()

    def source(self, name: str) -> Copier:
        return partial(self.download, name)

    def download(self, name: str, target: Path) -> None:
        """Copies one object to a file; without a name the one that the address itself means."""
        with self._reading(name) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 4 * 1024 * 1024)

    @contextmanager
    def _reading(self, name: str) -> Iterator[Any]:
        path = f"{self.prefix}/{name}".rstrip("/")
        try:
            with self._store.open_input_stream(path) as source:
                yield source
        except OSError as error:
            raise VmsonarError(f"cannot fetch s3://{path}: {_short(error)}") from error


def _short(error: OSError) -> str:
    return " ".join(str(error).split())[:300]


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _size(entry: "os.DirEntry[str]") -> int:
    try:
        status = entry.stat()
    except OSError:
        return -1
    return status.st_size if S_ISREG(status.st_mode) else -1


def lake_at(place: str | Path) -> LakeStore:
    """The lake at a path or an s3:// address."""
    return ObjectStore(str(place)) if str(place).startswith("s3://") else FolderStore(Path(place))
