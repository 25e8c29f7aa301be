"""The GPU collector: each maker's source with its own deadline, joined to the processes of the tick."""

from collections.abc import Collection, Mapping
from pathlib import Path

from vmsonar_archive.ids import SeriesIds
from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import Capability, Card, GpuProcessRow

from vmsonar.clock import Clock
from vmsonar.collectors.base import Collector, Rows, Tick
from vmsonar.collectors.gpu.drm_part import DrmPart
from vmsonar.collectors.gpu.join import identify
from vmsonar.collectors.gpu.nvidia_part import NvidiaPart
from vmsonar.collectors.gpu.part import Part
from vmsonar.collectors.gpu.reading import Reading, Use
from vmsonar.collectors.setup import Setup
from vmsonar.collectors.troubles import Troubles
from vmsonar.host import Host

VENDORS = ("nvidia", "amd", "intel")


class GpuCollector(Collector):
    """GPUs of all makers and the processes that use them."""

    name = "gpu"
    kinds = ("gpu", "gpu_process")
    time_limit = 6.0

    def __init__(
        self,
        host: Host,
        ids: SeriesIds,
        vendors: Collection[str] = VENDORS,
        processes: bool = True,
        clock: Clock | None = None,
        library: Path | None = None,
        deadline: float = 2.0,
    ) -> None:
        self._host = host
        self._ids = ids
        self._series: dict[str, str] = {}
        self._troubles = Troubles(self.name)
        #: The GPUs of the last sample, and those there were when they were last described.
        self._seen: set[str] = set()
        self._told: set[str] | None = None
        self._parts: list[Part] = []
        if "nvidia" in vendors:
            self._parts.append(NvidiaPart(host, clock or Clock(), processes, library, deadline))
        if {"amd", "intel"} & set(vendors):
            self._parts.append(DrmPart(host, vendors, processes, deadline))

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        uuids: set[str] = set()
        for part in self._parts:
            reading = part.collect(tick)
            uuids.update(row.gpu_uuid for row in reading.rows)
            self._add(tick, reading, rows)
        troubles = [trouble for part in self._parts for trouble in part.troubles()]
        self._troubles.tell(troubles, tick, rows)
        self._seen = uuids
        return rows

    def cards(self) -> list[Card]:
        """The GPUs as hardware, for sysinfo."""
        return [card for part in self._parts for card in part.cards() or []]

    def describe(self) -> Mapping[str, object]:
        self._told = self._seen
        found = [part.cards() for part in self._parts]
        cards = [card for some in found for card in some or []]
        # while a driver does not answer, no cards is no answer either
        return {"cards": cards} if cards or None not in found else {}

    def has_news(self) -> bool:
        return self._told is not None and self._told != self._seen

    def capabilities(self) -> list[Capability]:
        return [each for part in self._parts for each in part.capabilities(self.name)]

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def _add(self, tick: Tick, reading: Reading, rows: Rows) -> None:
        for row in reading.rows:
            row.series_id = self._series_id(row.gpu_uuid)
        rows.extend("gpu", [encode_row(row) for row in reading.rows])
        rows.extend("gpu_process", [encode_row(self._process_row(tick, use)) for use in reading.uses])
        for event in reading.events:
            if event.gpu_uuid is not None:
                event.series_id = self._series_id(event.gpu_uuid)
            rows.add("event", event)

    def _process_row(self, tick: Tick, use: Use) -> GpuProcessRow:
        start_ticks, pgid = identify(tick, self._host.proc, use.pid)
        return GpuProcessRow(
            gpu_uuid=use.gpu_uuid,
            pid=use.pid,
            start_ticks=start_ticks,
            pgid=pgid,
            usage="+".join(use.usages) or None,
            gpu_util=use.gpu_util,
            gpu_util_source=use.util_source,
            memory_util=use.memory_util,
            memory_used=use.memory,
            engine_time=use.engine_time,
        )

    def _series_id(self, uuid: str) -> str:
        series_id = self._series.get(uuid)
        if series_id is None:
            series_id = self._series[uuid] = self._ids.gpu(uuid)
        return series_id


def make(setup: Setup) -> GpuCollector:
    """The collector as the configuration wants it."""
    wanted = setup.config.gpu
    return GpuCollector(
        setup.host,
        setup.ids,
        wanted.vendors,
        wanted.processes != "none",
        setup.clock,
        # well within the half of an interval after which the sampler gives the whole collector up
        deadline=min(2.0, setup.config.interval / 6),
    )
