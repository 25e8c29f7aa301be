"""The kernel's own drivers for AMD and Intel as a part of the collector."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from vmsonar_archive.records import Capability, Card

from vmsonar.collectors.base import Tick
from vmsonar.collectors.gpu.driver import card_names
from vmsonar.collectors.gpu.part import Part
from vmsonar.collectors.gpu.reading import Reading
from vmsonar.host import Host

if TYPE_CHECKING:
    from vmsonar.collectors.gpu.drm import DrmSource


class DrmPart(Part):
    """GPUs below /sys/class/drm."""

    what = "DRM"

    def __init__(self, host: Host, vendors: Collection[str], processes: bool, deadline: float) -> None:
        super().__init__(deadline)
        self._host = host
        self._vendors = vendors
        self._processes = processes
        self._source: DrmSource | None = None

    def collect(self, tick: Tick) -> Reading:
        source = self._present()
        if source is None:
            return Reading()
        processes = dict(tick.processes)
        return self._read(lambda: source.sample(tick.boottime, processes))

    def cards(self) -> list[Card] | None:
        source = self._present()
        return [] if source is None else self._ask(source.cards, None)

    def capabilities(self, collector: str) -> list[Capability]:
        source = self._present()
        seen = set() if source is None else {device.vendor for device in source.devices()}
        answer = [
            _sight(collector, vendor, vendor in seen)
            for vendor in ("amd", "intel")
            if vendor in self._vendors
        ]
        if source is not None and not source.sees_all_processes():
            answer.append(_hidden(collector))
        return answer

    def close(self) -> None:
        if self._source is not None:
            self._close(self._source.close)

    def _present(self) -> "DrmSource | None":
        """The source where there is, or was, a card of the wanted makers."""
        names = card_names(self._host.sys)
        if self._source is None and names:
            from vmsonar.collectors.gpu.drm import DrmSource

            self._source = DrmSource(self._host, self._vendors, self._processes)
        return self._source if self._source is not None and self._source.look(names) else None


def _sight(collector: str, vendor: str, seen: bool) -> Capability:
    name = {"amd": "AMD", "intel": "Intel"}.get(vendor, vendor)
    reason = None if seen else f"no driver of an {name} GPU is loaded"
    return Capability(collector=collector, item=f"{name} GPUs", available=seen, reason=reason)


def _hidden(collector: str) -> Capability:
    return Capability(
        collector=collector,
        item="GPU time of other users' processes",
        available=False,
        reason="/proc/PID/fdinfo of other users needs ptrace rights",
        remedy="the drop-in vmsonar-io.conf, or AmbientCapabilities=CAP_SYS_PTRACE alone",
    )
