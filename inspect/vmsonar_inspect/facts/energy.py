"""Energy and emissions: measured or else estimated, split over jobs and containers with idle energy as its own row."""

import csv
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from pkgutil import get_data

from msgspec.structs import asdict
from vmsonar_archive.system.errors import UsageError, reason_of

from vmsonar_inspect.facts.model import ContainerUse, Coverage, Energy, EnergyUse, JobUse, Machine, NodeUse
from vmsonar_inspect.facts.queries import JOBS_ON_GPUS, Key, Queries, Record, key_of, total

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

    def used(self, cpu_seconds: float | None, byte_seconds: float | None) -> float:
        """Joules above idle for this CPU time, and of memory held for a time."""
        kwh = (byte_seconds or 0.0) / 1e9 / 3600 * MEMORY_KWH_PER_GB_HOUR
        return (cpu_seconds or 0.0) * (self.full_watts - self.idle_watts) + kwh * JOULES_PER_KWH


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
    """The averages of a cloud, or of all three for any other."""
    return PROVIDERS.get((name or "").lower(), ELSEWHERE)


def load_factor(country: str | None, path: Path | None = None) -> Factor:
    """The factor of a country (three letters, or World), or a file of time, TAB, grams per kWh."""
    if path is not None:
        return _time_varying(path)
    wanted = (country or "World").upper()
    table = (get_data("vmsonar_inspect", "facts/factors.tsv") or b"").decode()
    rows = [row for row in csv.reader(table.splitlines(), delimiter="\t") if not row[0].startswith("#")]
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


CPU_SHARE = "meters of the machine, split by share of all CPU time"
ESTIMATED = "Cloud Carbon Footprint averages per vCPU ({provider}) and GB of memory, GPUs left out"
WITH_GPU = "; GPU energy by use of each GPU"


@dataclass
class Split:
    """The joules of one archive, and the mass of CO2 equivalent that each kWh stands for; what nobody used is idle."""

    source: str
    method: str
    total: float
    pue: float
    factor: Factor
    grams_per_kwh: float
    jobs: dict[Key, float] = field(default_factory=dict)
    containers: dict[str, float] = field(default_factory=dict)
    gpus: dict[str, float] = field(default_factory=dict)

    def energy(self, joules: float | None, metered_gpu: bool = False) -> Energy:
        """A part of it with its emissions, the data centre's share included."""
        if joules is None:
            return Energy()
        source, method = (MEASURED, "GPU meter") if metered_gpu else (self.source, self.method)
        kwh = joules / JOULES_PER_KWH
        grams = kwh * (self.grams_per_kwh * self.pue)
        return Energy(joules=joules, kwh=kwh, source=source, method=method, grams_co2e=grams)

    def whole(self) -> EnergyUse:
        """All of it, the idle remainder as its own figure."""
        used = sum(self.jobs.values())
        return EnergyUse(
            **asdict(self.energy(self.total)),
            jobs_joules=used,
            idle_joules=max(0.0, self.total - used),
            gpu_joules=total(self.gpus.values()),
            pue=self.pue,
            factor_grams_per_kwh=self.grams_per_kwh,
            factor_country=self.factor.country,
            factor_year=self.factor.year,
            factor_source=self.factor.source,
        )


# LEAST passes over nulls: an interval whose CPU time is unknown must be left out before.
# A meter of the whole machine says more than those of its packages, but includes the GPUs, which have meters of their
# own. Packages and memory do not overlap; the other domains of a package (rapl:package-0/core) are parts of it.
_METERS = """
    SELECT archive, run, seq, COALESCE(
        CASE WHEN whole IS NOT NULL THEN GREATEST(0, whole - COALESCE(cards, 0)) END, packages) AS joules
    FROM (
        SELECT e.archive, e.run, e.seq, MAX(g.joules) AS cards,
            SUM(e.joules) FILTER (WHERE energy_source = 'ipmi') AS whole,
            SUM(e.joules) FILTER (WHERE energy_source = 'rapl'
                AND (meter LIKE 'rapl:package%' AND meter NOT LIKE '%/%' OR meter LIKE '%dram%')) AS packages
        FROM energy_rates AS e
        LEFT JOIN (SELECT archive, run, seq, SUM(joules) AS joules FROM gpu_rates GROUP BY archive, run, seq) AS g
            ON e.archive = g.archive AND e.run = g.run AND e.seq = g.seq
        GROUP BY e.archive, e.run, e.seq
    ) AS told
    WHERE whole IS NOT NULL OR packages IS NOT NULL"""

_TOTALS = f"SELECT archive, SUM(joules) AS joules FROM ({_METERS}) GROUP BY archive"  # noqa: S608

