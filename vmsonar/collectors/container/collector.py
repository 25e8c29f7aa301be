"""Containers: numbers from their control groups, names and events from the companion, and what can be seen here."""

import os
import resource
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from importlib.util import find_spec

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, ContainerInfoRow, ContainerRow, Engine
from vmsonar_archive.system.errors import way_to_add

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles, capability
from vmsonar.collectors.container.cgroup import Descriptors, Group, GroupReader, Hierarchies, end_row
from vmsonar.collectors.container.link import COMPANION_SOCKET, Book, Companion, Link
from vmsonar.collectors.container.network import Networks
from vmsonar.collectors.container.owner import Owners, event_row, info_row, owner_of, parse_time
from vmsonar.collectors.container.wire import ContainerEvent, ContainerFacts, engine_sockets
from vmsonar.host.cgroups import membership
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host
from vmsonar.host.users import Users

# Why something cannot be counted, and what would change that.
_UNMOUNTED = ("no control groups are mounted", "mount cgroup2 on /sys/fs/cgroup")
_UNCOUNTED = (
    "with cgroup v1 this kernel counts only disks that have a throttle rule",
    "boot with cgroup v2: systemd.unified_cgroup_hierarchy=1",
)
# Limits, owners and names of users change by hand, if ever.
_RARELY_NS = 60_000_000_000
# How many processes of a container are asked where it is, and how many containers that went are remembered.
_TRIES = 3
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# An engine tells of a start at most that long after the first process, whose start is in coarser ticks.
_LATEST_START = 30_000_000_000
_REMEMBERED = 256


@dataclass(slots=True)
class Live:
    """One container that lives."""

    container_id: str
    reader: GroupReader[ContainerRow]
    #: Its oldest process, unknown where processes cannot be seen.
    pid: int | None
    engine: str | None
    cgroup: str | None
    #: Its owners, found while its processes could still be read.
    owners: Owners | None = None
    #: Boot clock of its last reading.
    read_at: int = 0
    #: Whether the engine's start was compared with that of the first process.
    is_dated: bool = False


class LiveContainers:
    """Follows which containers there are, oldest first."""

    def __init__(self, host: Host, descriptors: Descriptors) -> None:
        self.hierarchies = Hierarchies(host)
        self._descriptors = descriptors
        # hidepid of proc(5) puts other users' processes out of sight.
        self._processes_hidden = read_text(host.proc / "1/cgroup") is None
        self.by_id: dict[str, Live] = {}
        #: The last ones that went: the engine tells of an end after it.
        self.departed: dict[str, Live] = {}
        #: Those that went since the last sample.
        self.lost: list[Live] = []

    def update(self, tick: Tick, everything: bool) -> tuple[list[str], list[str]]:
        """Reads every container; returns the ids that came and those that went."""
        before = set(self.by_id)
        self.lost = []
        # What the tree itself shows, where processes do not tell.
        walked = self.hierarchies.walk() if self._processes_hidden or not tick.processes else None
        seen: Mapping[str, list[int]] = tick.containers if walked is None else {key: [] for key in walked}
        for container_id in before - seen.keys():
            self._drop(container_id)
        for live in list(self.by_id.values()):
            pids = seen[live.container_id]
            if live.pid not in pids:
                live.pid = min(pids, key=lambda pid: _age(tick, [pid]), default=None)
            self._complete(live)
            if live.reader.read(everything):
                live.read_at = tick.boottime
            else:
                self._drop(live.container_id)
        new = [container_id for container_id in seen if container_id not in self.by_id]
        for container_id in sorted(new, key=lambda name: _age(tick, seen[name])):
            self._add(container_id, seen[container_id], tick, walked)
        after = set(self.by_id)
        return sorted(after - before), sorted(before - after)

    def close(self) -> None:
        for container_id in list(self.by_id):
            self._drop(container_id)

    def _add(self, container_id: str, pids: list[int], tick: Tick, walked: dict[str, Group] | None) -> None:
        group = walked[container_id] if walked is not None else None
        oldest = sorted(pids, key=lambda pid: _age(tick, [pid]))
        for pid in oldest[:_TRIES]:
            group = group or self.hierarchies.of_process(pid, container_id)
        if group is None:
            return
        reader = GroupReader(ContainerRow(container_id=container_id), group, self._descriptors)
        if not reader.read(everything=True):
            reader.close()
            return
        engine = membership(f"0::{group.path}\n".encode()).engine
        first = oldest[0] if oldest else None
        if first is not None and first in tick.processes:
            reader.row.start_boottime = tick.processes[first].start_ticks * _TICK_NS
        self.by_id[container_id] = Live(
            container_id, reader, first, engine, group.path, read_at=tick.boottime
        )

    def _complete(self, live: Live) -> None:
        """Looks for the groups of a new container once more: with v1 it joins one hierarchy after the other."""
        if live.reader.settling and live.pid is not None:
            group = self.hierarchies.of_process(live.pid, live.container_id)
            if group is not None:
                live.reader.add(group)

    def _drop(self, container_id: str) -> None:
        live = self.by_id.pop(container_id)
        live.reader.close()
        self.lost.append(live)
        self.departed[container_id] = live
        if len(self.departed) > _REMEMBERED:
            del self.departed[next(iter(self.departed))]


