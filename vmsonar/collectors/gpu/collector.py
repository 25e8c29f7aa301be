"""The GPU collector: each maker's source with its own deadline, joined to the processes of the tick."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from vmsonar_archive.ids import SeriesIds
from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import Capability, Card, GpuProcessRow

from vmsonar.clock import Clock
from vmsonar.collectors.base import Collector, Rows, Tick
from vmsonar.collectors.gpu.drm import DrmSource
from vmsonar.collectors.gpu.gate import Nvml
from vmsonar.collectors.gpu.join import identify
from vmsonar.collectors.gpu.nvidia import NvidiaSource, driver_version
from vmsonar.collectors.gpu.part import Part
from vmsonar.collectors.gpu.reading import Reading, Use
from vmsonar.collectors.gpu.sight import capabilities, unloaded_nvidia
from vmsonar.collectors.setup import Setup
from vmsonar.collectors.troubles import Trouble, Troubles
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
        self._vendors = vendors
        self._clock = clock or Clock()
        self._nvidia = NvidiaSource(Nvml(library), processes)
        self._nvidia_part = Part("NVIDIA", deadline)
        self._drm = DrmSource(host, vendors, processes)
        self._drm_part = Part("DRM", deadline)
        self._troubles = Troubles(self.name)
        self._hardware: bool | None = None

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        troubles = self._collect_nvidia(tick, rows) if "nvidia" in self._vendors else []
        if self._drm.present():
            processes = dict(tick.processes)
            self._add(tick, self._drm_part.read(lambda: self._drm.sample(tick.boottime, processes)), rows)
            troubles += self._drm_part.troubles()
        self._troubles.tell(troubles, tick, rows)
        return rows

    def cards(self) -> list[Card]:
        """The GPUs as hardware, for sysinfo."""
        cards: list[Card] = []
        version = driver_version(self._host)
        if "nvidia" in self._vendors and version is not None:
            now, boottime = self._clock.now(), self._clock.boottime_ns()
            cards += self._nvidia_part.ask(lambda: self._nvidia.cards(version, now, boottime), [])
        if self._drm.present():
            cards += self._drm_part.ask(self._drm.cards, [])
        return cards

    def describe(self) -> dict[str, Any]:
        return {"cards": self.cards()}

    def capabilities(self) -> list[Capability]:
        version = driver_version(self._host)
        if "nvidia" in self._vendors and version is not None and not self._nvidia_part.asked:
            now, boottime = self._clock.now(), self._clock.boottime_ns()
            self._nvidia_part.read(lambda: self._nvidia.sample(version, now, boottime))
        return capabilities(self.name, self._host, self._vendors, self._nvidia_part, self._drm)

    def close(self) -> None:
        self._nvidia_part.close(self._nvidia.close)
        self._drm_part.close(self._drm.close)

    def _collect_nvidia(self, tick: Tick, rows: Rows) -> list[Trouble]:
        version = driver_version(self._host)
        if version is None and not self._nvidia_part.knows_devices:
            if self._hardware is None:
                self._hardware = unloaded_nvidia(self._host)
            return [("driver_not_loaded", "NVIDIA GPUs")] if self._hardware else []
        reading = self._nvidia_part.read(lambda: self._nvidia.sample(version, tick.time, tick.boottime))
        self._add(tick, reading, rows)
        return self._nvidia_part.troubles()

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
