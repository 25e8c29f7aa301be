"""One moment of a machine, between two samples: who uses what, sorted, as `vmsonar top` draws it."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text
from vmsonar_archive.records import Sample
from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.programs import ProgramMap, label_of
from vmsonar_inspect.show.columns import Column
from vmsonar_inspect.show.terminal.lists import Grid
from vmsonar_inspect.show.terminal.reel import KEYS, Infos

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

HELP = "q quit  ? keys  P M I G sort  p processes  ↑↓ scroll  ←→ [ ] time  space hold  End now"
KEYS_TOLD = (
    "q or F10 leaves; P, M, I, G sort by cores, memory, I/O, GPU; p shows processes or jobs; ↑ ↓ j k and page keys "
    "scroll; ← → (or T t) step by a sample, [ ] by sixty; space holds the time or goes back to now, End goes back to "
    "now; ? or h closes this"
)
#: What gives way first to the column that says what something is.
_LESS = ("io", "user", "gpu")
_TICKS = ("user_ticks", "system_ticks")
_BUSY = (*_TICKS, "nice_ticks", "irq_ticks", "softirq_ticks")
_ALL = (*_BUSY, "idle_ticks", "iowait_ticks")
_IO = ("read_bytes", "write_bytes")
_MEMORY = {"job": "memory", "process": "resident", "container": "memory_used"}
_NANO = 1e9


@dataclass(frozen=True, slots=True)
class TopRow:
    """A job, container or process now; None is unknown."""

    name: str
    what: str
    user: str
    cores: float | None
    memory: float | None
    io: float | None
    gpu: float | None


#: The fields that are columns: rank, title and how each is written.
_COLUMNS: dict[str, tuple[int, str, Callable[[Any], str]]] = {
    "user": (2, "user", str),
    "cores": (1, "cores", units.cores),
    "memory": (3, "memory", units.size),
    "io": (4, "I/O", units.rate),
    "gpu": (5, "GPU", units.percent),
    "what": (6, "what", str),
}


def _column(name: str, rank: int, title: str, write: Callable[[Any], str]) -> Column:
    return Column(
        "", rank, title, lambda row: write(getattr(row, name)), write is not str, widest=70, least=16
    )


class Instant:
    """What happened between a sample and the one before it."""

    def __init__(self, infos: Infos, programs: ProgramMap, now: Sample, before: Sample | None) -> None:
        is_next = before is not None and before.boot == now.boot and before.boottime < now.boottime
        self.now, self._before = now, before if is_next else None
        self._infos, self._programs = infos, programs
        self.seconds = (now.boottime - before.boottime) / _NANO if before is not None and is_next else None
        self._ticks = next((node.ticks_per_second for node in now.node if node.ticks_per_second), 100)
        self._gpu: dict[tuple[str, int | str], float] = defaultdict(float)
        boxes = {job.pgid: self._info("job", job, "container_id") for job in now.job}
        for row in now.gpu_process:
            group, util = row.pgid or 0, row.gpu_util or 0.0
            self._gpu["process", row.pid] += util
            self._gpu["job", group] += util
            self._gpu["container", boxes.get(group, "")] += util

    def _info(self, kind: str, row: Any, *names: str) -> str:
        """The first that is known of what does not change."""
        return _part(self._infos.get((kind, *_key(row, KEYS[kind]))), *names)

    def _pairs(self, kind: str, names: Sequence[str]) -> list[tuple[Any, Any]]:
        """Every row of a kind with the one before it."""
        earlier = {_key(row, names): row for row in getattr(self._before, kind, [])}
        return [(row, earlier.get(_key(row, names))) for row in getattr(self.now, kind)]

    def _rate(self, pair: tuple[Any, Any], names: Sequence[str]) -> float | None:
        """How fast some counters rose together; None where one is not known or began anew."""
        counts: list[list[Any]] = [[getattr(row, name, None) for row in pair] for name in names]
        if self.seconds is None or any(None in each for each in counts):
            return None
        risen = [now - before for now, before in counts]
        return None if min(risen) < 0 else sum(risen) / self.seconds

    @cached_property
    def _pace(self) -> tuple[float, float]:
        """How much faster than our clock the counters of the CPUs ran (they are read later where it is busy), and CPUs.

        As the view node_clocks has it.
        """
        cpus = next((node.cpus_online for node in self.now.node if node.cpus_online), None)
        pair = next(iter(self._pairs("node", ())), (None, None))
        ticks = self._rate(pair, _ALL)
        steal = self._rate(pair, ("steal_ticks",)) or 0.0
        pace = None if ticks is None or cpus is None else (ticks + steal) / self._ticks / cpus
        return pace if pace is not None and 0.25 <= pace <= 4 else 1.0, cpus or math.inf

    def _cores(self, pair: tuple[Any, Any], names: Sequence[str], scale: float) -> float | None:
        """The cores that some counters tell of: never more than there are."""
        rate, (pace, cpus) = self._rate(pair, names), self._pace
        return None if rate is None else min(rate / scale / pace, cpus)

    def _rows(self, kind: str, say: Callable[[Any, Any], tuple[str, str]]) -> list[TopRow]:
        """The rows of a kind; `say` tells the name and what it is."""
        found = []
        cpu, scale = (("cpu_time",), _NANO) if kind == "container" else (_TICKS, self._ticks)
        for pair in self._pairs(kind, KEYS[kind]):
            row, key = pair[0], _key(pair[0], KEYS[kind])
            info = self._infos.get((kind, *key))
            name, what = say(row, info)
            user = str(_part(info, "user_name", "user_id")) or None
            figures = self._cores(pair, cpu, scale), getattr(row, _MEMORY[kind]), self._rate(pair, _IO)
            if getattr(row, "processes", None) != 0:
                gpu = self._gpu.get((kind, key[0]))
                found.append(TopRow(plain(name), plain(what), plain(user), *figures, gpu))
        return found

    @cached_property
    def processes(self) -> list[TopRow]:
        return self._rows("process", lambda row, info: (str(row.pid), _part(info, "command", "program")))

    @cached_property
    def containers(self) -> list[TopRow]:
        return self._rows(
            "container",
            lambda row, info: (_part(info, "name") or row.container_id[:12], _part(info, "image")),
        )

    @cached_property
    def jobs(self) -> list[TopRow]:
        """Process groups that live, each called by its busiest member."""
        busiest: dict[int | None, tuple[float, tuple[Any, ...]]] = {}
        for row, process in zip(self.now.process, self.processes, strict=True):
            known = busiest.get(row.pgid)
            if known is None or (process.cores or 0.0) > known[0]:
                busiest[row.pgid] = process.cores or 0.0, ("process", *_key(row, KEYS["process"]))

        def say(row: Any, info: Any) -> tuple[str, str]:
            inner = self._infos.get(busiest[row.pgid][1]) if row.pgid in busiest else None
            command, busy = (_part(each, "command", "program") for each in (info, inner))
            label = label_of(self._programs, command, busy, _part(inner, "libraries"))[1]
            return _part(info, "job_id") or str(row.pgid), label

        return self._rows("job", say)

    def machine(self) -> str:
        """`1.8 of 2 cores, memory 4.1 GiB of 24 GiB, …`."""
        if not self.now.node:
            return "no figures of the machine"
        node = self.now.node[0]
        known = node.memory_total is not None and node.memory_available is not None
        used = (node.memory_total or 0) - (node.memory_available or 0) if known else None
        cores = self._cores(self._pairs("node", ())[0], _BUSY, self._ticks)
        told = f"{units.cores(cores)} of {units.plural(node.cpus_online, 'core')}, load {units.cores(node.load1)}"
        told += f", memory {units.size(used)} of {units.size(node.memory_total)}"
        return told + "".join(f", GPU {gpu.gpu_index} {units.percent(gpu.gpu_util)}" for gpu in self.now.gpu)


def _key(row: Any, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in names)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _part(info: Any, *names: str) -> str:
    """The first of some names that is known."""
    return next((text for name in names if (text := getattr(info, name, None))), "")


@dataclass
class TopScreen:
    """What the person looks at."""

    zone: tzinfo
    order: str = "cores"
    by_process: bool = False
    first: int = 0
    has_help: bool = False
    told: str = ""
    instant: Instant | None = None

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        if (instant := self.instant) is None:
            yield Text("waiting for the first sample …")
            return
        keys = Text(KEYS_TOLD, style="reverse") if self.has_help else _line(HELP, "reverse")
        width = options.max_width
        room = console.size.height - 2 - (len(keys.wrap(console, width)) if self.has_help else 1)
        over = "the first sample" if instant.seconds is None else f"over {instant.seconds:.1f} s"
        time = f"{in_zone(instant.now.time, self.zone):%Y-%m-%d %H:%M:%S %Z}, {over}"
        head = _line(f"{time}  {self.told}, by {self.order}", "bold")
        boxes = [] if self.by_process else instant.containers
        below = min(len(boxes) + 1, room // 3) if boxes else 0
        rows, title = (instant.processes, "process") if self.by_process else (instant.jobs, "job")
        # Nobody scrolls past the last row.
        self.first = max(0, min(self.first, len(rows) - (room - below - 1)))
        tables = [self._table(title, rows, room - below, self.first, width)]
        tables += [self._table("container", boxes, below, 0, width)] if boxes else []
        yield Group(head, _line(instant.machine()), *tables, keys)

    def _table(self, title: str, rows: list[TopRow], lines: int, first: int, width: int) -> Grid:
        ordered = sorted(rows, key=lambda row: (-(getattr(row, self.order) or 0.0), -(row.cores or 0.0)))
        gpus = self.instant is not None and bool(self.instant.now.gpu)
        columns = {name: _column(name, *each) for name, each in _COLUMNS.items() if gpus or name != "gpu"}
        first_column = _column("name", 0, f"{title} ({len(rows)})", str)
        for less in ("", *_LESS):
            if less != self.order:
                columns.pop(less, None)
            grid = Grid([first_column, *columns.values()], ordered[first : first + lines - 1])
            if grid.shows(len(columns), width):
                break
        return grid