def _age(tick: Tick, pids: list[int]) -> int:
    """When the oldest of these processes began."""
    known = [tick.processes[pid].start_ticks for pid in pids if pid in tick.processes]
    return min(known, default=0)


class ContainerCollector(Collector):
    """Rows per container, an info row when it changes, and what happened since the last sample."""

    name = "container"
    kinds = ("container", "container_info", "event")

    def __init__(self, setup: Setup, link: Link) -> None:
        self._setup = setup
        self._link = link
        self._book = Book()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._live = LiveContainers(setup.host, Descriptors(soft // 4))
        self._networks = Networks(setup.host.proc)
        self._users = Users(setup.host.etc / "passwd", ask_system=setup.host.is_this_machine)
        #: The info rows of this segment.
        self._infos: dict[str, bytes] = {}
        self._rarely_due = 0
        self._first = True
        self._told: list[Engine] = []
        self._troubles = Troubles(self.name)

    @property
    def companion_pid(self) -> int | None:
        """The companion's process, for what it costs."""
        return self._link.pid

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        self._book.take(self._link.messages())
        rare = tick.boottime >= self._rarely_due
        if rare:
            self._rarely_due = tick.boottime + _RARELY_NS
            self._users.refresh()
        came, went = self._live.update(tick, rare)
        self._add_numbers(rows, tick, rare)
        self._add_infos(rows, tick.fresh, rare)
        self._add_events(rows, came, went)
        self._troubles.tell(self._current_troubles(), tick, rows)
        self._first = False
        return rows

    def describe(self) -> Mapping[str, list[Engine]]:
        self._told = self._book.engines()
        return {"engines": self._told} if self._told else {}

    def has_news(self) -> bool:
        engines = self._book.engines()
        return bool(engines) and engines != self._told

    def settle(self, seconds: float) -> None:
        self._book.keep(self._link.settled(seconds))

    def capabilities(self) -> list[Capability]:
        mode = self._live.hierarchies.mode
        counted = f"CPU and memory of containers (cgroup {mode})" if mode else "CPU and memory of containers"
        found = (
            (counted, None if mode else _UNMOUNTED),
            ("I/O of containers", None if self._live.hierarchies.counts_io() else _UNCOUNTED),
            ("names, images and events of containers", _why_nameless(self._setup)),
        )
        return [capability(self.name, item, *(why or ())) for item, why in found]

    def close(self) -> None:
        self._live.close()
        self._link.close()

    def _add_numbers(self, rows: Rows, tick: Tick, everything: bool) -> None:
        self._networks.begin(self._live.by_id)
        for live in self._live.by_id.values():
            facts = self._book.facts.get(live.container_id)
            if facts is not None and (not live.is_dated or live.container_id in self._book.changed):
                self._date(live, facts, tick)
            pid = live.pid or (facts.pid if facts else None)
            if pid is not None and (everything or live.reader.active):
                since = live.reader.row.start_boottime
                live.reader.put(self._networks.of(live.container_id, pid, since) or {})
        # Lives that ended come before those that go on: a container may have been started again.
        ended = [*map(self._best_known, self._book.ends), *self._unheard_ends(tick)]
        rows.extend("container", [encode_row(row) for row in ended])
        over = {row.cgroup_inode for row in ended}
        readers = (live.reader for live in self._live.by_id.values())
        rows.extend("container", [each.encoded() for each in readers if _is_living(each.row, over)])

    def _date(self, live: Live, facts: ContainerFacts, tick: Tick) -> None:
        """Takes the engine's start for this life's, unless it is of another one."""
        live.is_dated = True
        first, started = live.reader.row.start_boottime, parse_time(facts.started)
        if started is None:
            return
        start = tick.boottime - round((tick.time - started).total_seconds() * 1e9)
        if first is None or first <= start < first + _LATEST_START:
            live.reader.put({"start_boottime": start})

    def _best_known(self, row: ContainerRow) -> ContainerRow:
        """The row of an end; where the companion came too late, with our own last reading if that is newer."""
        known = self._live.by_id.get(row.container_id) or self._live.departed.get(row.container_id)
        if row.cpu_time_high is None or row.end_boottime is None or known is None:
            return row
        ours = known.reader.row
        if (ours.cpu_time or 0) <= (row.cpu_time or 0) or row.cgroup_inode not in (None, ours.cgroup_inode):
            return row
        source = "final" if known.read_at >= row.end_boottime else "reading"
        newer = end_row(copy(ours), row.end_boottime, source, known.read_at)
        if newer.cpu_time_high is not None:
            newer.cpu_time_high = min(newer.cpu_time_high, row.cpu_time_high)
        newer.start_boottime = row.start_boottime or ours.start_boottime
        return newer

    def _unheard_ends(self, tick: Tick) -> list[ContainerRow]:
        """Rows for containers that went and of which no engine tells: they ended after our last reading."""
        told = {row.cgroup_inode for row in self._book.ends}
        heard = self._book.facts if self._link.state == "ok" else {}
        lost = [live for live in self._live.lost if live.container_id not in heard]
        rows = []
        for live in lost:
            if live.reader.row.cgroup_inode not in told:
                row = end_row(live.reader.row, tick.boottime, "reading", live.read_at)
                row.end_boottime = live.read_at
                rows.append(row)
        return rows

    def _add_infos(self, rows: Rows, fresh: bool, rare: bool) -> None:
        if fresh:
            self._infos.clear()
        # Containers that something happened to, whether they live or not.
        mentioned = {event.container_id for event in self._book.events}
        mentioned |= {row.container_id for row in self._book.ends}
        changed = self._book.changed | mentioned
        for container_id in [*self._live.by_id, *sorted(mentioned - self._live.by_id.keys())]:
            if rare or container_id in changed or container_id not in self._infos:
                encoded = encode_row(self._info(container_id))
                if self._infos.get(container_id) != encoded:
                    self._infos[container_id] = encoded
                    rows.extend("container_info", [encoded])

    def _info(self, container_id: str) -> ContainerInfoRow:
        live, departed = self._live.by_id.get(container_id), self._live.departed.get(container_id)
        known = live or departed
        engine, cgroup = (known.engine, known.cgroup) if known else (None, None)
        facts = self._book.facts.get(container_id)
        # The process id of one that went may be another's by now.
        owners = departed.owners if departed and not live else None
        pid = live.pid if live else None
        owners = owners or owner_of(self._setup.host.proc, engine, cgroup, pid, facts)
        if live:
            live.owners = owners
        return info_row(self._setup.ids, container_id, facts, owners, self._users.name, engine, cgroup)

    def _add_events(self, rows: Rows, came: list[str], went: list[str]) -> None:
        for event in self._book.events:
            rows.add("event", event_row(self._setup.ids, event))
        if self._book.heard or self._first:
            return
        for action, found in (("start", came), ("die", went)):
            for container_id in found:
                event = ContainerEvent(
                    container_id=container_id, action=action, time_ns=0, detail="seen in the control groups"
                )
                rows.add("event", event_row(self._setup.ids, event))

    def _current_troubles(self) -> list[Trouble]:
        """Why names are missing; once the companion is lost, what it last said of engines is old."""
        state, detail = self._link.state, self._link.detail
        if state == "ok":
            return self._book.troubles()
        have_names = any(live.engine in ("docker", "podman") for live in self._live.by_id.values())
        if state == "absent" and not self._book.heard and not have_names:
            return []
        return [(state if state == "companion" else f"engine_{state}", detail)]


def _is_living(row: ContainerRow, over: set[int | None]) -> bool:
    """Whether a row is a sample: a group in which nobody is left is about to go."""
    return row.processes != 0 and row.cgroup_inode not in over


def make(setup: Setup) -> Collector:
    containers = setup.config.containers
    companion = Companion(
        sockets=engine_sockets(containers, setup.host.run),
        labels=containers.labels,
        command_line=setup.config.command_line,
    )
    return ContainerCollector(setup, Link(setup.host.run, companion, setup.clock))


def _why_nameless(setup: Setup) -> tuple[str, str] | None:
    """Why no engine can be asked, and what would change that."""
    if setup.config.containers.engine == "none":
        return "switched off by containers.engine: none", "set containers.engine: auto"
    if os.access(setup.host.run / COMPANION_SOCKET, os.R_OK | os.W_OK):
        return None
    sockets = engine_sockets(setup.config.containers, setup.host.run)
    there = [path for path in sockets if os.path.exists(path)]
    if not there:
        remedy = "start Docker, or enable podman.socket, or set containers.socket"
        return f"no engine socket: {', '.join(sockets)}", remedy
    if not any(os.access(path, os.R_OK | os.W_OK) for path in there):
        remedy = "enable the companion's unit, vmsonar-containers.service: it alone is in the engine's group"
        return f"no permission to use {there[0]}, and no companion runs", remedy
    if find_spec("docker") is None:
        return "the docker SDK is not installed", way_to_add("docker")
    return None
