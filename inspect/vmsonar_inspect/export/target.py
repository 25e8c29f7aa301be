"""Where a lake lies: a folder or an object store."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from vmsonar_archive.files import fsync_folder


class Target(ABC):
    """A place for files with slashes in their names."""

    #: The path or address, for people.
    place: str

    @abstractmethod
    def put(self, source: Path, name: str) -> None:
        """Puts a file there, whole or not at all."""

    @abstractmethod
    def names(self) -> list[str]:
        """What is there."""

    @abstractmethod
    def copier(self, name: str) -> Callable[[Path], None]:
        """Copies one of the files to a path here."""

    def local(self, name: str) -> Path | None:
        """The path of one of the files, where it can be read in place."""
        return None


class FolderTarget(Target):
    """A lake in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.place = str(root)

    def put(self, source: Path, name: str) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with source.open("rb") as content, temporary.open("wb") as sink:
            shutil.copyfileobj(content, sink, 1024 * 1024)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.rename(path)
        fsync_folder(path.parent)

    def names(self) -> list[str]:
        found = self._root.glob("kind=*/date=*/archive=*/[!.]*.parquet")
        return sorted(str(path.relative_to(self._root)) for path in found)

    def copier(self, name: str) -> Callable[[Path], None]:
        def copy(target: Path) -> None:
            shutil.copyfile(self._root / name, target)

        return copy

    def local(self, name: str) -> Path | None:
        return self._root / name


class StoreTarget(Target):
    """A lake in an object store; an object appears whole by nature."""

    def __init__(self, url: str) -> None:
        from vmsonar_inspect.remote import open_store

        self._store, self._prefix = open_store(url)
        self.place = url

    def put(self, source: Path, name: str) -> None:
        with source.open("rb") as content, self._store.open_output_stream(f"{self._prefix}/{name}") as sink:
            while part := content.read(8 * 1024 * 1024):
                sink.write(part)

    def names(self) -> list[str]:
        from vmsonar_inspect.remote import list_files

        return [name for name in list_files(self._store, self._prefix) if name.startswith("kind=")]

    def copier(self, name: str) -> Callable[[Path], None]:
        from vmsonar_inspect.remote import download

        return lambda target: download(self._store, f"{self._prefix}/{name}", target)


def target_at(place: str | Path) -> Target:
    """The lake at a path or an s3:// address."""
    return StoreTarget(str(place)) if str(place).startswith("s3://") else FolderTarget(Path(place))