_BY_USER = f"""
    SELECT {{key}}, SUM(m.joules * LEAST(1.0, u.cpu_seconds / (n.cpus * n.interval_seconds)))
            FILTER (WHERE u.cpu_seconds IS NOT NULL) AS joules
    FROM {{table}} AS u
    JOIN ({_METERS}) AS m ON u.archive = m.archive AND u.run = m.run AND u.seq = m.seq
    JOIN node_steps AS n ON u.archive = n.archive AND u.run = n.run AND u.seq = n.seq
    GROUP BY ALL"""  # noqa: S608
_BY_JOB = _BY_USER.format(key="u.archive, u.boot, u.pgid, u.start_ticks", table="job_rates")
_BY_CONTAINER = _BY_USER.format(key="u.archive, u.container_id", table="container_rates")

_GPUS = "SELECT archive, gpu_uuid, SUM(joules) AS joules FROM gpu_rates GROUP BY ALL HAVING SUM(joules) IS NOT NULL"

# The energy of a card in an interval goes to the jobs on it by their share of its use, that of processes of no known
# job included; unused, it is idle.
_GPU_BY_JOB = f"""
    WITH {JOBS_ON_GPUS},
    shared_ AS (
        SELECT *, util / NULLIF(SUM(util) OVER (PARTITION BY archive, run, seq, gpu_uuid), 0) AS part FROM jobs_on_gpus
    )
    SELECT j.archive, j.boot, j.pgid, j.start_ticks, SUM(r.joules * s.part) AS joules
    FROM shared_ AS s
    JOIN job AS j ON s.archive = j.archive AND s.run = j.run AND s.seq = j.seq AND s.pgid = j.pgid
    JOIN gpu_rates AS r ON s.archive = r.archive AND s.run = r.run AND s.seq = r.seq AND s.gpu_uuid = r.gpu_uuid
    GROUP BY ALL"""  # noqa: S608


def split_energy(
    queries: Queries,
    machines: dict[str, Machine],
    coverages: dict[str, Coverage],
    uses: dict[str, NodeUse],
    jobs: dict[Key, JobUse],
    containers: list[ContainerUse],
    factor: Factor,
) -> dict[str, Split]:
    """The energy of every archive."""
    metered = queries.rows(_TOTALS) if queries.has("energy") else []
    totals = {row["archive"]: row["joules"] for row in metered if row["joules"] is not None}
    providers = {name: provider_of(machine.cloud_provider) for name, machine in machines.items()}
    splits = {}
    for name, provider in providers.items():
        use, coverage = uses[name], coverages[name]
        if name in totals:
            source, method, joules = MEASURED, CPU_SHARE, totals[name]
        else:
            source, method, seconds = (
                ESTIMATE,
                ESTIMATED.format(provider=provider.name),
                coverage.covered_seconds,
            )
            joules = provider.used(use.cpu_seconds, (use.memory_total_bytes or 0) * seconds)
            joules += (use.cpus or 0) * seconds * provider.idle_watts
        grams = factor.over(coverage.first, coverage.last)
        splits[name] = Split(source, method, joules, provider.pue, factor, grams)
    for key, job in jobs.items():
        if key[0] not in totals:
            splits[key[0]].jobs[key] = providers[key[0]].used(job.cpu_seconds, job.memory_byte_seconds)
    for each in containers:
        if (name := each.archive or "") not in totals:
            used = providers[name].used(each.cpu_seconds, each.memory_byte_seconds)
            splits[name].containers[each.container_id] = used
    if totals:
        _measure(queries, splits)
    if queries.has("gpu"):
        _add_gpus(queries, splits)
    return splits


def _measure(queries: Queries, splits: dict[str, Split]) -> None:
    queries.require_node_steps()
    for row in queries.rows(_BY_JOB):
        if row["joules"] is not None:
            _add(queries, splits[row["archive"]].jobs, row)
    for row in queries.rows(_BY_CONTAINER):
        if row["joules"] is not None:
            splits[row["archive"]].containers[row["container_id"]] = row["joules"]


def _add_gpus(queries: Queries, splits: dict[str, Split]) -> None:
    for row in queries.rows(_GPUS):
        split = splits[row["archive"]]
        if not split.gpus:
            split.method = split.method.removesuffix(", GPUs left out") + WITH_GPU
        split.gpus[row["gpu_uuid"]] = row["joules"]
        split.total += row["joules"]
    for row in queries.rows(_GPU_BY_JOB):
        if row["joules"] is not None:
            _add(queries, splits[row["archive"]].jobs, row)


def _add(queries: Queries, shares: dict[Key, float], row: Record) -> None:
    """The share of a process group goes to its batch job, where it is of one."""
    key = queries.leaders.get(key_of(row), key_of(row))
    shares[key] = shares.get(key, 0.0) + row["joules"]
