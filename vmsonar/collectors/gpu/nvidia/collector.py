"""The collector for NVIDIA GPUs, through NVML; it loads nothing of NVIDIA's before their driver is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING

from vmsonar_archive.records import Capability, Card
from vmsonar_archive.records.ids import SeriesIds
from vmsonar_archive.system.errors import way_to_add

from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.gpu.collector import DriverFault, GpuCollector, Reading, time_limit
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

if TYPE_CHECKING:
    from vmsonar.collectors.gpu.nvidia.driver import NvidiaDriver

_DROP_IN = "let the unit open the driver's devices: the drop-in vmsonar-nvidia.conf"
_REMEDIES = {
    "missing_extra": way_to_add("gpu"),
    "library_version_mismatch": "reboot, or reload the NVIDIA kernel modules: the driver was upgraded",
    "library_not_found": "install the driver's library libnvidia-ml.so.1",
    "driver_not_loaded": "load the driver: modprobe nvidia",
    "no_permission": _DROP_IN,
    "timeout": "see the kernel's log for Xid lines; the GPU may need a reset",
}
#: Vendor and class of a PCI device.
_NVIDIA, _DISPLAY = "0x10de", "0x03"


class NvidiaCollector(GpuCollector):
    """GPUs through NVML."""

    what = "NVIDIA"

    def __init__(
        self,
        host: Host,
        ids: SeriesIds,
        processes: bool = True,
        time_limit: float = 2.0,
        library: Path | None = None,
    ) -> None:
        super().__init__(host, ids, processes, time_limit)
        self._library = library
        self._driver: NvidiaDriver | None = None
        self._has_hardware: bool | None = None

    def may_block(self) -> bool:
        return self._driver is not None or driver_version(self._host) is not None

    def read(self, tick: Tick) -> Reading:
        version = driver_version(self._host)
        if self._driver is None:
            if version is None:
                if self._has_hardware is None:
                    self._has_hardware = nvidia_hardware(self._host)
                return Reading(fault=DriverFault("driver_not_loaded") if self._has_hardware else None)
            # ctypes and NVML's bindings cost memory that a machine without a GPU need not spend
            from vmsonar.collectors.gpu.nvidia.driver import NvidiaDriver
            from vmsonar.collectors.gpu.nvidia.nvml import Nvml

            self._driver = NvidiaDriver(Nvml(self._library), self._processes)
        return self._driver.sample(version, tick.time, tick.boottime)

    def read_cards(self) -> list[Card]:
        return [] if self._driver is None else self._driver.cards()

    def capabilities(self) -> list[Capability]:
        reason, remedy = self._fault, _REMEDIES.get(self._fault or "")
        if driver_version(self._host) is None:
            reason = "no NVIDIA driver is loaded"
            remedy = _REMEDIES["driver_not_loaded"] if nvidia_hardware(self._host) else None
        elif reason == "driver_not_loaded":
            # a loaded driver whose devices may not be opened looks like one that is not loaded
            remedy = _DROP_IN
        available = reason is None
        return [
            Capability(
                collector=self.name, item="NVIDIA GPUs", available=available, reason=reason, remedy=remedy
            )
        ]

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()


def driver_version(host: Host) -> str | None:
    """The text that NVIDIA's loaded driver shows, or None where none is loaded."""
    try:
        return (host.proc / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return "" if (host.sys / "module/nvidia/initstate").exists() else None


def nvidia_hardware(host: Host) -> bool:
    """Whether there is an NVIDIA display device on the PCI bus."""
    devices = [path.parent for path in (host.sys / "bus/pci/devices").glob("*/vendor")]
    nvidia = [device for device in devices if read_text(device / "vendor") == _NVIDIA]
    return any((read_text(device / "class") or "").startswith(_DISPLAY) for device in nvidia)


def make(setup: Setup) -> NvidiaCollector:
    """The collector as the configuration wants it."""
    processes = setup.config.gpu.processes != "none"
    return NvidiaCollector(setup.host, setup.ids, processes, time_limit(setup))
