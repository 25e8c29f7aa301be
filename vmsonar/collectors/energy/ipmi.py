"""Power of the whole machine, as the root timer left it below /run."""

from pathlib import Path

from vmsonar_archive.records import EnergyRow

from vmsonar.collectors.troubles import Trouble
from vmsonar.ipmi_file import IpmiReading, read_ipmi_file

# A reading may be missed; after that it is of the past.
_INTERVALS = 3


def read_ipmi(path: Path, boottime: int) -> tuple[EnergyRow | None, Trouble | None]:
    """The reading as a row, or what is wrong with it; neither where the timer is not enabled."""
    try:
        reading = read_ipmi_file(path)
    except FileNotFoundError:
        return None, None
    except PermissionError:
        return None, ("permission", f"{path} cannot be read")
    except (OSError, ValueError):
        return None, ("bad_file", f"{path} is not what vmsonar.ipmi writes")
    trouble = _trouble(reading, boottime)
    if trouble is not None:
        return None, trouble
    return EnergyRow(meter=reading.meter, energy_source="ipmi", power=reading.power), None


def _trouble(reading: IpmiReading, boottime: int) -> Trouble | None:
    if not 0 <= boottime - reading.boottime <= _INTERVALS * reading.interval * 1e9:
        return "stale", "the IPMI timer has left no reading for three of its intervals"
    if reading.error is not None:
        return "ipmi_failed", reading.error[:200]
    if reading.power is None or reading.active is False:
        return "not_measuring", "the machine says over IPMI that it does not measure its power"
    return None
