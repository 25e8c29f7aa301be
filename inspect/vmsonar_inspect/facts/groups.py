"""Use summed over jobs: by user, and by program with its hours of the day and days of the week."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo

from vmsonar_archive.system.moments import in_zone

from vmsonar_inspect.facts.energy import ESTIMATE, JOULES_PER_KWH
from vmsonar_inspect.facts.jobs import KEY_COLUMNS, Key
from vmsonar_inspect.facts.model import Energy, GroupUse, JobUse
from vmsonar_inspect.facts.queries import Queries, Record, number, total

# No zone is offset from UTC by anything finer.
_QUARTER = 900
#: Seconds of the first moment that there is.
_YEAR_1 = -62_135_596_800

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
    queries: Queries, jobs: dict[Key, JobUse], name_of: Callable[[JobUse], str | None], zone: tzinfo
) -> list[GroupUse]:
    """Groups of jobs, most CPU time first."""
    names = {key: name_of(job) or "unknown" for key, job in jobs.items()}
    queries.keep("job_groups", f"{KEY_COLUMNS}, name VARCHAR", [(*key, name) for key, name in names.items()])
    memory = queries.by("name", _MEMORY)
    times: dict[str, list[Record]] = {}
    for row in queries.rows(_TIMES):
        times.setdefault(row["name"], []).append(row)
    members: dict[str, list[JobUse]] = {}
    for key, job in jobs.items():
        members.setdefault(names[key], []).append(job)
    groups = [
        _group(name, mine, memory.get(name, {}), times.get(name, []), zone) for name, mine in members.items()
    ]
    return sorted(groups, key=lambda group: (-(group.cpu_seconds or 0.0), group.name))


def _group(name: str, jobs: Sequence[JobUse], memory: Record, times: list[Record], zone: tzinfo) -> GroupUse:
    by_hour, by_weekday = [0.0] * 24, [0.0] * 7
    for row in times:
        moment = in_zone(datetime.fromtimestamp(max(row["quarter"] * _QUARTER, _YEAR_1), UTC), zone)
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
    source = ESTIMATE if ESTIMATE in sources else next(iter(sources), None)
    return Energy(
        joules=joules,
        kwh=None if joules is None else joules / JOULES_PER_KWH,
        source=source,
        method="; ".join(sorted(methods)) or None if joules is not None else None,
        grams_co2e=total(job.energy.grams_co2e for job in jobs),
    )
