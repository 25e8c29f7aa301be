"""The energy collector: every meter there is, each reading with its source; where there is none it says so."""

from pathlib import Path

from vmsonar_archive.records import Capability, EnergyRow

from vmsonar.collectors.base import Collector, Rows, Tick
from vmsonar.collectors.energy.hwmon import find_hwmon
from vmsonar.collectors.energy.ipmi import read_ipmi
from vmsonar.collectors.energy.meter import Meter
from vmsonar.collectors.energy.rapl import find_rapl
from vmsonar.collectors.readable import readable
from vmsonar.collectors.setup import Setup
from vmsonar.collectors.troubles import Trouble, Troubles
from vmsonar.host import Host
from vmsonar.ipmi_file import IPMI_FILE

_NO_METER: Trouble = ("no_meter", "this machine shows no RAPL, hwmon or IPMI meter")
_RAPL_REMEDY = (
    "let the group of vmsonar read it: a tmpfiles.d line"
    " 'z /sys/class/powercap/intel-rapl:*/energy_uj 0440 root vmsonar'"
)
_IPMI_REMEDY = "systemctl enable --now vmsonar-ipmi.timer"


class EnergyCollector(Collector):
    """Meters of the CPU packages, the board and the whole machine; those of GPUs are in their own rows."""

    name = "energy"
    kinds = ("energy",)
    # a sensor behind a slow bus can take its time
    time_limit = 3.0

    def __init__(self, host: Host) -> None:
        self._host = host
        self._troubles = Troubles(self.name)
        self._meters: list[Meter] | None = None

    def collect(self, tick: Tick) -> Rows:
        if self._meters is None or tick.fresh:
            self._meters = find_meters(self._host.sys)
        rows = Rows()
        found, troubles = read_meters(self._meters)
        ipmi, trouble = read_ipmi(self._ipmi_file, tick.boottime)
        for row in [*found, *([ipmi] if ipmi is not None else [])]:
            rows.add("energy", row)
        troubles += [trouble] if trouble is not None else []
        nothing = not self._meters and ipmi is None and not troubles
        self._troubles.tell([_NO_METER] if nothing else troubles, tick, rows)
        return rows

    def capabilities(self) -> list[Capability]:
        return [
            self._sight("energy of the CPU packages by RAPL", find_rapl(self._host.sys), "class/powercap"),
            self._sight("power and energy sensors of hwmon", find_hwmon(self._host.sys), "class/hwmon"),
            self._sight_of_ipmi("power of the machine by IPMI"),
        ]

    def _sight(self, item: str, meters: list[Meter], place: str) -> Capability:
        if meters:
            return readable(self.name, item, meters[0].path, denied=_RAPL_REMEDY)
        reason = f"no meter in {self._host.sys / place}"
        return Capability(collector=self.name, item=item, available=False, reason=reason)

    def _sight_of_ipmi(self, item: str) -> Capability:
        devices = self._host.sys / "class/ipmi"
        if self._ipmi_file.exists() or any(devices.glob("ipmi*")):
            return readable(self.name, item, self._ipmi_file, _IPMI_REMEDY)
        return Capability(collector=self.name, item=item, available=False, reason=f"no device in {devices}")

    @property
    def _ipmi_file(self) -> Path:
        return self._host.run / IPMI_FILE


def find_meters(sys: Path) -> list[Meter]:
    """All meters in sysfs."""
    return [*find_rapl(sys), *find_hwmon(sys)]


def read_meters(meters: list[Meter]) -> tuple[list[EnergyRow], list[Trouble]]:
    """The readings, and what stood in the way of others; never a 0 in place of one."""
    rows: list[EnergyRow] = []
    troubles: list[Trouble] = []
    for meter in meters:
        try:
            rows.append(meter.read())
        except PermissionError:
            troubles.append(("permission", f"the {meter.source} meters are for root only"))
        except (OSError, ValueError):
            troubles.append(("unreadable", f"meter {meter.name}"))
    return rows, troubles


def make(setup: Setup) -> EnergyCollector:
    """The collector; it has no settings."""
    return EnergyCollector(setup.host)
