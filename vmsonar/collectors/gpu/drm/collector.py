"""The collector for AMD and Intel GPUs, through the kernel's own drivers below /sys/class/drm."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from vmsonar_archive.records import Capability, Card
from vmsonar_archive.records.ids import SeriesIds

from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.gpu.collector import GpuCollector, Reading, time_limit
from vmsonar.host.roots import Host

if TYPE_CHECKING:
    from vmsonar.collectors.gpu.drm.driver import DrmDrivers

_VENDORS = {"amd": "AMD", "intel": "Intel"}
_CARD = re.compile(r"card[0-9]+")


class DrmCollector(GpuCollector):
    """GPUs below /sys/class/drm."""

    what = "DRM"

    def __init__(
        self,
        host: Host,
        ids: SeriesIds,
        processes: bool = True,
        time_limit: float = 2.0,
        vendors: Collection[str] = tuple(_VENDORS),
    ) -> None:
        super().__init__(host, ids, processes, time_limit)
        self._vendors = [vendor for vendor in _VENDORS if vendor in vendors]
        self._drivers: DrmDrivers | None = None

    def may_block(self) -> bool:
        return self._drivers is not None or bool(card_names(self._host.sys))

    def read(self, tick: Tick) -> Reading:
        names = card_names(self._host.sys)
        if self._drivers is None:
            if not names:
                return Reading()
            from vmsonar.collectors.gpu.drm.driver import DrmDrivers

            self._drivers = DrmDrivers(self._host, self._vendors, self._processes)
        if not self._drivers.look(names):
            return Reading()
        # a copy: the next tick may change the original while a driver hangs
        return self._drivers.sample(tick.boottime, dict(tick.processes))

    def read_cards(self) -> list[Card]:
        return [] if self._drivers is None else self._drivers.cards()

    def capabilities(self) -> list[Capability]:
        seen = set() if self._drivers is None else self._drivers.vendors()
        found = [self._sight(vendor, vendor in seen) for vendor in self._vendors]
        if self._drivers is not None and not self._drivers.descriptors.complete:
            found.append(self._hidden())
        return found

    def _sight(self, vendor: str, seen: bool) -> Capability:
        name = _VENDORS[vendor]
        reason = None if seen else f"no driver of an {name} GPU is loaded"
        return Capability(collector=self.name, item=f"{name} GPUs", available=seen, reason=reason)

    def _hidden(self) -> Capability:
        return Capability(
            collector=self.name,
            item="GPU time of other users' processes",
            available=False,
            reason="/proc/PID/fdinfo of other users needs ptrace rights",
            remedy="the drop-in vmsonar-io.conf, or AmbientCapabilities=CAP_SYS_PTRACE alone",
        )


def card_names(sys: Path) -> list[str]:
    """The names of the DRM cards, without their connectors."""
    try:
        return sorted(name for name in os.listdir(sys / "class/drm") if _CARD.fullmatch(name))
    except OSError:
        return []


def make(setup: Setup) -> DrmCollector:
    """The collector as the configuration wants it."""
    wanted = setup.config.gpu
    return DrmCollector(setup.host, setup.ids, wanted.processes != "none", time_limit(setup), wanted.vendors)
