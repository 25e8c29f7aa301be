"""What a collector is and is given; files read once per tick, rows encoded once, troubles said once."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import msgspec
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, GapRow, Row
from vmsonar_archive.records.ids import SeriesIds

from vmsonar.config.schema import Config
from vmsonar.host.cgroups import Unit
from vmsonar.host.clock import Clock
from vmsonar.host.files import KeptFile
from vmsonar.host.mounts import MountTable
from vmsonar.host.proc_pid import PPID, read_stat
from vmsonar.host.roots import Host


@dataclass(slots=True, kw_only=True, eq=False)
class ProcessFacts:
    """What other collectors need to know about a live process."""

    #: When it started, in ticks after boot.
    start_ticks: int = -1
    pgid: int = 0


@dataclass(slots=True)
class Tick:
    """One moment of sampling, as every collector sees it."""

    time: datetime
    boottime: int
    boot: str
    #: A new segment begins: info rows are due for every series, changed or not.
    fresh: bool
    #: The last one of this run: what comes late is waited for, because no later tick could take it up.
    is_last: bool = False
    #: Filled by the process collector, which runs first; empty when it is switched off.
    processes: Mapping[int, ProcessFacts] = field(default_factory=dict)
    #: Live processes by container id, and by unit, filled by the process collector too.
    containers: Mapping[str, list[int]] = field(default_factory=dict)
    units: Mapping[Unit, set[int]] = field(default_factory=dict)
    #: The numbers of batch jobs whose control groups are named after their SLUID.
    batch_numbers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Descent:
    """One command: only what descends from it is recorded as processes. Before it is named nobody is."""

    root: int = 0
    #: Its descendants that are alive, as far as they are known.
    members: set[int] = field(default_factory=set)
    #: Group and session that it has in common with whoever started it.
    shared: tuple[int, int] = (0, 0)
    #: Its parents, one of whom its orphans go to (prctl(2), PR_SET_CHILD_SUBREAPER).
    ancestors: set[int] = field(default_factory=set)
    #: Path of the control group that holds nothing else, where there is one.
    group: str | None = None

    def begin(self, pid: int, proc: Path) -> None:
        """Names the command, which has been started and has no children yet."""
        self.shared = (os.getpgid(pid), os.getsid(pid))
        above = pid
        while (stat := read_stat(proc, above)) is not None:
            above = int(stat[PPID])
            self.ancestors.add(above)
        self.members.add(pid)
        self.root = pid


class SharedFile(KeptFile):
    """A file that several collectors need at the same tick: read once for all of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._tick = -1
        self._content = b""

    def read_at(self, tick: Tick) -> bytes:
        """The content at this tick."""
        if tick.boottime != self._tick:
            self._content = self.read()
            self._tick = tick.boottime
        return self._content


def numbers(content: bytes, wanted: dict[bytes, str], factor: int = 1) -> dict[str, int]:
    """The wanted numbers that are there, by the names of their fields; a key is given with the line feed before it."""
    content = b"\n" + content
    found = {}
    for key, name in wanted.items():
        start = content.find(key) + len(key)
        if start >= len(key):
            # A counter has at most 20 digits; meminfo pads with blanks in front.
            found[name] = int(content[start : start + 32].split(None, 1)[0]) * factor
    return found


class Rows:
    """Encoded rows by kind; unchanged ones are put in as the bytes they were last time."""

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[str, list[bytes]] = {}

    def add(self, kind: str, row: msgspec.Struct) -> None:
        self.by_kind.setdefault(kind, []).append(encode_row(row))

    def extend(self, kind: str, encoded: list[bytes]) -> None:
        if encoded:
            self.by_kind.setdefault(kind, []).extend(encoded)

    def gap(self, collector: str, reason: str, detail: str | None = None) -> None:
        self.add("gap", GapRow(collector=collector, reason=reason, detail=detail))

    def merge(self, other: "Rows") -> None:
        for kind, encoded in other.by_kind.items():
            self.extend(kind, encoded)


class Collector(ABC):
    """Reads one part of the machine. It may raise: the sampler turns that into a gap row and goes on."""

    #: Name in the configuration, in gap rows and in `vmsonar doctor`.
    name: ClassVar[str]
    #: The kinds of rows it makes.
    kinds: ClassVar[tuple[str, ...]]
    #: Seconds after which `collect` is given up; one that has a limit may block, and runs on a thread of its own.
    time_limit: float | None = None

    @abstractmethod
    def collect(self, tick: Tick) -> Rows:
        """The rows of this tick."""

    @abstractmethod
    def capabilities(self) -> list[Capability]:
        """What could be collected here, what cannot, and what would change that."""

    def may_block(self) -> bool:
        """Whether the next `collect` may block; where it cannot, its thread is left alone. Must itself be quick."""
        return True

    def overdue(self, waited: float) -> tuple[Rows, str]:
        """Rows and the detail of the gap row for a `collect` that has not come back; called while it still runs."""
        return Rows(), f"no answer after {waited:.1f} s"

    def describe(self) -> Mapping[str, Sequence[object] | None]:
        """Lists of the sysinfo record that this collector adds to, such as `cards`; None where it cannot tell yet."""
        return {}

    def has_news(self) -> bool:
        """Whether `describe` would tell something else than it last did, such as a card whose driver came late."""
        return False

    def settle(self, seconds: float) -> None:  # noqa: B027 - most collectors know at once
        """Waits up to that many seconds for a late answer: a single sample has no second chance."""

    @property
    def companion_pid(self) -> int | None:
        """Its helper process, where it has one: what that costs is counted with us if we started it."""
        return None

    def close(self) -> None:  # noqa: B027 - most collectors hold nothing
        """Gives back what it holds."""


