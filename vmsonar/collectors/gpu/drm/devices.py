"""The GPUs of AMD and Intel below /sys/class/drm (Documentation/gpu/amdgpu, sysfs-driver-intel-*)."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from vmsonar_archive.records import Card, GpuRow

from vmsonar.collectors.gpu.collector import Integrator
from vmsonar.host.files import read_text

_CARD = re.compile(r"card([0-9]+)")
_VENDORS = {"amdgpu": "amd", "i915": "intel", "xe": "intel"}
_NOWHERE = Path("/nonexistent")
_MICRO = 1_000_000
_FASTEST_FAN = 255


@dataclass(slots=True)
class DrmDevice:
    """One card and where its values are."""

    folder: Path
    index: int
    driver: str
    vendor: str
    bus_address: str
    pci_id: str | None
    uuid: str
    integrator: Integrator = field(default_factory=Integrator)

    @property
    def device(self) -> Path:
        return self.folder / "device"

    def hwmon(self) -> Path:
        """The folder with its power and temperature; its number changes when the driver is reloaded."""
        return next(iter(sorted((self.device / "hwmon").glob("hwmon*"))), _NOWHERE)

    def sleeps(self) -> bool:
        """Whether it is powered down; asking it more would wake it up."""
        return read_text(self.device / "power/runtime_status") == "suspended"

    def row(self, error: str | None = None) -> GpuRow:
        return GpuRow(gpu_uuid=self.uuid, gpu_index=self.index, vendor=self.vendor, error=error)

    def card(self, maker: str) -> Card:
        """As hardware, by what the bus says."""
        return Card(
            gpu_uuid=self.uuid,
            gpu_index=self.index,
            vendor=self.vendor,
            model=self.pci_id and f"{maker} {self.pci_id.lower()}",
            bus_address=self.bus_address,
        )


def find_devices(sys: Path, names: list[str], vendors: Collection[str]) -> list[DrmDevice]:
    """The cards whose driver is one of the wanted makers', in order of their numbers."""
    found = [_device(sys / "class/drm" / name) for name in names]
    devices = [device for device in found if device is not None and device.vendor in vendors]
    times = Counter(device.uuid for device in devices)
    for device in devices:
        if times[device.uuid] > 1:
            # parts of one package can share its id
            device.uuid = f"{device.uuid}-{device.bus_address}"
    return sorted(devices, key=lambda device: device.index)


def _device(card: Path) -> DrmDevice | None:
    lines = (read_text(card / "device/uevent") or "").splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    driver, bus_address = facts.get("DRIVER", ""), facts.get("PCI_SLOT_NAME", "")
    match = _CARD.fullmatch(card.name)
    if driver not in _VENDORS or not bus_address or match is None:
        return None
    vendor = _VENDORS[driver]
    unique = read_text(card / "device/unique_id")
    uuid = f"{vendor.upper()}-{unique}" if unique else f"PCI-{bus_address}"
    return DrmDevice(card, int(match[1]), driver, vendor, bus_address, facts.get("PCI_ID"), uuid)


