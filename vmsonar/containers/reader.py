"""Reads a container's control group into its row: descriptors kept, unchanged bytes not parsed."""

import os

from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import ContainerRow

from vmsonar.containers.fields import Fields, Source
from vmsonar.containers.hierarchy import Group

_READ_SIZE = 16384


class Descriptors:
    """How many descriptors may still be kept; what exceeds that is opened for each reading."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def open(self, path: str) -> int | None:
        if self._left <= 0:
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._left -= 1
        return descriptor

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        self._left += 1


class _File:
    """One file of a group, kept open where that pays and is allowed."""

    __slots__ = ("_descriptor", "_path", "text")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor
        self.text: bytes | None = None

    def changed(self) -> bool:
        """Reads it; whether it says something else than last time."""
        text = self._read() if self._descriptor is None else os.pread(self._descriptor, _READ_SIZE, 0)
        if text == self.text:
            return False
        self.text = text
        return True

    def close(self, descriptors: Descriptors) -> None:
        if self._descriptor is not None:
            descriptors.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bytes:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _READ_SIZE)
        finally:
            os.close(descriptor)


class GroupReader:
    """The row of one container, brought up to date by `read`."""

    def __init__(self, container_id: str, group: Group, descriptors: Descriptors) -> None:
        self.row = ContainerRow(container_id=container_id, cgroup_version=group.version)
        self._descriptors = descriptors
        self._often: list[tuple[Source, list[_File]]] = []
        self._rare: list[tuple[Source, list[_File]]] = []
        for folder, source in group.sources:
            files = [
                file for names in source.files if (file := self._file(folder, names, source)) is not None
            ]
            if len(files) == len(source.files):
                (self._rare if source.rare else self._often).append((source, files))
        self._encoded: bytes | None = None

    def read(self, limits_too: bool) -> bool:
        """Reads the group; False when it is gone."""
        try:
            for source, files in self._often:
                self._refresh(source, files)
            if limits_too:
                for source, files in self._rare:
                    self._refresh(source, files)
        except OSError:  # ENODEV from a kept descriptor, ENOENT by name: the group was removed
            return False
        return bool(self._often)

    def put(self, fields: Fields) -> None:
        """Adds what does not come from the group."""
        for name, value in fields.items():
            if getattr(self.row, name) != value:
                setattr(self.row, name, value)
                self._encoded = None

    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = encode_row(self.row)
        return self._encoded

    def close(self) -> None:
        for _, files in self._often + self._rare:
            for file in files:
                file.close(self._descriptors)

    def _refresh(self, source: Source, files: list[_File]) -> None:
        # A list, not a generator: every file must be read even when the first one has changed.
        if any([file.changed() for file in files]):  # noqa: C419
            for name, value in source.parse(*(file.text for file in files)).items():
                setattr(self.row, name, value)
            self._encoded = None

    def _file(self, folder: str, names: tuple[str, ...], source: Source) -> _File | None:
        for name in names:
            path = f"{folder}/{name}"
            try:
                if source.rare:
                    os.stat(path)
                    return _File(path, None)
                descriptor = self._descriptors.open(path)
                if descriptor is None:
                    os.stat(path)
                return _File(path, descriptor)
            except OSError:
                continue
        return None
