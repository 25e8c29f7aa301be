"""Power and energy sensors (Documentation/hwmon/sysfs-interface.rst)."""

import os
import re
from pathlib import Path

from vmsonar.collectors.energy.meter import Meter
from vmsonar.collectors.files import read_text

# GPUs have rows of their own.
_GPUS = {"amdgpu", "i915", "nouveau", "radeon", "xe"}
_SENSOR = re.compile(r"(energy[0-9]+_input|power[0-9]+_(?:input|average))")


def find_hwmon(sys: Path) -> list[Meter]:
    """The sensors of all chips but GPUs."""
    meters: dict[str, Meter] = {}
    for chip in sorted((sys / "class/hwmon").glob("hwmon*")):
        name = read_text(chip / "name") or ""
        if name in _GPUS:
            continue
        # a sensor with both shows the same power twice: `input` sorts after `average` and wins
        for sensor in sorted(filter(_SENSOR.fullmatch, _names(chip))):
            meter = _meter(chip, name, sensor)
            meters[meter.name] = meter
    return [meters[name] for name in sorted(meters)]


def _meter(chip: Path, name: str, sensor: str) -> Meter:
    number = sensor.rpartition("_")[0]
    label = read_text(chip / f"{number}_label") or number
    device = chip / "device"
    # the number of hwmonN changes between boots, the device it belongs to does not
    place = f"@{os.path.basename(os.path.realpath(device))}" if device.exists() else ""
    return Meter(f"hwmon:{name}{place}/{label}", "hwmon", chip / sensor, energy=sensor.startswith("energy"))


def _names(chip: Path) -> list[str]:
    try:
        return os.listdir(chip)
    except OSError:
        return []
