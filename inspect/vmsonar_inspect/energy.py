"""Energy and emissions: constants of the estimate, the factors, and how a total is split.

Estimate: Cloud Carbon Footprint's averages per vCPU and GB of memory. Factors: Our World in Data (Ember).
"""

import csv
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from pathlib import Path

from vmsonar_archive.errors import UsageError, reason_of

from vmsonar_inspect.model import Energy

JOULES_PER_KWH = 3_600_000.0
MEMORY_KWH_PER_GB_HOUR = 0.000392
FACTOR_SOURCE = "Our World in Data (Ember)"
MEASURED, ESTIMATE = "measured", "estimate"


@dataclass(frozen=True, slots=True)
class Provider:
    """Average watts of a vCPU, idle and full, and what the data centre adds."""

    name: str
    idle_watts: float
    full_watts: float
    pue: float


PROVIDERS = {
    "aws": Provider("aws", 0.74, 3.5, 1.135),
    "gcp": Provider("gcp", 0.71, 4.26, 1.1),
    "azure": Provider("azure", 0.78, 3.76, 1.185),
}
# The mean of the three; the survey's figure for data centres at large.
ELSEWHERE = Provider("average of aws, gcp, azure", 0.7433, 3.84, 1.54)


@dataclass(frozen=True, slots=True)
class Factor:
    """Grams of CO2 equivalent per kWh: one number, or steps over time."""

    country: str
    year: str
    source: str
    times: tuple[datetime, ...]
    grams: tuple[float, ...]

    def at(self, time: datetime | None) -> float:
        if len(self.grams) == 1 or time is None:
            return self.grams[0]
        return self.grams[max(0, bisect_right(self.times, time) - 1)]

    def over(self, first: datetime | None, last: datetime | None) -> float:
        """The mean over a time, each step weighted by how much of it lies within."""
        if len(self.grams) == 1 or first is None or last is None or last <= first:
            return self.at(first)
        edges = [first, *(time for time in self.times if first < time < last), last]
        weighted = sum(self.at(begin) * (end - begin).total_seconds() for begin, end in pairwise(edges))
        return weighted / (last - first).total_seconds()


def provider_of(name: str | None) -> Provider:
    """The averages of a cloud, or of all where it is another."""
    return PROVIDERS.get((name or "").lower(), ELSEWHERE)


def estimated_cpu(provider: Provider, cpu_seconds: float) -> float:
    """Joules above idle of that much busy time."""
    return cpu_seconds * (provider.full_watts - provider.idle_watts)


def estimated_idle(provider: Provider, cpus: int, seconds: float) -> float:
    """Joules of that many vCPUs doing nothing."""
    return cpus * seconds * provider.idle_watts


def estimated_memory(byte_seconds: float) -> float:
    """Joules of memory held for a time."""
    return byte_seconds / 1e9 / 3600 * MEMORY_KWH_PER_GB_HOUR * JOULES_PER_KWH


def energy_of(
    joules: float | None, source: str | None, method: str | None, grams_per_kwh: float | None
) -> Energy:
    """An energy with its mass of CO2 equivalent."""
    if joules is None:
        return Energy()
    kwh = joules / JOULES_PER_KWH
    grams = None if grams_per_kwh is None else kwh * grams_per_kwh
    return Energy(joules=joules, kwh=kwh, source=source, method=method, grams_co2e=grams)


def load_factor(country: str | None, path: Path | None = None) -> Factor:
    """The factor of a country (three letters, or World), or a file of time, TAB, grams per kWh."""
    if path is not None:
        return _time_varying(path)
    wanted = (country or "World").upper()
    lines = (
        resources.files("vmsonar_inspect")
        .joinpath("data/factors.tsv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    rows = [row for row in csv.reader(lines, delimiter="\t") if not row[0].startswith("#")]
    for code, grams, year in rows:
        if code.upper() == wanted:
            return Factor(code, year, FACTOR_SOURCE, (), (float(grams),))
    known = ", ".join(row[0] for row in rows)
    raise UsageError(f"no emission factor for country {country!r}; there are: {known}")


def _time_varying(path: Path) -> Factor:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the emission factors {path}: {reason_of(error)}") from None
    steps = sorted(
        _step(path, number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    )
    if not steps:
        raise UsageError(f"{path} holds no emission factors: a line is a time, TAB, grams per kWh")
    times, grams = zip(*steps, strict=True)
    return Factor("file", f"{times[0].year}", str(path), times, grams)


def _step(path: Path, number: int, line: str) -> tuple[datetime, float]:
    try:
        time, grams = line.split("\t")[:2]
        moment = datetime.fromisoformat(time.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)), float(grams)
    except ValueError:
        raise UsageError(f"{path}:{number}: a line is a time, TAB, grams per kWh") from None
