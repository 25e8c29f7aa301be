"""The containers that live now, each with its reader."""

from collections.abc import Mapping
from dataclasses import dataclass

from vmsonar.collectors.base import Tick
from vmsonar.collectors.container.cgroup import Descriptors, Group, GroupReader, Hierarchies
from vmsonar.collectors.container.owner import Owners
from vmsonar.host.cgroups import membership
from vmsonar.host.roots import Host

_TRIES = 3
_REMEMBERED = 256


@dataclass(slots=True)
class Live:
    """One container that lives."""

    container_id: str
    reader: GroupReader
    #: Its oldest process, unknown where processes cannot be seen.
    pid: int | None
    engine: str | None
    cgroup: str | None
    #: Its owners, found while its processes could still be read.
    owners: Owners | None = None


class LiveContainers:
    """Follows which containers there are, oldest first."""

    def __init__(self, host: Host, descriptors: Descriptors) -> None:
        self._proc = host.proc
        self.hierarchies = Hierarchies(host)
        self._descriptors = descriptors
        self._processes_hidden = _hidden(host)
        self.by_id: dict[str, Live] = {}
        #: The last ones that went: the engine tells of an end after it.
        self.departed: dict[str, Live] = {}

    def update(self, tick: Tick, everything: bool) -> tuple[list[str], list[str]]:
        """Reads every container; returns the ids that came and those that went."""
        before = set(self.by_id)
        walked = self._walked(tick)
        seen: Mapping[str, list[int]] = tick.containers if walked is None else {key: [] for key in walked}
        for container_id in before - seen.keys():
            self._drop(container_id)
        for live in list(self.by_id.values()):
            live.pid = self._pid(live.pid, seen[live.container_id], tick)
            self._complete(live)
            if not live.reader.read(everything):
                self._drop(live.container_id)
        new = [container_id for container_id in seen if container_id not in self.by_id]
        for container_id in sorted(new, key=lambda name: _age(tick, seen[name])):
            self._add(container_id, seen[container_id], tick, walked)
        after = set(self.by_id)
        return sorted(after - before), sorted(before - after)

    def close(self) -> None:
        for container_id in list(self.by_id):
            self._drop(container_id)

    def _walked(self, tick: Tick) -> dict[str, Group] | None:
        """What the tree itself shows, where processes do not tell."""
        return self.hierarchies.walk() if self._processes_hidden or not tick.processes else None

    def _add(self, container_id: str, pids: list[int], tick: Tick, walked: dict[str, Group] | None) -> None:
        group = walked[container_id] if walked is not None else None
        oldest = sorted(pids, key=lambda pid: _age(tick, [pid]))
        for pid in oldest[:_TRIES]:
            group = group or self.hierarchies.of_process(pid, container_id)
        if group is None:
            return
        reader = GroupReader(container_id, group, self._descriptors)
        if not reader.read(everything=True):
            reader.close()
            return
        path = group.path
        engine = membership(f"0::{path}\n".encode()).engine
        self.by_id[container_id] = Live(container_id, reader, oldest[0] if oldest else None, engine, path)

    def _complete(self, live: Live) -> None:
        """Looks for the groups of a new container once more: with v1 it joins one hierarchy after the other."""
        if live.reader.settling and live.pid is not None:
            group = self.hierarchies.of_process(live.pid, live.container_id)
            if group is not None:
                live.reader.add(group)

    def _drop(self, container_id: str) -> None:
        live = self.by_id.pop(container_id)
        live.reader.close()
        self.departed[container_id] = live
        if len(self.departed) > _REMEMBERED:
            del self.departed[next(iter(self.departed))]

    @staticmethod
    def _pid(known: int | None, pids: list[int], tick: Tick) -> int | None:
        return known if known in pids else min(pids, key=lambda pid: _age(tick, [pid]), default=None)


def _age(tick: Tick, pids: list[int]) -> int:
    """When the oldest of these processes began."""
    known = [tick.processes[pid].start_ticks for pid in pids if pid in tick.processes]
    return min(known, default=0)


def _hidden(host: Host) -> bool:
    """Whether other users' processes are out of sight: hidepid of proc(5)."""
    try:
        (host.proc / "1/cgroup").read_bytes()
    except OSError:
        return True
    return False
