"""What the GPU collectors share: rows joined to the processes of the tick, cards for sysinfo, a driver that hangs."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from vmsonar_archive.records import Card, GpuRow
from vmsonar_archive.records.ids import SeriesIds

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles
from vmsonar.collectors.gpu.reading import Reading
from vmsonar.host.proc_pid import PGRP, START, read_stat
from vmsonar.host.roots import Host


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
        self._ids = ids
        self._processes = processes
        self._series: dict[str, str] = {}
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
        rows = self._joined(tick, reading)
        troubles: list[Trouble] = [*reading.troubles]
        self._fault = None
        if reading.fault is not None:
            self._fault = reading.fault.reason
            troubles.append((self._fault, reading.fault.detail or f"{self.what} GPUs"))
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

    def _series_id(self, uuid: str) -> str:
        series_id = self._series.get(uuid)
        if series_id is None:
            series_id = self._series[uuid] = self._ids.gpu(uuid)
        return series_id


def time_limit(setup: Setup) -> float:
    """Seconds that a driver may take: well within the half of an interval that the guard grants at most."""
    return min(2.0, setup.config.interval / 6)
