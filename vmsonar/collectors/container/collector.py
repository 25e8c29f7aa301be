"""Containers: numbers from their control groups, names and events from the companion, and what can be seen here."""

import os
import resource
from collections.abc import Mapping
from importlib.util import find_spec

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, ContainerInfoRow, Engine
from vmsonar_archive.system.errors import way_to_add

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles
from vmsonar.collectors.container.book import Book
from vmsonar.collectors.container.cgroup import Descriptors, Hierarchies
from vmsonar.collectors.container.link import COMPANION_SOCKET, Companion, Link
from vmsonar.collectors.container.live import Live, LiveContainers
from vmsonar.collectors.container.network import Networks
from vmsonar.collectors.container.owner import Owners, event_row, info_row, owner_of, seen_event
from vmsonar.collectors.container.wire import ContainerFacts, engine_sockets
from vmsonar.host.users import Users

# Limits, owners and names of users change by hand, if ever.
_RARELY_NS = 60_000_000_000


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
        self._add_numbers(rows, rare)
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
        return container_capabilities(self._setup, self._live.hierarchies)

    def close(self) -> None:
        self._live.close()
        self._link.close()

    def _add_numbers(self, rows: Rows, everything: bool) -> None:
        self._networks.begin(self._live.by_id)
        for live in self._live.by_id.values():
            pid = live.pid or self._engine_pid(live.container_id)
            if pid is not None and (everything or live.reader.active):
                live.reader.put(self._networks.of(live.container_id, pid) or {})
        rows.extend("container", [live.reader.encoded() for live in self._live.by_id.values()])
        # A container that ended since the last sample: its last reading. One that runs again has a row.
        ended = [row for name, row in self._book.ends.items() if name not in self._live.by_id]
        rows.extend("container", [encode_row(row) for row in ended])

    def _add_infos(self, rows: Rows, fresh: bool, rare: bool) -> None:
        if fresh:
            self._infos.clear()
        mentioned = self._mentioned()
        changed = self._book.changed | mentioned
        for container_id in [*self._live.by_id, *sorted(mentioned - self._live.by_id.keys())]:
            if rare or container_id in changed or container_id not in self._infos:
                encoded = encode_row(self._info(container_id))
                if self._infos.get(container_id) != encoded:
                    self._infos[container_id] = encoded
                    rows.extend("container_info", [encoded])

    def _mentioned(self) -> set[str]:
        """Containers that something happened to, whether they live or not."""
        return {event.container_id for event in self._book.events} | self._book.ends.keys()

    def _info(self, container_id: str) -> ContainerInfoRow:
        live = self._live.by_id.get(container_id) or self._live.departed.get(container_id)
        facts = self._book.facts.get(container_id)
        owners = self._owners(live, facts)
        engine, cgroup = (live.engine, live.cgroup) if live else (None, None)
        return info_row(self._setup.ids, container_id, facts, owners, self._users.name, engine, cgroup)

    def _owners(self, live: Live | None, facts: ContainerFacts | None) -> Owners | None:
        proc = self._setup.host.proc
        if live is None:
            return owner_of(proc, None, None, None, facts)
        if live.container_id in self._live.by_id:
            live.owners = owner_of(proc, live.engine, live.cgroup, live.pid, facts)
            return live.owners
        # Its process id may be another's by now.
        return live.owners or owner_of(proc, live.engine, live.cgroup, None, facts)

    def _add_events(self, rows: Rows, came: list[str], went: list[str]) -> None:
        for event in self._book.events:
            rows.add("event", event_row(self._setup.ids, event))
        if self._book.heard or self._first:
            return
        for action, found in (("start", came), ("die", went)):
            for container_id in found:
                rows.add("event", seen_event(self._setup.ids, action, container_id))

    def _current_troubles(self) -> list[Trouble]:
        """Why names are missing; once the companion is lost, what it last said of engines is old."""
        state, detail = self._link.state, self._link.detail
        if state == "ok":
            return self._book.troubles()
        if state == "absent" and not self._book.heard and not self._named_by_an_engine():
            return []
        return [(state if state == "companion" else f"engine_{state}", detail)]

    def _named_by_an_engine(self) -> bool:
        """Whether there are containers whose names we could know."""
        return any(live.engine in ("docker", "podman") for live in self._live.by_id.values())

    def _engine_pid(self, container_id: str) -> int | None:
        facts = self._book.facts.get(container_id)
        return facts.pid if facts else None


def make(setup: Setup) -> Collector:
    containers = setup.config.containers
    companion = Companion(
        sockets=engine_sockets(containers, setup.host.run),
        labels=containers.labels,
        command_line=setup.config.command_line,
    )
    return ContainerCollector(setup, Link(setup.host.run, companion, setup.clock))


_COLLECTOR = "container"


def container_capabilities(setup: Setup, hierarchies: Hierarchies) -> list[Capability]:
    """The numbers, and the names."""
    return [_numbers(hierarchies.mode), _io(hierarchies), _names(setup)]


def _numbers(mode: str | None) -> Capability:
    item = "CPU and memory of containers"
    if mode is None:
        return _missing(item, "no control groups are mounted", "mount cgroup2 on /sys/fs/cgroup")
    return Capability(collector=_COLLECTOR, item=f"{item} (cgroup {mode})", available=True)


def _io(hierarchies: Hierarchies) -> Capability:
    item = "I/O of containers"
    if hierarchies.counts_io():
        return Capability(collector=_COLLECTOR, item=item, available=True)
    reason = "with cgroup v1 this kernel counts only disks that have a throttle rule"
    return _missing(item, reason, "boot with cgroup v2: systemd.unified_cgroup_hierarchy=1")


def _names(setup: Setup) -> Capability:
    item = "names, images and events of containers"
    if setup.config.containers.engine == "none":
        return _missing(item, "switched off by containers.engine: none", "set containers.engine: auto")
    if os.access(setup.host.run / COMPANION_SOCKET, os.R_OK | os.W_OK):
        return Capability(collector=_COLLECTOR, item=item, available=True)
    sockets = engine_sockets(setup.config.containers, setup.host.run)
    there = [path for path in sockets if os.path.exists(path)]
    if not there:
        remedy = "start Docker, or enable podman.socket, or set containers.socket"
        return _missing(item, f"no engine socket: {', '.join(sockets)}", remedy)
    if not any(os.access(path, os.R_OK | os.W_OK) for path in there):
        remedy = "enable the companion's unit, vmsonar-containers.service: it alone is in the engine's group"
        return _missing(item, f"no permission to use {there[0]}, and no companion runs", remedy)
    if find_spec("docker") is None:
        return _missing(item, "the docker SDK is not installed", way_to_add("docker"))
    return Capability(collector=_COLLECTOR, item=item, available=True)


def _missing(item: str, reason: str, remedy: str) -> Capability:
    return Capability(collector=_COLLECTOR, item=item, available=False, reason=reason, remedy=remedy)
