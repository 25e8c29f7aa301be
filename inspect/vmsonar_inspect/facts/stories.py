"""The story of one job: its course, its processes, and what happened to it."""

from datetime import timedelta

from vmsonar_inspect.facts.model import Happening, JobUse, ProcessUse, ProgramUse, StoryMoment
from vmsonar_inspect.facts.queries import JOBS_ON_GPUS, Key, Queries, names_of, struct_of, weighted_mean
from vmsonar_inspect.facts.timeline import Steps

_PROCESSES = 20


def concerns(event: Happening, job: JobUse) -> bool:
    """Whether something happened to this job or its container."""
    if event.job_series_id is not None:
        return event.job_series_id == job.series_id
    if event.container_id is not None:
        return event.container_id == job.container_id
    return event.pgid is not None and event.pgid == job.pgid


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
    rows = steps.rows(queries, _COURSE, "j.time", **names_of(key))
    count = max((row["place"] + 1 for row in rows), default=0)
    rows += steps.rows(queries, _CARDS, **names_of(key)) if job.gpus else []
    return steps.filled(StoryMoment, rows, count)


def query_processes(queries: Queries, key: Key) -> list[ProcessUse]:
    """The busiest processes of a job."""
    queries.require_members()
    columns = {"first": "first_time", "last": "last_time", "resident_peak_bytes": "resident_peak"}
    return [
        struct_of(ProcessUse, row, columns, command=row["command"] or row["program"])
        for row in queries.rows(_MEMBERS, **names_of(key))
    ]


def query_programs(queries: Queries, key: Key) -> list[ProgramUse]:
    """All processes of a job by their program, busiest first."""
    queries.require_members()
    return [struct_of(ProgramUse, row, {}) for row in queries.rows(_PROGRAMS, **names_of(key))]


_COURSE = f"""
    SELECT {{place}} AS place, {weighted_mean("j.cpu_cores", "j.interval_seconds")} AS cores,
        {weighted_mean("j.memory", "j.interval_seconds")} AS memory_bytes,
        MIN(j.memory_source) AS memory_source,
        {weighted_mean("j.read_bytes_per_second", "j.interval_seconds")} AS read_rate,
        {weighted_mean("j.write_bytes_per_second", "j.interval_seconds")} AS write_rate,
        {weighted_mean("n.cpu_some_share", "n.interval_seconds")} AS pressure_cpu,
        {weighted_mean("n.memory_some_share", "n.interval_seconds")} AS pressure_memory,
        {weighted_mean("n.io_some_share", "n.interval_seconds")} AS pressure_io
    FROM job_rates AS j
    JOIN node_steps AS n ON j.archive = n.archive AND j.run = n.run AND j.seq = n.seq
    WHERE j.archive = $archive AND j.boot = $boot AND j.pgid = $pgid AND j.start_ticks = $start
    GROUP BY 1"""  # noqa: S608

_CARDS = f"""
    WITH {JOBS_ON_GPUS}
    SELECT {{place}} AS place, AVG(util) AS gpu_util FROM jobs_on_gpus
    WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND $start IS NOT NULL
    GROUP BY 1"""  # noqa: S608

_OF_JOB = (
    "FROM job_members WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND start_ticks = $start"
)
_MEMBERS = f"SELECT * {_OF_JOB} ORDER BY cpu_seconds DESC NULLS LAST, pid LIMIT {_PROCESSES}"
_PROGRAMS = f"""
    SELECT program, COUNT(*) AS processes, SUM(cpu_seconds) AS cpu_seconds, MAX(memory_peak_bytes) AS memory_peak_bytes,
        SUM(own_read_bytes) AS own_read_bytes, SUM(own_write_bytes) AS own_write_bytes
    {_OF_JOB} GROUP BY program ORDER BY cpu_seconds DESC NULLS LAST, program"""
