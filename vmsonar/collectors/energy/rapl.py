"""RAPL's energy counters (Documentation/power/powercap/powercap.rst)."""

import re
from pathlib import Path

from vmsonar.collectors.energy.meter import Meter
from vmsonar.collectors.files import read_text

# intel-rapl also serves AMD; intel-rapl-mmio shows the same packages again and is left out.
_ZONE = re.compile(r"intel-rapl(?::[0-9]+)+")


def find_rapl(sys: Path) -> list[Meter]:
    """Packages and the domains in them; a counter wraps at its range."""
    root = sys / "class/powercap"
    zones = sorted(path for path in root.glob("intel-rapl:*") if _ZONE.fullmatch(path.name))
    names = {zone.name: read_text(zone / "name") or zone.name for zone in zones}
    return [
        Meter(
            f"rapl:{_path(zone.name, names)}",
            "rapl",
            zone / "energy_uj",
            energy=True,
            energy_range=_range(zone),
        )
        for zone in zones
    ]


def _path(zone: str, names: dict[str, str]) -> str:
    """The names from the package down, such as package-0/dram."""
    parent = zone.rpartition(":")[0]
    own = names[zone]
    return f"{_path(parent, names)}/{own}" if parent in names else own


def _range(zone: Path) -> int | None:
    text = read_text(zone / "max_energy_range_uj") or ""
    return int(text) if text.isdecimal() else None
