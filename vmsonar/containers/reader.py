"""Reads a container's control group into its row: descriptors kept, unchanged bytes not parsed."""

import os
from collections.abc import Mapping

from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import ContainerRow

from vmsonar.containers.fields import Source
from vmsonar.containers.hierarchy import Group

# Most files hold one number; a large buffer would cost more than the reading.
_FIRST_SIZE = 256


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

    __slots__ = ("_descriptor", "_path", "_size", "text")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = _FIRST_SIZE
        self.text: bytes | None = None

    def changed(self) -> bool:
        """Reads it; whether it says something else than last time."""
        text = self._read_once() if self._descriptor is None else self._read(self._descriptor)
        if text == self.text:
            return False
        self.text = text
        return True

    def close(self, descriptors: Descriptors) -> None:
        if self._descriptor is not None:
            descriptors.close(self._descriptor)
            self._descriptor = None

    def _read(self, descriptor: int) -> bytes:
        text = os.pread(descriptor, self._size, 0)
        while len(text) == self._size:
            self._size *= 4
            text = os.pread(descriptor, self._size, 0)
        return text

    def _read_once(self) -> bytes:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._read(descriptor)
        finally:
            os.close(descriptor)


class GroupReader:
    """The row of one container, brought up to date by `read`."""

    def __init__(self, container_id: str, group: Group, descriptors: Descriptors) -> None:
        self.row = ContainerRow(container_id=container_id, cgroup_version=group.version)
        #: Whether the last reading found the container at work.
        self.active = True
        self._descriptors = descriptors
        self._encoded: bytes | None = None
        self._clock: tuple[Source, list[_File]] | None = None
        self._often: list[tuple[Source, list[_File]]] = []
        self._rare: list[tuple[Source, list[_File]]] = []
        for folder, source in group.sources:
            files = [
                file for names in source.files if (file := self._file(folder, names, source)) is not None
            ]
            if len(files) == len(source.files):
                self._keep(source, files)

    def read(self, everything: bool) -> bool:
        """Reads the group; False when it is gone.

        Where no CPU time was used, the rest is taken for unchanged until everything is due: what can change
        without it (memory that is reclaimed, pages written back) may wait for that.
        """
        try:
            self.active = self._clock is None or self._refresh(*self._clock)
            if self.active or everything:
                for source, files in self._often:
                    if everything or not (source.unless and getattr(self.row, source.unless)):
                        self._refresh(source, files)
            if everything:
                for source, files in self._rare:
                    self._refresh(source, files)
        except OSError:  # ENODEV from a kept descriptor, ENOENT by name: the group was removed
            return False
        return self._clock is not None or bool(self._often)

    def put(self, fields: Mapping[str, int | bool]) -> None:
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
        for _, files in [*self._often, *self._rare, *([self._clock] if self._clock else [])]:
            for file in files:
                file.close(self._descriptors)

    def _keep(self, source: Source, files: list[_File]) -> None:
        if source.tells_activity:
            self._clock = (source, files)
        else:
            (self._rare if source.rare else self._often).append((source, files))

    def _refresh(self, source: Source, files: list[_File]) -> bool:
        changed = False
        for file in files:
            changed = file.changed() or changed
        if changed:
            row = self.row
            for name, value in source.parse(*[file.text for file in files]).items():
                setattr(row, name, value)
            self._encoded = None
        return changed

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