def read_int(path: Path) -> int | None:
    """A decimal number."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _first(*paths: Path) -> int | None:
    """The first of the values that can be read."""
    values = (read_int(path) for path in paths)
    return next((value for value in values if value is not None), None)


def _scaled(value: int | None, divisor: int = _MICRO) -> float | None:
    """The value in a larger unit."""
    return None if value is None else value / divisor


def read_amd(device: DrmDevice, boottime: int) -> GpuRow:
    """One GPU in one sample."""
    row, folder, hwmon = device.row(), device.device, device.hwmon()
    row.gpu_util = read_int(folder / "gpu_busy_percent")
    row.gpu_util_source = None if row.gpu_util is None else "gpu_busy_percent"
    row.memory_util = read_int(folder / "mem_busy_percent")
    row.memory_used = read_int(folder / "mem_info_vram_used")
    row.memory_total = read_int(folder / "mem_info_vram_total")
    errors = "\n".join(read_text(path) or "" for path in sorted((folder / "ras").glob("*_err_count")))
    row.ecc_corrected, row.ecc_uncorrected = _errors("ce", errors), _errors("ue", errors)
    row.power = _scaled(_first(hwmon / "power1_average", hwmon / "power1_input"))
    row.power_limit = _scaled(read_int(hwmon / "power1_cap"))
    row.temperature = _scaled(read_int(hwmon / "temp1_input"), 1000)
    row.core_clock = _megahertz(hwmon / "freq1_input")
    row.memory_clock = _megahertz(hwmon / "freq2_input")
    pulse = read_int(hwmon / "pwm1")
    row.fan = None if pulse is None else round(pulse * 100 / _FASTEST_FAN)
    energy = device.integrator.add(boottime, row.power)
    if energy is not None:
        row.energy, row.energy_source = energy, "power_integrated"
    return row


def amd_card(device: DrmDevice, sys: Path, architecture: str | None) -> Card:
    """One GPU as hardware."""
    folder, hwmon = device.device, device.hwmon()
    card = device.card("AMD")
    card.model = read_text(folder / "product_name") or card.model
    card.architecture = architecture
    card.memory = read_int(folder / "mem_info_vram_total")
    card.driver = read_text(sys / "module/amdgpu/version") or device.driver
    card.firmware = read_text(folder / "vbios_version")
    card.power_limit = _scaled(read_int(hwmon / "power1_cap"))
    card.power_limit_min = _scaled(read_int(hwmon / "power1_cap_min"))
    card.power_limit_max = _scaled(read_int(hwmon / "power1_cap_max"))
    card.core_clock_max = _highest_clock(folder / "pp_dpm_sclk")
    card.memory_clock_max = _highest_clock(folder / "pp_dpm_mclk")
    return card


def _highest_clock(table: Path) -> int | None:
    """MHz of the highest level in a table such as `1: 1700Mhz *`."""
    clocks = re.findall(r"^[0-9S]+:\s*([0-9]+)\s*Mhz", read_text(table) or "", re.MULTILINE | re.IGNORECASE)
    return max(map(int, clocks), default=None)


def _megahertz(path: Path) -> int | None:
    hertz = read_int(path)
    return None if hertz is None else hertz // _MICRO


def _errors(kind: str, counts: str) -> int | None:
    """Corrected (ce) or uncorrected (ue) errors of all blocks that count them."""
    found = re.findall(rf"^{kind}:\s*([0-9]+)", counts, re.MULTILINE)
    return sum(map(int, found)) if found else None


def read_intel(device: DrmDevice) -> GpuRow:
    """One GPU in one sample; its utilisation is known only as the sum of its clients."""
    row, hwmon = device.row(), device.hwmon()
    row.core_clock = _intel_clock(device, "act", "act_freq")
    # number 1 is the card, number 2 the package on it
    row.energy = _first(hwmon / "energy1_input", hwmon / "energy2_input")
    row.energy_source = None if row.energy is None else "counter"
    row.power = _scaled(_first(hwmon / "power1_input", hwmon / "power1_average"))
    row.power_limit = _intel_limit(hwmon, "max")
    row.temperature = _scaled(_first(hwmon / "temp1_input", hwmon / "temp2_input"), 1000)
    return row


def intel_card(device: DrmDevice, sys: Path) -> Card:
    """One GPU as hardware."""
    hwmon = device.hwmon()
    card = device.card("Intel")
    card.driver = read_text(sys / "module" / device.driver / "version") or device.driver
    card.power_limit = _intel_limit(hwmon, "max")
    card.power_limit_max = _intel_limit(hwmon, "rated_max")
    card.core_clock_max = _intel_clock(device, "RP0", "rp0_freq")
    return card


def _intel_limit(hwmon: Path, kind: str) -> float | None:
    """A limit of 0 is one that is switched off."""
    return _scaled(_first(hwmon / f"power1_{kind}", hwmon / f"power2_{kind}") or None)


def _intel_clock(device: DrmDevice, kind: str, in_xe: str) -> int | None:
    """A clock in MHz, from where i915, i915 of before 5.18, and xe show it."""
    return _first(
        device.folder / f"gt/gt0/rps_{kind}_freq_mhz",
        device.folder / f"gt_{kind}_freq_mhz",
        device.device / f"tile0/gt0/freq0/{in_xe}",
    )
