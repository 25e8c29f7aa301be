"""Energy and emissions: measured or else estimated, split over jobs and containers with idle energy as its own row."""

import csv
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from pathlib import Path

from vmsonar_archive.system.errors import UsageError, reason_of

from vmsonar_inspect.facts.jobs import Key, key_of
from vmsonar_inspect.facts.model import ContainerUse, Coverage, Energy, JobUse, Machine, NodeUse
from vmsonar_inspect.facts.queries import JOBS_ON_GPUS, Queries

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
    """The averages of a cloud, or of all three for any other."""
    return PROVIDERS.get((name or "").lower(), ELSEWHERE)


def estimated_cpu(provider: Provider, cpu_seconds: float) -> float:
    """Joules above idle for this CPU time."""
    return cpu_seconds * (provider.full_watts - provider.idle_watts)


def estimated_idle(provider: Provider, cpus: int, seconds: float) -> float:
    """Joules of idle vCPUs."""
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
        .joinpath("facts/factors.tsv")
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


CPU_SHARE = "meters of the machine, split by share of all CPU time"
ESTIMATED = "Cloud Carbon Footprint averages per vCPU ({provider}) and GB of memory, GPUs left out"
WITH_GPU = "; GPU energy by use of each GPU"


@dataclass
class Split:
    """The joules of one archive; what nobody used is idle."""

    source: str
    method: str
    total: float
    jobs: dict[Key, float] = field(default_factory=dict)
    containers: dict[str, float] = field(default_factory=dict)
    gpus: dict[str, float] = field(default_factory=dict)

    @property
    def idle(self) -> float:
        return max(0.0, self.total - sum(self.jobs.values()))


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
    machines: list[Machine],
    coverages: dict[str, Coverage],
    uses: dict[str, NodeUse],
    jobs: dict[Key, JobUse],
    containers: list[ContainerUse],
) -> dict[str, Split]:
    """The energy of every archive that has samples."""
    metered = queries.rows(_TOTALS) if queries.has("energy") else []
    totals = {row["archive"]: row["joules"] for row in metered if row["joules"] is not None}
    splits = {}
    for machine in machines:
        name = machine.archive
        if name in totals:
            splits[name] = Split(MEASURED, CPU_SHARE, totals[name])
        elif name in uses:
            mine = {key: job for key, job in jobs.items() if key[0] == name}
            own = [container for container in containers if container.archive == name]
            splits[name] = _estimate(machine, coverages[name], uses[name], mine, own)
    if totals:
        _measure(queries, splits)
    if queries.has("gpu"):
        _add_gpus(queries, splits)
    return splits


def _measure(queries: Queries, splits: dict[str, Split]) -> None:
    queries.require_node_steps()
    for row in queries.rows(_BY_JOB):
        if row["joules"] is not None:
            splits[row["archive"]].jobs[key_of(row)] = row["joules"]
    for row in queries.rows(_BY_CONTAINER):
        if row["joules"] is not None:
            splits[row["archive"]].containers[row["container_id"]] = row["joules"]


def _estimate(
    machine: Machine,
    coverage: Coverage,
    use: NodeUse,
    jobs: dict[Key, JobUse],
    containers: list[ContainerUse],
) -> Split:
    provider = provider_of(machine.cloud_provider)
    seconds, memory = coverage.covered_seconds, use.memory_total_bytes or 0
    joules = estimated_cpu(provider, use.cpu_seconds or 0.0)
    joules += estimated_idle(provider, use.cpus or 0, seconds) + estimated_memory(memory * seconds)
    split = Split(ESTIMATE, ESTIMATED.format(provider=provider.name), joules)
    for key, job in jobs.items():
        split.jobs[key] = _estimated(provider, job.cpu_seconds, job.memory_byte_seconds)
    for container in containers:
        split.containers[container.container_id] = _estimated(
            provider, container.cpu_seconds, container.memory_byte_seconds
        )
    return split


def _estimated(provider: Provider, cpu_seconds: float | None, byte_seconds: float | None) -> float:
    return estimated_cpu(provider, cpu_seconds or 0.0) + estimated_memory(byte_seconds or 0.0)


def _add_gpus(queries: Queries, splits: dict[str, Split]) -> None:
    for row in queries.rows(_GPUS):
        split = splits.get(row["archive"])
        if split is None:
            continue
        if not split.gpus:
            split.method = split.method.removesuffix(", GPUs left out") + WITH_GPU
        split.gpus[row["gpu_uuid"]] = row["joules"]
        split.total += row["joules"]
    for row in queries.rows(_GPU_BY_JOB):
        if row["joules"] is not None and row["archive"] in splits:
            shares = splits[row["archive"]].jobs
            shares[key_of(row)] = shares.get(key_of(row), 0.0) + row["joules"]
