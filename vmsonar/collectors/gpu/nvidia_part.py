"""NVIDIA's driver as a part of the collector: nothing of it is loaded where there is none."""

from pathlib import Path
from typing import TYPE_CHECKING

from vmsonar_archive.records import Capability, Card

from vmsonar.clock import Clock
from vmsonar.collectors.base import Tick
from vmsonar.collectors.gpu.driver import driver_version, nvidia_hardware
from vmsonar.collectors.gpu.faults import DriverFault
from vmsonar.collectors.gpu.part import Part
from vmsonar.collectors.gpu.reading import Reading
from vmsonar.host import Host

if TYPE_CHECKING:
    from vmsonar.collectors.gpu.nvidia import NvidiaSource

_DROP_IN = "let the unit open the driver's devices: the drop-in vmsonar-nvidia.conf"
_REMEDIES = {
    "missing_extra": "pip install 'vmsonar[gpu]'",
    "library_version_mismatch": "reboot, or reload the NVIDIA kernel modules: the driver was upgraded",
    "library_not_found": "install the driver's library libnvidia-ml.so.1",
    "driver_not_loaded": "load the driver: modprobe nvidia",
    "no_permission": _DROP_IN,
    "timeout": "see the kernel's log for Xid lines; the GPU may need a reset",
}


class NvidiaPart(Part):
    """GPUs through NVML."""

    what = "NVIDIA"

    def __init__(
        self, host: Host, clock: Clock, processes: bool, library: Path | None, deadline: float
    ) -> None:
        super().__init__(deadline)
        self._host = host
        self._clock = clock
        self._processes = processes
        self._library = library
        self._source: NvidiaSource | None = None
        self._hardware: bool | None = None

    def collect(self, tick: Tick) -> Reading:
        version = driver_version(self._host)
        if version is None and self._source is None:
            if self._hardware is None:
                self._hardware = nvidia_hardware(self._host)
            self._last = Reading(fault=DriverFault("driver_not_loaded") if self._hardware else None)
            return self._last
        source = self._opened()
        return self._read(lambda: source.sample(version, tick.time, tick.boottime))

    def cards(self) -> list[Card] | None:
        version = driver_version(self._host)
        if version is None:
            return []
        source, now, boottime = self._opened(), self._clock.now(), self._clock.boottime_ns()
        return self._ask(lambda: source.cards(version, now, boottime), None)

    def capabilities(self, collector: str) -> list[Capability]:
        item = "NVIDIA GPUs"
        if driver_version(self._host) is None:
            remedy = _REMEDIES["driver_not_loaded"] if nvidia_hardware(self._host) else None
            reason = "no NVIDIA driver is loaded"
            return [Capability(collector=collector, item=item, available=False, reason=reason, remedy=remedy)]
        fault = self._fault()
        if fault is None:
            return [Capability(collector=collector, item=item, available=True)]
        # a loaded driver whose devices may not be opened looks like one that is not loaded
        remedy = _DROP_IN if fault == "driver_not_loaded" else _REMEDIES.get(fault)
        return [Capability(collector=collector, item=item, available=False, reason=fault, remedy=remedy)]

    def close(self) -> None:
        if self._source is not None:
            self._close(self._source.close)

    def _fault(self) -> str | None:
        """Why the driver cannot be read; asks it if nobody has."""
        if self._source is None:
            source, now, boottime = self._opened(), self._clock.now(), self._clock.boottime_ns()
            version = driver_version(self._host)
            self._read(lambda: source.sample(version, now, boottime))
        return self._last.fault.reason if self._last.fault is not None else None

    def _opened(self) -> "NvidiaSource":
        if self._source is None:
            from vmsonar.collectors.gpu.gate import Nvml
            from vmsonar.collectors.gpu.nvidia import NvidiaSource

            self._source = NvidiaSource(Nvml(self._library), self._processes)
        return self._source
