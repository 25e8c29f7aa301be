"""What control groups allow a command, and a group of its own where that changes nothing but a name (cgroups(7))."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vmsonar.host.cgroups import controller_paths
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

#: Files whose limits a program may look up in its own group only: below such a group it would miss them.
_LIMITS = ("memory.max", "memory.high", "cpu.max")
_PRESSURES = {"waited_cpu": "cpu", "waited_memory": "memory", "waited_io": "io"}
# Version 1 writes "no limit" as the largest multiple of a page.
_NO_LIMIT = 2**60


class Limits(NamedTuple):
    """The least that the groups of a process allow; None without a limit."""

    memory: int | None
    #: Microseconds of CPU time per second.
    cpu: int | None


def limits_of(host: Host, pid: int) -> Limits:
    """What the groups of a process, and those above them, allow."""
    memory, cpu = [], []
    for folder in _folders(host, pid, "memory"):
        memory += _numbers(folder, "memory.max") + _numbers(folder, "memory.limit_in_bytes")
    for folder in _folders(host, pid, "cpu"):
        quota = _numbers(folder, "cpu.max") or [
            *_numbers(folder, "cpu.cfs_quota_us"),
            *_numbers(folder, "cpu.cfs_period_us"),
        ]
        if len(quota) == 2 and quota[0] > 0:
            cpu.append(quota[0] * 10**6 // quota[1])
    least = min((value for value in memory if value < _NO_LIMIT), default=None)
    return Limits(least, min(cpu, default=None))


class OwnGroup:
    """A group of version 2 that holds one command and what descends from it."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder
        #: As the members' /proc/PID/cgroup names it.
        self.path = path

    @classmethod
    def make(cls, host: Host, pid: int) -> "OwnGroup | None":
        """Puts a process into a new group below its own; None where we may not, or where its limits would hide."""
        above = next(_folders(host, pid, ""), None)
        if above is None or any(_numbers(above, name) for name in _LIMITS):
            return None
        if "cpu" in (read_text(above / "cgroup.subtree_control") or "").split():
            return None  # the group would get one share of the CPU, where its tasks have one each
        for stale in above.glob("vmsonar-run-*"):  # of a recorder that was killed
            with suppress(OSError):
                stale.rmdir()
        name = f"vmsonar-run-{pid}"
        group = cls(above / name, f"{_path(host, pid, '') or ''}/{name}".replace("//", "/"))
        try:
            group._folder.mkdir()
            (group._folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            group.close()
            return None
        return group

    def totals(self) -> dict[str, int]:
        """What the kernel counted for all that was ever in it, by the fields of the record."""
        found = {}
        with suppress(OSError, ValueError):
            found["group_cpu_time"] = _value(self._folder / "cpu.stat", "usage_usec ") * 1000
        for field, resource in _PRESSURES.items():
            with suppress(OSError, ValueError):
                found[field] = _value(self._folder / f"{resource}.pressure", "total=")
        if peak := _numbers(self._folder, "memory.peak"):
            found["group_memory_peak"] = peak[0]
        moved = (read_text(self._folder / "io.stat") or "").split()
        for field, key in (("group_read_bytes", "rbytes="), ("group_write_bytes", "wbytes=")):
            if counted := [int(word.removeprefix(key)) for word in moved if word.startswith(key)]:
                found[field] = sum(counted)
        return found

    def close(self) -> None:
        """Puts what is left back where it would have been, and removes the group."""
        with suppress(OSError):
            for pid in (self._folder / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (self._folder.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            self._folder.rmdir()


def _path(host: Host, pid: int, controller: str) -> str | None:
    text = read_text(host.proc / str(pid) / "cgroup")
    return None if text is None else controller_paths(text.encode()).get(controller)


def _folders(host: Host, pid: int, controller: str) -> Iterator[Path]:
    """The group of a process and all above it, the nearest first: of that version 1 controller, or of version 2."""
    mounts = host.sys / "fs" / "cgroup"
    for name in dict.fromkeys((controller, "")):
        path = _path(host, pid, name)
        places = (mounts / name,) if name else (mounts, mounts / "unified")
        root = next((place for place in places if (place / "cgroup.procs").exists()), None)
        if path is None or root is None:
            continue
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:depth])


def _numbers(folder: Path, name: str) -> list[int]:
    """The numbers in a file; none where it says max, or is not there."""
    words = (read_text(folder / name) or "max").split()
    return [] if "max" in words else [int(word) for word in words if word.lstrip("-").isdecimal()]


def _value(path: Path, key: str) -> int:
    text = path.read_text()
    return int(text[text.index(key) + len(key) :].split(None, 1)[0])
