"""What control groups allow a command, and a group of its own where that changes nothing but a name (cgroups(7))."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from vmsonar.collectors.cgroup_files import V1_SOURCES, V2_SOURCES, read_sources
from vmsonar.host.cgroups import controller_paths
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

#: Files whose limits a program may look up in its own group only: below such a group it would miss them.
_LIMITS = ("memory.max", "memory.high", "cpu.max")
#: What is taken over into the record, by the fields that a container's group has.
_TOTALS = {
    "group_cpu_time": "cpu_time",
    "group_memory_peak": "memory_peak",
    "group_read_bytes": "read_bytes",
    "group_write_bytes": "write_bytes",
    "waited_cpu": "cpu_some_time",
    "waited_memory": "memory_some_time",
    "waited_io": "io_some_time",
}
_MEMBERS, _CONTROL = "cgroup.procs", "cgroup.subtree_control"
_COUNTED = ("memory", "io")


def limits_of(host: Host, pid: int) -> dict[str, Any]:
    """The least that the groups of a process, and those above them, allow; None without a limit."""
    rare = [source for source in (*V1_SOURCES, *V2_SOURCES) if source.rare]
    memory = [read_sources(folder, rare).get("memory_limit") for folder in _folders(host, pid, "memory")]
    groups = [read_sources(folder, rare) for folder in _folders(host, pid, "cpu")]
    quotas = [each["cpu_quota"] * 10**6 // each["cpu_period"] for each in groups if each.get("cpu_quota")]
    return {
        "memory_limit": min((each for each in memory if each is not None), default=None),
        "cpu_quota": min(quotas, default=None),
    }


class OwnGroup:
    """A group of version 2 that holds one command and what descends from it."""

    def __init__(self, above: Path, name: str) -> None:
        self._above, self._folder, self._beside = above, above / name, above / f"{name}-recorder"
        #: As the members' /proc/PID/cgroup names it.
        self.path: str | None = None

    @classmethod
    def make(cls, host: Host, pid: int) -> "OwnGroup | None":
        """Puts a process into a new group below its own; None where we may not, or where its limits would hide."""
        above = next(_folders(host, pid, ""), None)
        if above is None or any((read_text(above / name) or "max")[:3] != "max" for name in _LIMITS):
            return None
        if "cpu" in (read_text(above / _CONTROL) or "").split():
            return None  # the group would get one share of the CPU, where its tasks have one each
        for other in above.glob("vmsonar-run-*"):
            if not (host.proc / other.name.split("-")[2]).exists():  # of a recorder that was killed
                with suppress(OSError):
                    other.rmdir()
        group = cls(above, f"vmsonar-run-{pid}")
        try:
            group._folder.mkdir()
            _enter(group._folder, pid)
            group.path = _path(host, pid, "")
            group._count_all()
        except OSError:
            group.close()
            return None
        return group

    def totals(self) -> dict[str, int]:
        """What the kernel counted for all that was ever in it, by the fields of the record."""
        found = read_sources(self._folder, V2_SOURCES)
        return {name: found[key] for name, key in _TOTALS.items() if found.get(key) is not None}

    def close(self) -> None:
        """Puts what is left back where it would have been, and removes the group."""
        for controller in _COUNTED if self._beside.exists() else ():
            with suppress(OSError):
                (self._above / _CONTROL).write_text(f"-{controller}")
        for folder in (self._folder, self._beside):
            for pid in _members(folder):
                with suppress(OSError):
                    _enter(self._above, pid)
            with suppress(OSError):
                folder.rmdir()

    def _count_all(self) -> None:
        """Has memory and I/O counted too where nobody but us is in the group above: a scope or container of our own.

        Whoever is in a group whose children are counted must leave it.
        """
        others = _members(self._above)  # 0 is somebody outside of our pid namespace
        if all(pid and (pid == os.getppid() or os.getsid(pid) == os.getpid()) for pid in others):
            self._beside.mkdir()
            for pid in others:
                _enter(self._beside, pid)
            for controller in _COUNTED:
                with suppress(OSError):
                    (self._above / _CONTROL).write_text(f"+{controller}")


def _members(folder: Path) -> list[int]:
    return [int(word) for word in (read_text(folder / _MEMBERS) or "").split()]


def _enter(folder: Path, pid: int) -> None:
    (folder / _MEMBERS).write_text(str(pid))


def _path(host: Host, pid: int, controller: str) -> str | None:
    text = read_text(host.proc / str(pid) / "cgroup")
    return None if text is None else controller_paths(text.encode()).get(controller)


def _folders(host: Host, pid: int, controller: str) -> Iterator[Path]:
    """The group of a process and all above it, the nearest first: of that version 1 controller, or of version 2."""
    mounts = host.sys / "fs" / "cgroup"
    for name in dict.fromkeys((controller, "")):
        path = _path(host, pid, name)
        places = (mounts / name,) if name else (mounts, mounts / "unified")
        root = next((place for place in places if (place / _MEMBERS).exists()), None)
        if path is not None and root is not None:
            group = root / path.strip("/")
            yield from (group, *group.parents[: len(group.parts) - len(root.parts)])
