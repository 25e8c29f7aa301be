"""Takes samples and appends them to an archive, with the row that says what they cost."""

import time
from collections.abc import Callable, Iterable

from vmsonar_archive.failures import AppendFailed
from vmsonar_archive.records import CostRow, EventRow, SysInfo
from vmsonar_archive.writer import ArchiveWriter

from vmsonar.children import child_cpu_time
from vmsonar.clock import Clock
from vmsonar.collectors.base import Tick
from vmsonar.log import Log
from vmsonar.notify import Watchdog
from vmsonar.sampler import Sampler


class Recorder:
    """One sampler that fills one archive."""

    def __init__(
        self, sampler: Sampler, writer: ArchiveWriter, boot: str, clock: Clock, log: Log, watchdog: Watchdog
    ) -> None:
        self.sampler = sampler
        self.writer = writer
        self.samples = 0
        self._boot = boot
        self._clock = clock
        self._log = log
        self._watchdog = watchdog
        self._trouble: str | None = None

    def record(
        self,
        events: Iterable[EventRow] = (),
        late: int = 0,
        hurry: Callable[[], bool] = lambda: False,
        last_events: Callable[[], Iterable[EventRow]] = tuple,
    ) -> None:
        """Takes one sample; `last_events` is asked after collecting, when it may have become the last one."""
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
        rows.add("cost", self._cost(began, late))
        self._watchdog.resting()
        self._write(lambda: self.writer.append(tick.time, tick.boot, tick.boottime, rows.by_kind))
        self.writer.maintain()
        self.samples += 1

    def describe(self, info: SysInfo) -> None:
        """Appends what the machine is."""
        self._write(lambda: self.writer.append_sysinfo(info))

    def _cost(self, began: int, late: int) -> CostRow:
        return CostRow(
            cpu_time=time.process_time_ns(),
            child_cpu_time=child_cpu_time(self.sampler.companions()),
            wall_time=self._clock.monotonic_ns() - began,
            late_time=late,
            bytes_written=self.writer.bytes_written,
            samples_lost=self.writer.samples_lost,
        )

    def _write(self, append: Callable[[], int]) -> None:
        """Appends; a disk that fails is logged when it begins to and when it is well again."""
        try:
            append()
        except AppendFailed as error:
            if error.reason != self._trouble:
                self._log.error(str(error))
            self._trouble = error.reason
        else:
            if self._trouble is not None:
                lost = self.writer.samples_lost
                self._log.warning(f"writing to {self.writer.root} again; {lost} samples were lost so far")
            self._trouble = None
