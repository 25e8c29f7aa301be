"""Where the control groups of a container lie: v1, v2, or v1 with an empty v2 beside it (cgroups(7))."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vmsonar.cgroups import container_path, controller_paths, membership
from vmsonar.containers import parse_v1, parse_v2
from vmsonar.containers.fields import Source
from vmsonar.host import Host

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
    sources: tuple[tuple[str, Source], ...]


class Hierarchies:
    """The mounted control group hierarchies of one machine."""

    def __init__(self, host: Host) -> None:
        root = host.sys / "fs/cgroup"
        self._proc = host.proc
        self._v1 = {name: root / name for name in V1_CONTROLLERS if (root / name / "tasks").exists()}
        self._v2 = self._unified(root)
        self._v2_controllers = self._enabled()

    @property
    def mode(self) -> str | None:
        """v1, v2 or hybrid; None where nothing is mounted."""
        if self._v1:
            return "hybrid" if self._v2 else "v1"
        return "v2" if self._v2 else None

    def of_process(self, pid: int, container_id: str) -> Group | None:
        """The group of the container that this process is in; None if it is not, or not any more."""
        try:
            text = (self._proc / str(pid) / "cgroup").read_bytes()
        except OSError:
            return None
        if membership(text).container_id != container_id:
            return None
        cut = {name: container_path(path, container_id) for name, path in controller_paths(text).items()}
        return self.at({name: path for name, path in cut.items() if path is not None})

    def at(self, paths: dict[str, str]) -> Group | None:
        """The group at these paths, given per controller and, for v2, by an empty name."""
        v1 = [
            (str(folder), source if source.controller != "blkio" or self.counts_io() else _uncounted(source))
            for source in parse_v1.SOURCES
            if (folder := self._v1_folder(source.controller, paths)) is not None
        ]
        v2 = self._v2_sources(paths.get(""))
        if not v1 and not v2:
            return None
        return Group(1 if v1 else 2, next(iter(paths.values())), tuple(v1 + v2))

    def counts_io(self) -> bool:
        """Whether the kernel is known to count I/O: v1 may do so for no disk, or for some."""
        if "blkio" not in self._v1:
            return self._v2 is not None
        try:
            text = (self._v1["blkio"] / "blkio.throttle.io_service_bytes").read_bytes()
        except OSError:
            return False
        return parse_v1.lists_devices(text)

    def walk(self) -> dict[str, Group]:
        """Every container's group, found in the tree itself: for where processes cannot be seen."""
        root = self._v1.get("cpuacct") or self._v1.get("memory") or self._v2
        found = {}
        for path in _folders(root) if root else ():
            member = membership(f"0::{path}\n".encode())
            if member.container_id and member.path == path:
                group = self.at(dict.fromkeys(("", *V1_CONTROLLERS), path))
                if group is not None:
                    found[member.container_id] = group
        return found

    def _v1_folder(self, controller: str, paths: dict[str, str]) -> Path | None:
        if controller not in self._v1 or controller not in paths:
            return None
        folder = _below(self._v1[controller], paths[controller])
        return folder if folder.is_dir() else None

    def _v2_sources(self, path: str | None) -> list[tuple[str, Source]]:
        if self._v2 is None or path is None:
            return []
        folder = _below(self._v2, path)
        if not folder.is_dir():
            return []
        taken = {_V2_NAMES.get(name, name) for name in self._v1}
        return [
            (str(folder), source)
            for source in parse_v2.SOURCES
            if not self._v1 or source.controller in {*self._v2_controllers, parse_v2.PRESSURE} - taken
        ]

    def _enabled(self) -> set[str]:
        if self._v2 is None:
            return set()
        try:
            return set((self._v2 / "cgroup.controllers").read_text().split())
        except OSError:
            return set()

    @staticmethod
    def _unified(root: Path) -> Path | None:
        for candidate in (root, root / "unified"):
            if (candidate / "cgroup.controllers").exists():
                return candidate
        return None


def _uncounted(source: Source) -> Source:
    return replace(source, parse=parse_v1.blkio_if_counted)


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
