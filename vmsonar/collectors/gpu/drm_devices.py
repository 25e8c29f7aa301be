"""The GPUs of AMD and Intel below /sys/class/drm."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from vmsonar_archive.records import GpuRow

from vmsonar.collectors.files import read_text
from vmsonar.collectors.gpu.integrator import Integrator

_CARD = re.compile(r"card([0-9]+)")
_VENDORS = {"amdgpu": "amd", "i915": "intel", "xe": "intel"}


@dataclass(slots=True)
class DrmDevice:
    """One card and where its values are."""

    card: Path
    index: int
    driver: str
    vendor: str
    bus_address: str
    pci_id: str | None
    uuid: str
    integrator: Integrator = field(default_factory=Integrator)

    @property
    def device(self) -> Path:
        return self.card / "device"

    def hwmon(self) -> Path | None:
        """The folder with its power and temperature; its number changes when the driver is reloaded."""
        return next(iter(sorted((self.device / "hwmon").glob("hwmon*"))), None)

    def sleeps(self) -> bool:
        """Whether it is powered down; asking it more would wake it up."""
        return read_text(self.device / "power/runtime_status") == "suspended"

    def row(self, error: str | None = None) -> GpuRow:
        return GpuRow(gpu_uuid=self.uuid, gpu_index=self.index, vendor=self.vendor, error=error)


def find_devices(sys: Path, names: list[str], vendors: Collection[str]) -> list[DrmDevice]:
    """The cards whose driver is one of the wanted makers', in order of their numbers."""
    found = [_device(sys / "class/drm" / name) for name in names]
    devices = [device for device in found if device is not None and device.vendor in vendors]
    _tell_apart(devices)
    return sorted(devices, key=lambda device: device.index)


def _device(card: Path) -> DrmDevice | None:
    facts = _uevent(card / "device/uevent")
    driver, bus_address = facts.get("DRIVER", ""), facts.get("PCI_SLOT_NAME", "")
    match = _CARD.fullmatch(card.name)
    if driver not in _VENDORS or not bus_address or match is None:
        return None
    vendor = _VENDORS[driver]
    unique = read_text(card / "device/unique_id")
    uuid = f"{vendor.upper()}-{unique}" if unique else f"PCI-{bus_address}"
    return DrmDevice(card, int(match[1]), driver, vendor, bus_address, facts.get("PCI_ID"), uuid)


def _tell_apart(devices: list[DrmDevice]) -> None:
    """Parts of one package can share its id: then the bus address is added."""
    times = Counter(device.uuid for device in devices)
    for device in devices:
        if times[device.uuid] > 1:
            device.uuid = f"{device.uuid}-{device.bus_address}"


def _uevent(path: Path) -> dict[str, str]:
    lines = (read_text(path) or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)
