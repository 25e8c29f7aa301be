"""Energy and power meters: RAPL (powercap.rst), hwmon (sysfs-interface.rst), and IPMI as a root timer left it."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from glob import glob
from pathlib import Path

import msgspec
from vmsonar_archive.records import Capability, EnergyRow

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles, capability, readable
from vmsonar.host.files import read_text

_MICRO = 1_000_000
_LARGEST = (1 << 63) - 1
# GPUs have rows of their own.
_GPUS = {"amdgpu", "i915", "nouveau", "radeon", "xe"}
_SENSOR = re.compile(r"(energy[0-9]+_input|power[0-9]+_(?:input|average))")
# intel-rapl also serves AMD; intel-rapl-mmio shows the same packages again and is left out.
_ZONE = re.compile(r"intel-rapl(?::[0-9]+)+")
#: Where the timer leaves its reading, below /run.
IPMI_FILE = Path("vmsonar/ipmi.json")
_MAX_SIZE = 1 << 16
# One reading may be missed; after that the last one is stale.
_INTERVALS = 3
_NO_METER: Trouble = ("no_meter", "this machine shows no RAPL, hwmon or IPMI meter")
_RAPL_REMEDY = (
    "let the group of vmsonar read it: a tmpfiles.d line"
    " 'z /sys/class/powercap/intel-rapl:*/energy_uj 0440 root vmsonar'"
)
_IPMI_REMEDY = "systemctl enable --now vmsonar-ipmi.timer"


@dataclass(frozen=True, slots=True)
class Meter:
    """One meter; `energy` says whether it counts microjoules or shows microwatts."""

    name: str
    source: str
    path: Path
    energy: bool
    energy_range: int | None = None

    def read(self) -> EnergyRow:
        """One reading; raises OSError, or ValueError for what is no reading."""
        value = int(self.path.read_text())
        if not 0 <= value <= _LARGEST:
            raise ValueError(f"{value} is no reading")
        row = EnergyRow(meter=self.name, energy_source=self.source)
        if self.energy:
            row.energy, row.energy_range = value, self.energy_range
        else:
            row.power = value / _MICRO
        return row


def find_hwmon(sys: Path) -> list[Meter]:
    """The sensors of all chips but GPUs."""
    meters: dict[str, Meter] = {}
    for chip in sorted((sys / "class/hwmon").glob("hwmon*")):
        name = read_text(chip / "name") or ""
        if name in _GPUS:
            continue
        # a sensor with both shows the same power twice: `input` sorts after `average` and wins
        for sensor in sorted(filter(_SENSOR.fullmatch, glob("*_*", root_dir=chip))):
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


def find_rapl(sys: Path) -> list[Meter]:
    """Packages and the domains in them; a counter wraps at its range."""
    root = sys / "class/powercap"
    zones = sorted(path for path in root.glob("intel-rapl:*") if _ZONE.fullmatch(path.name))
    names = {zone.name: read_text(zone / "name") or zone.name for zone in zones}
    meters = []
    for zone in zones:
        top = read_text(zone / "max_energy_range_uj") or ""
        energy_range = int(top) if top.isdecimal() else None
        name = f"rapl:{_zone_path(zone.name, names)}"
        meters.append(Meter(name, "rapl", zone / "energy_uj", energy=True, energy_range=energy_range))
    return meters


def _zone_path(zone: str, names: dict[str, str]) -> str:
    """The names from the package down, such as package-0/dram."""
    parent = zone.rpartition(":")[0]
    return f"{_zone_path(parent, names)}/{names[zone]}" if parent in names else names[zone]


class IpmiReading(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One reading, or why there is none."""

    format: int = 1
    time: datetime
    #: CLOCK_BOOTTIME in nanoseconds: a reading is stale when it is older than three intervals.
    boottime: int
    #: Seconds between two readings.
    interval: float
    meter: str = "ipmi:dcmi"
    #: Watts: now, and over the meter's own sampling period.
    power: float | None = None
    power_min: float | None = None
    power_max: float | None = None
    power_average: float | None = None
    #: Whether the machine says that it measures.
    active: bool | None = None
    error: str | None = None


def read_ipmi_file(path: Path) -> IpmiReading:
    """The reading; raises OSError, or ValueError for a file that is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return msgspec.json.decode(os.read(descriptor, _MAX_SIZE), type=IpmiReading)
    finally:
        os.close(descriptor)


def read_ipmi(path: Path, boottime: int) -> EnergyRow | Trouble | None:
    """The reading as a row, or what is wrong with it; None where the timer is not enabled."""
    try:
        reading = read_ipmi_file(path)
    except FileNotFoundError:
        return None
    except PermissionError:
        return "permission", f"{path} cannot be read"
    except (OSError, ValueError):
        return "bad_file", f"{path} is not what vmsonar.lifecycle.ipmi writes"
    if not 0 <= boottime - reading.boottime <= _INTERVALS * reading.interval * 1e9:
        return "stale", "the IPMI timer has left no reading for three of its intervals"
    if reading.error is not None:
        return "ipmi_failed", reading.error[:200]
    if reading.power is None or reading.active is False:
        return "not_measuring", "the machine says over IPMI that it does not measure its power"
    return EnergyRow(meter=reading.meter, energy_source="ipmi", power=reading.power)


class EnergyCollector(Collector):
    """Meters of the CPU packages, the board and the whole machine; those of GPUs are in their own rows."""

    name = "energy"
    kinds = ("energy",)
    # a sensor behind a slow bus can take its time
    time_limit = 3.0

    def __init__(self, setup: Setup) -> None:
        self._sys = setup.host.sys
        self._ipmi_file = setup.host.run / IPMI_FILE
        self._troubles = Troubles(self.name)
        self._meters: list[Meter] | None = None

    def collect(self, tick: Tick) -> Rows:
        if self._meters is None or tick.fresh:
            self._meters = [*find_rapl(self._sys), *find_hwmon(self._sys)]
        rows = Rows()
        troubles: list[Trouble] = []
        for meter in self._meters:
            try:
                rows.add("energy", meter.read())  # never a 0 in place of a reading
            except PermissionError:
                troubles.append(("permission", f"the {meter.source} meters are for root only"))
            except (OSError, ValueError):
                troubles.append(("unreadable", f"meter {meter.name}"))
        ipmi = read_ipmi(self._ipmi_file, tick.boottime)
        if isinstance(ipmi, EnergyRow):
            rows.add("energy", ipmi)
        elif ipmi is not None:
            troubles.append(ipmi)
        elif not self._meters:
            troubles.append(_NO_METER)
        self._troubles.tell(troubles, tick, rows)
        return rows

    def capabilities(self) -> list[Capability]:
        return [
            self._meter_capability("energy of the CPU packages by RAPL", find_rapl, "class/powercap"),
            self._meter_capability("power and energy sensors of hwmon", find_hwmon, "class/hwmon"),
            self._ipmi_capability("power of the machine by IPMI"),
        ]

    def _meter_capability(self, item: str, find: Callable[[Path], list[Meter]], place: str) -> Capability:
        meters = find(self._sys)
        if not meters:
            return capability(self.name, item, f"no meter in {self._sys / place}")
        return readable(self.name, item, meters[0].path, denied=_RAPL_REMEDY)

    def _ipmi_capability(self, item: str) -> Capability:
        devices = self._sys / "class/ipmi"
        if not self._ipmi_file.exists() and not any(devices.glob("ipmi*")):
            return capability(self.name, item, f"no device in {devices}")
        return readable(self.name, item, self._ipmi_file, _IPMI_REMEDY)


make = EnergyCollector
