"""AMD GPUs (Documentation/gpu/amdgpu: driver-misc.rst, thermal.rst, ras.rst)."""

import re
from pathlib import Path

from vmsonar_archive.records import Card, GpuRow

from vmsonar.collectors.files import read_text
from vmsonar.collectors.gpu.drm_devices import DrmDevice
from vmsonar.collectors.gpu.sysfs import read_int, scaled, whole

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
