"""The GPUs of AMD and Intel below /sys/class/drm (Documentation/gpu/amdgpu, sysfs-driver-intel-*)."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from vmsonar_archive.records import Card, GpuRow

from vmsonar.collectors.gpu.reading import Integrator
from vmsonar.host.files import read_text

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


def read_int(path: Path) -> int | None:
    """A decimal number."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def scaled(value: int | None, divisor: int) -> float | None:
    """The value in a larger unit."""
    return None if value is None else value / divisor


def whole(value: int | None, divisor: int) -> int | None:
    """The value in a larger unit, without its fraction."""
    return None if value is None else value // divisor


_MICRO = 1_000_000
_FASTEST_FAN = 255


def read_amd(device: DrmDevice, boottime: int) -> GpuRow:
    """One GPU in one sample."""
    row = device.row()
    folder = device.device
    row.gpu_util = read_int(folder / "gpu_busy_percent")
    row.gpu_util_source = None if row.gpu_util is None else "gpu_busy_percent"
    row.memory_util = read_int(folder / "mem_busy_percent")
    row.memory_used = read_int(folder / "mem_info_vram_used")
    row.memory_total = read_int(folder / "mem_info_vram_total")
    row.ecc_corrected, row.ecc_uncorrected = _errors(folder / "ras")
    hwmon = device.hwmon()
    if hwmon is not None:
        _read_hwmon(hwmon, row)
    energy = device.integrator.add(boottime, row.power)
    if energy is not None:
        row.energy, row.energy_source = energy, "power_integrated"
    return row


def amd_card(device: DrmDevice, sys: Path, architecture: str | None) -> Card:
    """One GPU as hardware."""
    hwmon = device.hwmon() or Path("/nonexistent")
    folder = device.device
    return Card(
        gpu_uuid=device.uuid,
        gpu_index=device.index,
        vendor=device.vendor,
        model=read_text(folder / "product_name") or (device.pci_id and f"AMD {device.pci_id.lower()}"),
        architecture=architecture,
        bus_address=device.bus_address,
        memory=read_int(folder / "mem_info_vram_total"),
        driver=read_text(sys / "module/amdgpu/version") or device.driver,
        firmware=read_text(folder / "vbios_version"),
        power_limit=scaled(read_int(hwmon / "power1_cap"), _MICRO),
        power_limit_min=scaled(read_int(hwmon / "power1_cap_min"), _MICRO),
        power_limit_max=scaled(read_int(hwmon / "power1_cap_max"), _MICRO),
        core_clock_max=highest_clock(read_text(folder / "pp_dpm_sclk")),
        memory_clock_max=highest_clock(read_text(folder / "pp_dpm_mclk")),
    )


def highest_clock(table: str | None) -> int | None:
    """MHz of the highest level in a table such as `1: 1700Mhz *`."""
    clocks = re.findall(r"^[0-9S]+:\s*([0-9]+)\s*Mhz", table or "", re.MULTILINE | re.IGNORECASE)
    return max(map(int, clocks), default=None)


def _read_hwmon(hwmon: Path, row: GpuRow) -> None:
    power = read_int(hwmon / "power1_average")
    if power is None:
        power = read_int(hwmon / "power1_input")
    row.power = scaled(power, _MICRO)
    row.power_limit = scaled(read_int(hwmon / "power1_cap"), _MICRO)
    row.temperature = scaled(read_int(hwmon / "temp1_input"), 1000)
    row.core_clock = whole(read_int(hwmon / "freq1_input"), _MICRO)
    row.memory_clock = whole(read_int(hwmon / "freq2_input"), _MICRO)
    pulse = read_int(hwmon / "pwm1")
    row.fan = None if pulse is None else round(pulse * 100 / _FASTEST_FAN)


def _errors(ras: Path) -> tuple[int | None, int | None]:
    """Corrected and uncorrected errors of all blocks that count them."""
    texts = [read_text(path) or "" for path in sorted(ras.glob("*_err_count"))]
    return _total("ce", texts), _total("ue", texts)


def _total(kind: str, texts: list[str]) -> int | None:
    counts = [int(number) for text in texts for number in re.findall(rf"^{kind}:\s*([0-9]+)", text, re.M)]
    return sum(counts) if counts else None


_MICRO_UNITS = 1_000_000
_NOWHERE = Path("/nonexistent")


def read_intel(device: DrmDevice) -> GpuRow:
    """One GPU in one sample; its utilisation is known only as the sum of its clients."""
    row = device.row()
    row.core_clock = _first(_clocks(device, "act"))
    hwmon = device.hwmon()
    if hwmon is not None:
        _read_intel_hwmon(hwmon, row)
    return row


def intel_card(device: DrmDevice, sys: Path) -> Card:
    """One GPU as hardware."""
    hwmon = device.hwmon() or _NOWHERE
    return Card(
        gpu_uuid=device.uuid,
        gpu_index=device.index,
        vendor=device.vendor,
        model=device.pci_id and f"Intel {device.pci_id.lower()}",
        bus_address=device.bus_address,
        driver=read_text(sys / "module" / device.driver / "version") or device.driver,
        power_limit=_limit(hwmon, "max"),
        power_limit_max=_limit(hwmon, "rated_max"),
        core_clock_max=_first(_clocks(device, "RP0")),
    )


def _read_intel_hwmon(hwmon: Path, row: GpuRow) -> None:
    # number 1 is the card, number 2 the package on it
    energy = _first([hwmon / "energy1_input", hwmon / "energy2_input"])
    if energy is not None:
        row.energy, row.energy_source = energy, "counter"
    row.power = scaled(_first([hwmon / "power1_input", hwmon / "power1_average"]), _MICRO_UNITS)
    row.power_limit = _limit(hwmon, "max")
    row.temperature = scaled(_first([hwmon / "temp1_input", hwmon / "temp2_input"]), 1000)


def _limit(hwmon: Path, kind: str) -> float | None:
    """A limit of 0 is one that is switched off."""
    return scaled(_first([hwmon / f"power1_{kind}", hwmon / f"power2_{kind}"]) or None, _MICRO_UNITS)


def _clocks(device: DrmDevice, kind: str) -> list[Path]:
    """Where i915, i915 of before 5.18, and xe show a clock in MHz."""
    xe = {"act": "act_freq", "RP0": "rp0_freq"}[kind]
    return [
        device.card / f"gt/gt0/rps_{kind}_freq_mhz",
        device.card / f"gt_{kind}_freq_mhz",
        device.device / f"tile0/gt0/freq0/{xe}",
    ]


def _first(paths: list[Path]) -> int | None:
    """The first of the values that can be read."""
    values = (read_int(path) for path in paths)
    return next((value for value in values if value is not None), None)
