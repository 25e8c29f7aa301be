"""Energy of each archive, measured or else estimated, split over jobs and containers with idle apart."""

from dataclasses import dataclass, field

from vmsonar_inspect import energy
from vmsonar_inspect.asking import Asker
from vmsonar_inspect.held_cards import HELD_CARDS
from vmsonar_inspect.load_jobs import Key, key_of
from vmsonar_inspect.model import ContainerUse, Coverage, JobUse, Machine, NodeUse

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
# A meter of the whole machine says more than those of its packages, but the GPUs, which are told by themselves, are in
# it; packages and memory do not overlap, but the other domains of a package (rapl:package-0/core) are parts of it.
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

_BY_JOB = f"""
    SELECT j.archive, j.boot, j.pgid, j.start_ticks,
        SUM(m.joules * LEAST(1.0, j.cpu_seconds / (n.cpus * n.interval_seconds)))
            FILTER (WHERE j.cpu_seconds IS NOT NULL) AS joules
    FROM job_rates AS j
    JOIN ({_METERS}) AS m ON j.archive = m.archive AND j.run = m.run AND j.seq = m.seq
    JOIN node_steps AS n ON j.archive = n.archive AND j.run = n.run AND j.seq = n.seq
    GROUP BY ALL"""  # noqa: S608

_BY_CONTAINER = f"""
    SELECT c.archive, c.container_id,
        SUM(m.joules * LEAST(1.0, c.cpu_seconds / (n.cpus * n.interval_seconds)))
            FILTER (WHERE c.cpu_seconds IS NOT NULL) AS joules
    FROM container_rates AS c
    JOIN ({_METERS}) AS m ON c.archive = m.archive AND c.run = m.run AND c.seq = m.seq
    JOIN node_steps AS n ON c.archive = n.archive AND c.run = n.run AND c.seq = n.seq
    GROUP BY ALL"""  # noqa: S608

_GPUS = "SELECT archive, gpu_uuid, SUM(joules) AS joules FROM gpu_rates GROUP BY ALL HAVING SUM(joules) IS NOT NULL"

# The energy of a card in an interval goes to the jobs on it by their share of its use, that of processes of no known
# job included; unused, it is idle.
_GPU_BY_JOB = f"""
    WITH {HELD_CARDS},
    shared_ AS (
        SELECT *, util / NULLIF(SUM(util) OVER (PARTITION BY archive, run, seq, gpu_uuid), 0) AS part FROM held_cards
    )
    SELECT j.archive, j.boot, j.pgid, j.start_ticks, SUM(r.joules * s.part) AS joules
    FROM shared_ AS s
    JOIN job AS j ON s.archive = j.archive AND s.run = j.run AND s.seq = j.seq AND s.pgid = j.pgid
    JOIN gpu_rates AS r ON s.archive = r.archive AND s.run = r.run AND s.seq = r.seq AND s.gpu_uuid = r.gpu_uuid
    GROUP BY ALL"""  # noqa: S608


def split_energy(
    asker: Asker,
    machines: list[Machine],
    coverages: dict[str, Coverage],
    uses: dict[str, NodeUse],
    jobs: dict[Key, JobUse],
    containers: list[ContainerUse],
) -> dict[str, Split]:
    """The energy of every archive that has samples."""
    metered = asker.rows(_TOTALS) if asker.has("energy") else []
    totals = {row["archive"]: row["joules"] for row in metered if row["joules"] is not None}
    splits = {}
    for machine in machines:
        name = machine.archive
        if name in totals:
            splits[name] = Split(energy.MEASURED, CPU_SHARE, totals[name])
        elif name in uses:
            mine = {key: job for key, job in jobs.items() if key[0] == name}
            boxes = [box for box in containers if box.archive == name]
            splits[name] = _estimate(machine, coverages[name], uses[name], mine, boxes)
    if totals:
        _measure(asker, splits)
    if asker.has("gpu"):
        _add_gpus(asker, splits)
    return splits


def _measure(asker: Asker, splits: dict[str, Split]) -> None:
    for row in asker.rows(_BY_JOB):
        if row["joules"] is not None:
            splits[row["archive"]].jobs[key_of(row)] = row["joules"]
    for row in asker.rows(_BY_CONTAINER):
        if row["joules"] is not None:
            splits[row["archive"]].containers[row["container_id"]] = row["joules"]


def _estimate(
    machine: Machine, coverage: Coverage, use: NodeUse, jobs: dict[Key, JobUse], boxes: list[ContainerUse]
) -> Split:
    provider = energy.provider_of(machine.cloud_provider)
    seconds, memory = coverage.covered_seconds, use.memory_total_bytes or 0
    joules = energy.estimated_cpu(provider, use.cpu_seconds or 0.0)
    joules += energy.estimated_idle(provider, use.cpus or 0, seconds) + energy.estimated_memory(
        memory * seconds
    )
    split = Split(energy.ESTIMATE, ESTIMATED.format(provider=provider.name), joules)
    for key, job in jobs.items():
        split.jobs[key] = _estimated(provider, job.cpu_seconds, job.memory_byte_seconds)
    for box in boxes:
        split.containers[box.container_id] = _estimated(provider, box.cpu_seconds, box.memory_byte_seconds)
    return split


def _estimated(provider: energy.Provider, cpu_seconds: float | None, byte_seconds: float | None) -> float:
    return energy.estimated_cpu(provider, cpu_seconds or 0.0) + energy.estimated_memory(byte_seconds or 0.0)


def _add_gpus(asker: Asker, splits: dict[str, Split]) -> None:
    for row in asker.rows(_GPUS):
        split = splits.get(row["archive"])
        if split is None:
            continue
        if not split.gpus:
            split.method = split.method.removesuffix(", GPUs left out") + WITH_GPU
        split.gpus[row["gpu_uuid"]] = row["joules"]
        split.total += row["joules"]
    for row in asker.rows(_GPU_BY_JOB):
        if row["joules"] is not None and row["archive"] in splits:
            shares = splits[row["archive"]].jobs
            shares[key_of(row)] = shares.get(key_of(row), 0.0) + row["joules"]
