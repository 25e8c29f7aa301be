"""Use summed over jobs: by user, and by program with its hours of the day and days of the week."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo

from vmsonar_inspect.asking import Asker, Record, number, total
from vmsonar_inspect.energy import energy_of
from vmsonar_inspect.load_jobs import Key
from vmsonar_inspect.model import Energy, GroupUse, JobUse

# No zone is offset from UTC by anything finer.
_QUARTER = 900

_MEMORY = """
    WITH moments AS (
        SELECT g.name, j.archive, j.run, j.seq, SUM(j.memory) AS memory
        FROM job AS j JOIN job_groups AS g USING (archive, boot, pgid, start_ticks) GROUP BY ALL
    )
    SELECT name, quantile_cont(memory, 0.5) AS median, quantile_cont(memory, 0.95) AS p95, MAX(memory) AS peak
    FROM moments GROUP BY name"""

# A sample speaks of the time before it: what was used lies around the middle of that.
_TIMES = f"""
    SELECT g.name, CAST(FLOOR((epoch(j.time) - j.interval_seconds / 2) / {_QUARTER}) AS BIGINT) AS quarter,
        SUM(j.cpu_seconds) AS cpu_seconds
    FROM job_rates AS j JOIN job_groups AS g USING (archive, boot, pgid, start_ticks)
    WHERE j.cpu_seconds IS NOT NULL GROUP BY ALL"""  # noqa: S608


def group_jobs(
    asker: Asker, jobs: dict[Key, JobUse], name_of: Callable[[JobUse], str | None], zone: tzinfo
) -> list[GroupUse]:
    """Groups of jobs, most CPU time first."""
    names = {key: name_of(job) or "unknown" for key, job in jobs.items()}
    _tell(asker, names)
    memory = asker.by("name", _MEMORY)
    times: dict[str, list[Record]] = {}
    for row in asker.rows(_TIMES):
        times.setdefault(row["name"], []).append(row)
    members: dict[str, list[JobUse]] = {}
    for key, job in jobs.items():
        members.setdefault(names[key], []).append(job)
    groups = [
        _group(name, mine, memory.get(name, {}), times.get(name, []), zone) for name, mine in members.items()
    ]
    return sorted(groups, key=lambda group: (-(group.cpu_seconds or 0.0), group.name))


def _tell(asker: Asker, names: dict[Key, str]) -> None:
    """Hands the names to the tables."""
    connection = asker.connection
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE job_groups "
        "(archive VARCHAR, boot VARCHAR, pgid BIGINT, start_ticks BIGINT, name VARCHAR)"
    )
    if names:
        rows = [(*key, name) for key, name in names.items()]
        connection.executemany("INSERT INTO job_groups VALUES (?, ?, ?, ?, ?)", rows)


def _group(name: str, jobs: Sequence[JobUse], memory: Record, times: list[Record], zone: tzinfo) -> GroupUse:
    by_hour, by_weekday = [0.0] * 24, [0.0] * 7
    for row in times:
        moment = datetime.fromtimestamp(row["quarter"] * _QUARTER, UTC).astimezone(zone)
        by_hour[moment.hour] += row["cpu_seconds"]
        by_weekday[moment.weekday()] += row["cpu_seconds"]
    return GroupUse(
        name=name,
        tags=sorted({tag for job in jobs for tag in job.tags}),
        jobs=len(jobs),
        users=len({job.user for job in jobs}),
        cpu_seconds=total(job.cpu_seconds for job in jobs),
        gpu_seconds=total(job.gpu_seconds for job in jobs),
        cpu_is_lower_bound=any(job.cpu_is_lower_bound for job in jobs),
        runtime_seconds=total(job.observed_seconds for job in jobs),
        memory_median_bytes=number(memory.get("median")),
        memory_p95_bytes=number(memory.get("p95")),
        memory_peak_bytes=number(memory.get("peak")),
        read_bytes=total(job.read_bytes for job in jobs),
        write_bytes=total(job.write_bytes for job in jobs),
        energy=_energy(jobs),
        cpu_seconds_by_hour=by_hour,
        cpu_seconds_by_weekday=by_weekday,
    )


def _energy(jobs: Sequence[JobUse]) -> Energy:
    joules = total(job.energy.joules for job in jobs)
    sources = {job.energy.source for job in jobs if job.energy.source}
    methods = {job.energy.method for job in jobs if job.energy.method}
    # One estimate among measurements makes the sum an estimate.
    source = "estimate" if "estimate" in sources else next(iter(sources), None)
    found = energy_of(joules, source, "; ".join(sorted(methods)) or None, None)
    grams = total(job.energy.grams_co2e for job in jobs)
    return Energy(joules=found.joules, kwh=found.kwh, source=source, method=found.method, grams_co2e=grams)
