"""Intel GPUs (Documentation/ABI/testing: sysfs-driver-intel-i915-hwmon, sysfs-driver-intel-xe-hwmon)."""

from pathlib import Path

from vmsonar_archive.records import Card, GpuRow

from vmsonar.collectors.files import read_text
from vmsonar.collectors.gpu.drm_devices import DrmDevice
from vmsonar.collectors.gpu.sysfs import read_int, scaled

_MICRO = 1_000_000
_NOWHERE = Path("/nonexistent")


def read_intel(device: DrmDevice) -> GpuRow:
    """One GPU in one sample; its utilisation is known only as the sum of its clients."""
    row = device.row()
    row.core_clock = _first(_clocks(device, "act"))
    hwmon = device.hwmon()
    if hwmon is not None:
        _read_hwmon(hwmon, row)
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


def _read_hwmon(hwmon: Path, row: GpuRow) -> None:
    # number 1 is the card, number 2 the package on it
    energy = _first([hwmon / "energy1_input", hwmon / "energy2_input"])
    if energy is not None:
        row.energy, row.energy_source = energy, "counter"
    row.power = scaled(_first([hwmon / "power1_input", hwmon / "power1_average"]), _MICRO)
    row.power_limit = _limit(hwmon, "max")
    row.temperature = scaled(_first([hwmon / "temp1_input", hwmon / "temp2_input"]), 1000)


def _limit(hwmon: Path, kind: str) -> float | None:
    """A limit of 0 is one that is switched off."""
    return scaled(_first([hwmon / f"power1_{kind}", hwmon / f"power2_{kind}"]) or None, _MICRO)


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
