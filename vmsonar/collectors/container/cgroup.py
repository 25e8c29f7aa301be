"""Where the control groups of containers and units lie (v1, v2, hybrid), and how kept descriptors read them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import ContainerRow

from vmsonar.collectors.cgroup_files import (
    PRESSURE,
    V1_SOURCES,
    V2_SOURCES,
    CgroupSource,
    blkio_if_counted,
)
from vmsonar.host.cgroups import container_path, controller_paths, membership
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

V1_CONTROLLERS = ("cpuacct", "cpu", "cpuset", "memory", "blkio", "pids")
# The same thing has another name in v2.
_V2_NAMES = {"cpuacct": "cpu", "blkio": "io"}

_MAX_DEPTH = 16
_MAX_FOLDERS = 20_000


@dataclass(frozen=True, slots=True)
class Group:
    """One container's control group: what can be read, and in which folder."""

    version: int
    #: Below the hierarchy's root, as /proc/PID/cgroup has it.
    path: str
    sources: tuple[tuple[str, CgroupSource], ...]


class Hierarchies:
    """The mounted control group hierarchies of one machine."""

    def __init__(self, host: Host) -> None:
        root = host.sys / "fs/cgroup"
        self._proc = host.proc
        self._v1 = {name: root / name for name in V1_CONTROLLERS if (root / name / "tasks").exists()}
        unified = (path for path in (root, root / "unified") if (path / "cgroup.controllers").exists())
        self._v2 = next(unified, None)
        enabled = read_text(self._v2 / "cgroup.controllers") if self._v2 else None
        self._v2_controllers = set((enabled or "").split())

    @property
    def mode(self) -> str | None:
        """v1, v2 or hybrid; None where nothing is mounted."""
        if self._v1:
            return "hybrid" if self._v2 else "v1"
        return "v2" if self._v2 else None

    @property
    def root(self) -> Path | None:
        """The folder of the hierarchy whose clock is read: all containers have a group in it."""
        return self._v1.get("cpuacct") or self._v1.get("memory") or self._v2

    def at_path(self, path: str) -> Group | None:
        """The group that has this path in every hierarchy."""
        return self.at(dict.fromkeys(("", *V1_CONTROLLERS), path))

    def of_process(self, pid: int, container_id: str) -> Group | None:
        """The group of the container, by one of its processes; None if that one has left it."""
        try:
            text = (self._proc / str(pid) / "cgroup").read_bytes()
        except OSError:
            return None
        if membership(text).container_id != container_id:
            return None
        cut = {name: container_path(path, container_id) for name, path in controller_paths(text).items()}
        return self.at({name: path for name, path in cut.items() if path is not None})

    def of_unit(self, pid: int, path: str) -> Group | None:
        """The group at this path in each hierarchy in which one of the unit's processes is in it, or below it."""
        try:
            text = (self._proc / str(pid) / "cgroup").read_bytes()
        except OSError:
            return None
        return self.at({
            name: path for name, own in controller_paths(text).items() if f"{own}/".startswith(f"{path}/")
        })  # fmt: skip

    def at(self, paths: dict[str, str]) -> Group | None:
        """The group at these paths, given per controller and, for v2, by an empty name."""
        v1, v2 = self._v1_sources(paths), self._v2_sources(paths.get(""))
        if not v1 and not v2:
            return None
        return Group(1 if v1 else 2, next(iter(paths.values())), tuple(v1 + v2))

    def counts_io(self) -> bool:
        """Whether the kernel is known to count I/O: v1 may do so for no disk, or for some."""
        if "blkio" not in self._v1:
            return self._v2 is not None
        text = read_text(self._v1["blkio"] / "blkio.throttle.io_service_bytes") or ""
        return any(
            len(line.split()) == 3 for line in text.splitlines()
        )  # one that counts at least one device

    def walk(self) -> dict[str, Group]:
        """Every container's group, found in the tree itself: for where processes cannot be seen."""
        found = {}
        for path in _folders(self.root) if self.root else ():
            member = membership(f"0::{path}\n".encode())
            if member.container_id and member.path == path:
                group = self.at_path(path)
                if group is not None:
                    found[member.container_id] = group
        return found

    def _v1_sources(self, paths: dict[str, str]) -> list[tuple[str, CgroupSource]]:
        found = []
        for source in V1_SOURCES:
            name = source.controller
            if (
                name in self._v1
                and name in paths
                and (folder := _below(self._v1[name], paths[name])).is_dir()
            ):
                is_uncounted = name == "blkio" and not self.counts_io()
                found.append(
                    (str(folder), replace(source, parse=blkio_if_counted) if is_uncounted else source)
                )
        return found

    def _v2_sources(self, path: str | None) -> list[tuple[str, CgroupSource]]:
        if self._v2 is None or path is None:
            return []
        folder = _below(self._v2, path)
        if not folder.is_dir():
            return []
        taken = {_V2_NAMES.get(name, name) for name in self._v1}
        return [
            (str(folder), source)
            for source in V2_SOURCES
            if not self._v1 or source.controller in {*self._v2_controllers, PRESSURE} - taken
        ]