class Setup:
    """The machine, the configuration and the archive that a collector works for; defaults for what is not given."""

    def __init__(
        self,
        config: Config,
        host: Host | None = None,
        clock: Clock | None = None,
        ids: SeriesIds | None = None,
        machine_id: str = "",
        archive: Path | None = None,
        descent: Descent | None = None,
    ) -> None:
        self.config = config
        self.host = host or config.host
        self.clock = clock or Clock()
        self.ids = ids or SeriesIds(UUID(int=0))
        self.machine_id = machine_id
        #: The archive that is being written, or None when the sample goes to standard output.
        self.archive = archive
        #: Only the descendants of one command are recorded as processes; None: all are.
        self.descent = descent
        #: /proc/stat, read once per tick for all collectors.
        self.proc_stat = SharedFile(self.host.proc / "stat")
        #: The table of mounts, likewise. Below another root the first process has the tree of its machine.
        process = "self" if self.host.is_this_machine else "1"
        self.mounts = MountTable(self.host.proc / process / "mountinfo")


Trouble = tuple[str, str | None]


class Troubles:
    """Says each trouble of one collector once, and again in each new segment while it lasts.

    With `by_reason` a trouble whose detail changes is still the same.
    """

    def __init__(self, collector: str, by_reason: bool = False) -> None:
        self._collector = collector
        self._by_reason = by_reason
        self._since: dict[Trouble, datetime] = {}

    def tell(self, troubles: Iterable[Trouble], tick: Tick, rows: Rows) -> None:
        """Adds the gap rows that are due; a trouble that is not among these is over."""
        before, self._since = self._since, {}
        for reason, detail in troubles:
            key = (reason, None if self._by_reason else detail)
            if key in self._since:
                continue
            since = before.get(key)
            self._since[key] = since or tick.time
            if since is None or tick.fresh:
                row = GapRow(collector=self._collector, reason=reason, detail=detail, since=since)
                rows.add("gap", row)


def capability(collector: str, item: str, reason: str | None = None, remedy: str | None = None) -> Capability:
    """What a collector can see here; with a reason, what it cannot."""
    return Capability(collector=collector, item=item, available=reason is None, reason=reason, remedy=remedy)


def capabilities_of(collector: Collector) -> list[Capability]:
    """What it says of itself; where it cannot say, why not. Examining the machine never ends the recorder."""
    try:
        return collector.capabilities()
    except Exception as error:
        return [capability(collector.name, "everything", f"{type(error).__name__}: {error}")]


def readable(
    collector: str, item: str, path: Path, remedy: str | None = None, denied: str | None = None
) -> Capability:
    """A capability that is there when a file can be read; `remedy` is for an absent one, `denied` for EACCES."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except PermissionError:
        return capability(collector, item, f"{path}: no permission", denied)
    except OSError as error:
        return capability(collector, item, f"{path}: {error.strerror}", remedy)
    return capability(collector, item)


class RowCache:
    """Encoded rows by the text they were made from: unchanged text is not parsed or encoded again."""

    __slots__ = ("_encode", "_last")

    def __init__(self, encode: Callable[[bytes], bytes]) -> None:
        self._encode = encode
        self._last: dict[bytes, bytes] = {}

    def rows(self, lines: Iterable[bytes]) -> list[bytes]:
        """The rows of this tick's lines, which replace those of the last tick."""
        last, encode = self._last, self._encode
        self._last = {line: last[line] if line in last else encode(line) for line in lines}
        return list(self._last.values())


class LineCollector(Collector):
    """One row for each line of one file."""

    #: What `vmsonar doctor` calls it.
    item: ClassVar[str]

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._cache = RowCache(self._encode)

    @abstractmethod
    def lines(self, content: bytes) -> Iterable[bytes]:
        """The lines that are rows."""

    @abstractmethod
    def parse(self, line: bytes) -> Row | None:
        """One line; None for what is not recorded."""

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        encoded = self._cache.rows(self.lines(self._file.read_at(tick)))
        rows.extend(self.name, list(filter(None, encoded)))
        return rows

    def _encode(self, line: bytes) -> bytes:
        row = self.parse(line)
        return b"" if row is None else encode_row(row)

    def capabilities(self) -> list[Capability]:
        return [readable(self.name, self.item, self._file.path)]

    def close(self) -> None:
        self._file.close()
