"""The story of one job: its course, its processes, and what happened to it."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from vmsonar_inspect.facts.events import is_everyday
from vmsonar_inspect.facts.model import Happening, JobUse, ProcessUse, ProgramUse, StoryMoment
from vmsonar_inspect.facts.queries import (
    JOB_KEY_COLUMNS,
    JOBS_ON_GPUS,
    Key,
    Queries,
    struct_of,
    weighted_mean,
)
from vmsonar_inspect.facts.timeline import Steps

_PROCESSES = 20
_LAST_CODES = 10


def concerns(event: Happening, job: JobUse) -> bool:
    """Whether something happened to this job or its container."""
    if event.job_series_id is not None:
        return event.job_series_id == job.series_id
    if event.container_id is not None:
        return event.container_id == job.container_id
    return event.pgid is not None and event.pgid == job.pgid


def told_of(job: JobUse, events: Iterable[Happening]) -> list[Happening]:
    """What happened to a job; of the members that ended with a code the last few."""
    mine = [event for event in events if concerns(event, job)]
    early = {id(event) for event in [event for event in mine if is_everyday(event)][:-_LAST_CODES]}
    return [event for event in mine if id(event) not in early]


def query_course(
    queries: Queries, key: Key, job: JobUse, interval: float | None, most: int
) -> list[StoryMoment]:
    """The job over time in at most about that many steps; the interval is that of the samples."""
    if job.first is None or job.last is None:
        return []
    # The first interval of a job ends at its first sample.
    early = job.first - timedelta(seconds=(interval or 1.0) / 2)
    steps = Steps.over(job.first, job.last, most, interval).reaching(early)
    queries.require_node_steps()
    members = [member for member, lead in queries.leaders.items() if lead == key] or [key]
    queries.keep("story_groups", JOB_KEY_COLUMNS, members)
    rows = steps.rows(queries, _COURSE, "j.time")
    count = max((row["place"] + 1 for row in rows), default=0)
    rows += steps.rows(queries, _CARDS) if job.gpus else []
    return steps.filled(StoryMoment, rows, count)


def query_members(queries: Queries, keys: Sequence[Key]) -> list[tuple[list[ProcessUse], list[ProgramUse]]]:
    """Of each job the busiest processes, and all of them by their program, busiest first."""
    found: list[tuple[list[ProcessUse], list[ProgramUse]]] = [([], []) for _ in keys]
    if not keys:
        return found
    queries.require_members()
    subjects = [(number, *key) for number, key in enumerate(keys)]
    queries.keep("story_subjects", f"number BIGINT, {JOB_KEY_COLUMNS}", subjects)
    columns = {"first": "first_time", "last": "last_time", "resident_peak_bytes": "resident_peak"}
    for row in queries.rows(_MEMBERS):
        use = struct_of(ProcessUse, row, columns, command=row["command"] or row["program"])
        found[row["number"]][0].append(use)
    for row in queries.rows(_PROGRAMS):
        found[row["number"]][1].append(struct_of(ProgramUse, row, {}))
    return found


_COURSE = f"""
    WITH parts AS (
        SELECT archive, run, seq, time, MAX(interval_seconds) AS interval_seconds,
            SUM(cpu_cores * interval_seconds) / MAX(interval_seconds) AS cpu_cores, SUM(memory) AS memory,
            MIN(memory_source) AS memory_source, SUM(read_bytes_per_second) AS read_bytes_per_second,
            SUM(write_bytes_per_second) AS write_bytes_per_second
        FROM job_rates JOIN story_groups USING (archive, boot, pgid, start_ticks)
        GROUP BY archive, run, seq, time
    )
    SELECT {{place}} AS place, {weighted_mean("j.cpu_cores", "j.interval_seconds")} AS cores,
        {weighted_mean("j.memory", "j.interval_seconds")} AS memory_bytes,
        MIN(j.memory_source) AS memory_source,
        {weighted_mean("j.read_bytes_per_second", "j.interval_seconds")} AS read_rate,
        {weighted_mean("j.write_bytes_per_second", "j.interval_seconds")} AS write_rate,
        {weighted_mean("n.cpu_some_share", "n.interval_seconds")} AS pressure_cpu,
        {weighted_mean("n.memory_some_share", "n.interval_seconds")} AS pressure_memory,
        {weighted_mean("n.io_some_share", "n.interval_seconds")} AS pressure_io
    FROM parts AS j
    JOIN node_steps AS n ON j.archive = n.archive AND j.run = n.run AND j.seq = n.seq
    GROUP BY 1"""  # noqa: S608

_CARDS = f"""
    WITH {JOBS_ON_GPUS}
    SELECT {{place}} AS place, AVG(util) AS gpu_util
    FROM jobs_on_gpus JOIN (SELECT DISTINCT archive, boot, pgid FROM story_groups) USING (archive, boot, pgid)
    GROUP BY 1"""  # noqa: S608

_OF_JOBS = "FROM job_members JOIN story_subjects USING (archive, boot, pgid, start_ticks)"
_MEMBERS = f"""
    SELECT * {_OF_JOBS}
    QUALIFY ROW_NUMBER() OVER (PARTITION BY number ORDER BY cpu_seconds DESC NULLS LAST, pid) <= {_PROCESSES}
    ORDER BY number, cpu_seconds DESC NULLS LAST, pid"""
_PROGRAMS = f"""
    SELECT number, program, COUNT(*) AS processes, SUM(cpu_seconds) AS cpu_seconds,
        MAX(memory_peak_bytes) AS memory_peak_bytes, SUM(own_read_bytes) AS own_read_bytes,
        SUM(own_write_bytes) AS own_write_bytes {_OF_JOBS}
    GROUP BY number, program ORDER BY number, cpu_seconds DESC NULLS LAST, program"""
