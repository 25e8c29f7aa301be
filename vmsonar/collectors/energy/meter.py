"""A file in sysfs that shows energy or power, and how it reads."""

from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.records import EnergyRow

_MICRO = 1_000_000
_LARGEST = (1 << 63) - 1


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
