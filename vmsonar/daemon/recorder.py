"""Takes samples: runs all collectors for one tick, adds what that cost, and appends the result to an archive."""

import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.records import CostRow, EventRow, GapRow, SysInfo
from vmsonar_archive.write.losses import AppendFailed
from vmsonar_archive.write.writer import ArchiveWriter

from vmsonar.collectors.base import Collector, Rows, Tick
from vmsonar.collectors.registry import COLLECTORS, Entry
from vmsonar.daemon.guards import Guard
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Watchdog
from vmsonar.host.clock import Clock
from vmsonar.host.proc_pid import PPID, read_stat

# Our own children, whatever root the collectors look below.
_PROC = Path("/proc")


def _no_hurry() -> bool:
    return False


class Sampler:
    """Runs the collectors in their order; those on threads run beside the others."""

    def __init__(self, collectors: Sequence[Collector], interval: float, clock: Clock, log: Log) -> None:
        self.collectors = collectors
        self._guards = [Guard(collector, interval, clock, log) for collector in collectors]

    def sample(self, tick: Tick, hurry: Callable[[], bool] = _no_hurry) -> Rows:
        """The rows of one tick; never raises for what a collector does."""
        rows = Rows()
        for one in self._guards:
            one.start(tick)
        for one in self._guards:
            one.add_to(rows, tick, hurry)
        return rows

    def companions(self) -> list[int]:
        """The helper processes that run now."""
        pids = [collector.companion_pid for collector in self.collectors]
        return [pid for pid in pids if pid is not None]

    def close(self) -> None:
        for one in self._guards:
            one.close()


def child_cpu_time(running: Iterable[int]) -> int:
    """Nanoseconds of CPU; a child that ends moves from one part of the sum to the other."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((usage.ru_utime + usage.ru_stime) * 1e9) + sum(map(_running_time, running))


def _running_time(pid: int) -> int:
    """CPU time of our own child; a companion started by a service manager is its own unit's cost."""
    try:
        fields = read_stat(_PROC, pid)
        if fields is None or int(fields[PPID]) != os.getpid():
            return 0
        return int((_PROC / str(pid) / "schedstat").read_bytes().split(None, 1)[0])
    except (OSError, ValueError):
        return 0


@dataclass(slots=True)
class Surroundings:
    """What outlives an archive and a configuration."""

    clock: Clock
    log: Log
    watchdog: Watchdog
    entries: Sequence[Entry] = COLLECTORS


class Recorder:
    """One sampler that fills one archive."""

    def __init__(self, sampler: Sampler, writer: ArchiveWriter, boot: str, around: Surroundings) -> None:
        self.sampler = sampler
        self.writer = writer
        self.samples = 0
        self._boot = boot
        self._clock = around.clock
        self._log = around.log
        self._watchdog = around.watchdog
        self._trouble: str | None = None

    def record(
        self,
        events: Iterable[EventRow] = (),
        late: int = 0,
        hurry: Callable[[], bool] = _no_hurry,
        last_events: Callable[[], Iterable[EventRow]] = tuple,
        gaps: Iterable[GapRow] = (),
    ) -> bool:
        """Takes one sample; `last_events` is asked after collecting, when it may have become the last one.

        False when it could not be written.
        """
        began, now = self._clock.monotonic_ns(), self._clock.now()
        tick = Tick(
            time=now,
            boottime=self._clock.boottime_ns(),
            boot=self._boot,
            fresh=self.writer.begins_segment(now),
        )
        self._watchdog.collecting()
        rows = self.sampler.sample(tick, hurry)
        for event in (*events, *last_events()):
            rows.add("event", event)
        for gap in gaps:
            rows.add("gap", gap)
        cost = CostRow(
            cpu_time=time.process_time_ns(),
            child_cpu_time=child_cpu_time(self.sampler.companions()),
            wall_time=self._clock.monotonic_ns() - began,
            late_time=late,
            bytes_written=self.writer.bytes_written,
            samples_lost=self.writer.samples_lost,
        )
        rows.add("cost", cost)
        self._watchdog.resting()
        written = self._write(lambda: self.writer.append(tick.time, tick.boot, tick.boottime, rows.by_kind))
        self.writer.maintain()
        self.samples += 1
        return written

    def describe(self, info: SysInfo) -> None:
        """Appends a sysinfo record."""
        self._write(lambda: self.writer.append_sysinfo(info))

    def _write(self, append: Callable[[], int]) -> bool:
        """Appends; a disk that fails is logged when it begins to and when it is well again."""
        before, self._trouble = self._trouble, None
        try:
            append()
        except AppendFailed as error:
            self._trouble = error.reason
            if error.reason != before:
                self._log.error(str(error))
            return False
        if before is not None:
            lost = self.writer.samples_lost
            self._log.warning(f"writing to {self.writer.root} again; {lost} samples were lost so far")
        return True