def _below(root: Path, path: str) -> Path:
    # Seen from a control group namespace, a path outside of it begins with "/..": the mount is the host's.
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return root.joinpath(*parts)


def _folders(root: Path) -> Iterator[str]:
    """The paths of all groups below a root, parents first."""
    pending = [("", 0)]
    seen = 0
    while pending and seen < _MAX_FOLDERS:
        path, depth = pending.pop()
        seen += 1
        try:
            names = [
                entry.name for entry in os.scandir(f"{root}{path}") if entry.is_dir(follow_symlinks=False)
            ]
        except OSError:
            continue
        for name in names:
            yield f"{path}/{name}"
        if depth < _MAX_DEPTH:
            pending.extend((f"{path}/{name}", depth + 1) for name in names)


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

    @property
    def is_kept(self) -> bool:
        return self._descriptor is not None

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


R = TypeVar("R", bound=ContainerRow)

#: Readings until a group counts as set up: a runtime creates it, then enables controllers, then writes the limits.
_SETTLING = 5


class GroupReader(Generic[R]):
    """The row of one container or unit, brought up to date by `read`."""

    def __init__(self, row: R, group: Group, descriptors: Descriptors) -> None:
        self.row = row
        row.cgroup_version = group.version
        #: Whether the last reading found the container at work.
        self.active = True
        self._descriptors = descriptors
        self._encoded: bytes | None = None
        self._clock: tuple[CgroupSource, list[_File]] | None = None
        self._often: list[tuple[CgroupSource, list[_File]]] = []
        self._rare: list[tuple[CgroupSource, list[_File]]] = []
        self._known: set[tuple[str, tuple[tuple[str, ...], ...]]] = set()
        self._absent: list[tuple[str, CgroupSource]] = []
        self._settling = _SETTLING
        #: Where the inode is looked up that tells one life of a container from the next.
        self.folder = group.sources[0][0]
        #: Whether the last reading got the CPU time, whatever became of the rest.
        self.counted = False
        self.add(group)

    @property
    def settling(self) -> bool:
        """Whether the runtime may still be at work on the group."""
        return self._settling > 0

    def add(self, group: Group) -> None:
        """Reads from now on what this look at the group shows and an earlier one did not."""
        for folder, source in group.sources:
            if (folder, source.files) not in self._known:
                self._known.add((folder, source.files))
                self._absent.append((folder, source))

    def read(self, everything: bool) -> bool:
        """Reads the group; False when it is gone.

        Where no CPU time was used, the rest is taken for unchanged until everything is due: what can change
        without it (memory that is reclaimed, pages written back) may wait for that.
        """
        everything = everything or self.settling
        if everything:
            self._settling -= 1
            self._absent = [pair for pair in self._absent if not self._open(*pair)]
        self.counted = False
        try:
            self._check_identity()
            self.active = self._clock is None or self._refresh(*self._clock)
            self.counted = self._clock is not None
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

    def put(self, fields: Mapping[str, str | int | bool | None]) -> None:
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

    def _check_identity(self) -> None:
        """Raises OSError for a group made anew at the same path; a kept descriptor would say so itself."""
        if self.row.cgroup_inode is None:
            # After the files were opened: if it is the successor's, reading them fails.
            self.row.cgroup_inode = os.stat(self.folder).st_ino
            return
        is_kept = self._clock is None or self._clock[1][0].is_kept
        if not is_kept and os.stat(self.folder).st_ino != self.row.cgroup_inode:
            raise OSError(f"{self.folder} is another group by now")

    def _open(self, folder: str, source: CgroupSource) -> bool:
        """Opens the files of one source; False when one of them is not there, or not yet."""
        found = (self._file(folder, names, source) for names in source.files)
        files = [file for file in found if file is not None]
        if len(files) < len(source.files):
            for file in files:
                file.close(self._descriptors)
            return False
        if source.tells_activity:
            self._clock = (source, files)
        else:
            (self._rare if source.rare else self._often).append((source, files))
        return True

    def _refresh(self, source: CgroupSource, files: list[_File]) -> bool:
        changed = False
        for file in files:
            changed = file.changed() or changed
        if changed:
            row = self.row
            for name, value in source.parse(*[file.text for file in files]).items():
                setattr(row, name, value)
            self._encoded = None
        return changed

    def _file(self, folder: str, names: tuple[str, ...], source: CgroupSource) -> _File | None:
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


#: What a container has at one moment: after its end that says nothing about its life.
_GAUGES = (
    "memory_used", "memory_anonymous", "memory_file", "memory_inactive_file", "memory_shared", "swap_used",
    "processes",
)  # fmt: skip


def end_row(row: R, end: int, source: str, read_at: int) -> R:
    """Makes the row of a life's end out of its last reading; one from before the end gets its bound."""
    for name in _GAUGES:
        setattr(row, name, None)
    row.end_boottime, row.cpu_source = end, source
    if source != "final":
        row.cpu_time_high = (row.cpu_time or 0) + max(0, end - read_at) * (os.cpu_count() or 1)
    return row
