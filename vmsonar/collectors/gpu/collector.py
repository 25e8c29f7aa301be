"""What the GPU collectors share: faults and readings of drivers; rows joined to processes; a driver that hangs."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

from vmsonar_archive.records import Card, EventRow, GpuProcessRow, GpuRow
from vmsonar_archive.records.ids import SeriesIds

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles
from vmsonar.host.proc_pid import PGRP, START, read_stat
from vmsonar.host.roots import Host


class GpuFault(Exception):
    """A failure of a driver, with the stable word that stands in rows and gaps."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


class ValueFault(GpuFault):
    """This value cannot be had."""


class UnsupportedFault(ValueFault):
    """Asking for this value again is pointless until the driver is opened anew."""


class DeviceFault(GpuFault):
    """This device cannot be read; the others can."""


class DriverFault(GpuFault):
    """No device can be read."""


@dataclass(slots=True)
class Reading:
    """What one source said at one tick."""

    rows: list[GpuRow] = field(default_factory=list)
    #: What each process uses of each GPU; who the process is gets filled in later.
    uses: list[GpuProcessRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    #: Why the source as a whole could not be read.
    fault: GpuFault | None = None
    #: What else could not be read: a stable word, and the rest in words.
    troubles: list[tuple[str, str]] = field(default_factory=list)


# A longer pause, such as a suspend, says nothing about what was drawn in it.
_LONGEST = 900 * 1_000_000_000


class Integrator:
    """Sums power over CLOCK_BOOTTIME; begins at 0 with the first reading."""

    __slots__ = ("_before", "_joules")

    def __init__(self) -> None:
        self._joules = 0.0
        self._before: tuple[int, float] | None = None

    def add(self, boottime: int, watts: float | None) -> int | None:
        """Microjoules since the first reading; None without a reading of power."""
        if watts is None:
            self._before = None
            return None
        if self._before is not None and 0 < boottime - self._before[0] <= _LONGEST:
            elapsed = (boottime - self._before[0]) / 1e9
            self._joules += elapsed * (watts + self._before[1]) / 2
        self._before = (boottime, watts)
        return round(self._joules * 1e6)


class GpuCollector(Collector):
    """One kind of driver.

    Only `collect` asks the driver, because only that runs under a guard; the rest tells what it last found.
    """

    name = "gpu"
    kinds = ("gpu", "gpu_process")
    #: What the driver is called in gap rows.
    what: ClassVar[str]

    def __init__(self, host: Host, ids: SeriesIds, processes: bool = True, time_limit: float = 2.0) -> None:
        self.time_limit = time_limit
        self._host = host
        self._series_id = cache(ids.gpu)
        self._processes = processes
        self._troubles = Troubles(self.name)
        self._fault: str | None = None
        #: The GPUs of the last reading, as rows without values.
        self._known: list[GpuRow] = []
        #: The same as hardware; None until the driver has answered.
        self._cards: list[Card] | None = None
        #: The GPUs of the last reading, and those there were at the last `describe`.
        self._seen: set[str] = set()
        self._told: set[str] | None = None

    @abstractmethod
    def read(self, tick: Tick) -> Reading:
        """What the driver says at this tick; an empty reading where there is none."""

    @abstractmethod
    def read_cards(self) -> list[Card]:
        """The GPUs of the last reading as hardware."""

    def collect(self, tick: Tick) -> Rows:
        reading = self.read(tick)
        seen = {row.gpu_uuid for row in reading.rows}
        if self._cards is None or tick.fresh or seen != self._seen:
            self._cards = self.read_cards()
        self._seen = seen
        self._known = [
            GpuRow(
                gpu_uuid=row.gpu_uuid, gpu_index=row.gpu_index, parent_uuid=row.parent_uuid, vendor=row.vendor
            )
            for row in reading.rows
        ]
        rows, fault = self._joined(tick, reading), reading.fault
        self._fault = None if fault is None else fault.reason
        troubles: list[Trouble] = [*reading.troubles]
        if fault is not None:
            troubles.append((fault.reason, fault.detail or f"{self.what} GPUs"))
        self._troubles.tell(troubles, tick, rows)
        return rows

    def overdue(self, waited: float) -> tuple[Rows, str]:
        """The known GPUs as unreadable."""
        self._fault = "timeout"
        rows = Rows()
        for row in self._known:
            row.error = self._fault
            row.series_id = self._series_id(row.gpu_uuid)
            rows.add("gpu", row)
        return rows, f"the {self.what} driver has not answered for {self.time_limit:g} s"

    def describe(self) -> Mapping[str, list[Card] | None]:
        self._told = self._seen
        return {"cards": self._cards}

    def has_news(self) -> bool:
        return self._told is not None and self._told != self._seen

    def _joined(self, tick: Tick, reading: Reading) -> Rows:
        rows = Rows()
        for row in reading.rows:
            row.series_id = self._series_id(row.gpu_uuid)
            rows.add("gpu", row)
        for use in reading.uses:
            use.start_ticks, use.pgid = self._identify(tick, use.pid)
            rows.add("gpu_process", use)
        for event in reading.events:
            if event.gpu_uuid is not None:
                event.series_id = self._series_id(event.gpu_uuid)
            rows.add("event", event)
        return rows

    def _identify(self, tick: Tick, pid: int) -> tuple[int | None, int | None]:
        """Start ticks and process group; None for a process that is gone."""
        facts = tick.processes.get(pid)
        if facts is not None:
            return facts.start_ticks, facts.pgid
        fields = read_stat(self._host.proc, pid)
        return (None, None) if fields is None else (int(fields[START]), int(fields[PGRP]))


def time_limit(setup: Setup) -> float:
    """Seconds that a driver may take: well within the half of an interval that the guard grants at most."""
    return min(2.0, setup.config.interval / 6)
