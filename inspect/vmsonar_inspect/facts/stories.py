"""The story of one job: its course, its processes, where it ran, and what ended it."""

from datetime import datetime, timedelta
from typing import Annotated

from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import (
    BUSY,
    BYTES,
    CORES,
    COUNT,
    NUMBER,
    PERCENT,
    RATE,
    SECONDS,
    SHARE,
    TEXT,
    TIME,
    titled,
)
from vmsonar_inspect.facts.jobs import Key
from vmsonar_inspect.facts.model import Advice, AnswerPart, ContainerUse, Coverage, GpuUse, Happening, JobUse
from vmsonar_inspect.facts.queries import JOBS_ON_GPUS, Queries, Record, number, weighted_mean, whole
from vmsonar_inspect.facts.timeline import begin_of, place, step_for

_PROCESSES = 20


class StoryMoment(AnswerPart):
    """One step of a job's course; pressure is the machine's."""

    time: Annotated[datetime, TIME]
    seconds: Annotated[float, SECONDS]
    cores: Annotated[float | None, CORES, titled("cores")]
    memory_bytes: Annotated[float | None, BYTES, titled("memory")]
    read_rate: Annotated[float | None, RATE, titled("read")]
    write_rate: Annotated[float | None, RATE, titled("written")]
    gpu_util: Annotated[float | None, PERCENT, titled("GPU")]
    pressure_cpu: Annotated[float | None, SHARE, titled("waited for CPU"), about("the machine's")]
    pressure_memory: Annotated[float | None, SHARE, titled("for memory"), about("the machine's")]
    pressure_io: Annotated[float | None, SHARE, titled("for the disk"), about("the machine's")]


class ProcessUse(AnswerPart):
    """One process of a job."""

    pid: Annotated[int, NUMBER, titled("pid")]
    program: str | None
    command: Annotated[str | None, TEXT, titled("command")]
    first: Annotated[datetime | None, TIME]
    last: Annotated[datetime | None, TIME]
    samples: Annotated[int, COUNT, titled("samples")]
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time")]
    memory_peak_bytes: Annotated[float | None, BYTES, titled("memory peak")]
    read_bytes: Annotated[float | None, BYTES, titled("read")]
    write_bytes: Annotated[float | None, BYTES, titled("written")]


class Story(AnswerPart):
    """Everything that is known about one job."""

    job: JobUse
    ended_by: str
    advice: Advice
    timeline: list[StoryMoment]
    processes: Annotated[list[ProcessUse], about("the 20 busiest")]
    container: ContainerUse | None
    gpus: list[GpuUse]
    events: list[Happening]


def _names(key: Key) -> dict[str, object]:
    return {"archive": key[0], "boot": key[1], "pgid": key[2], "start": key[3]}


def concerns(event: Happening, job: JobUse) -> bool:
    """Whether something happened to this job or its container."""
    if event.container_id is not None:
        return event.container_id == job.container_id
    return event.pgid is not None and event.pgid == job.pgid


def end_of(job: JobUse, advice: Advice, events: list[Happening]) -> str:
    """What ended a job, in words."""
    if not job.ended:
        return "still running at the last sample"
    if any(verdict.rule == "job_out_of_memory" for verdict in advice.verdicts):
        return "killed for lack of memory"
    deaths = [event for event in events if event.event == "container_die"]
    if deaths and job.last is not None and abs((deaths[-1].time - job.last).total_seconds()) < 120:
        code = deaths[-1].exit_code
        return "its container ended" + ("" if code is None else f" with exit code {code}")
    return "ended; how is not recorded"


def query_course(
    queries: Queries, key: Key, job: JobUse, interval: float | None, steps: int
) -> list[StoryMoment]:
    """The job over time in at most about that many steps; the interval is that of the samples."""
    if job.first is None or job.last is None:
        return []
    span = Coverage(span_seconds=(job.last - job.first).total_seconds(), interval_seconds=interval)
    step = step_for(span, steps)
    # The first interval of a job ends at its first sample.
    first = begin_of(job.first - timedelta(seconds=(interval or 1.0) / 2), step)
    values = {**_names(key), "first": first.replace(tzinfo=None)}
    queries.require_node_steps()
    rows = {row["place"]: row for row in queries.rows(_COURSE.format(place=place(step, "j.time")), **values)}
    cards = {}
    if job.gpus:
        found = queries.rows(_CARDS.format(place=place(step)), **values)
        cards = {row["place"]: number(row["util"]) for row in found}
    count = max(rows, default=-1) + 1
    return [
        _moment(first + timedelta(seconds=step * at), step, rows.get(at, {}), cards.get(at))
        for at in range(count)
    ]


def _moment(time: datetime, step: float, row: Record, gpu_util: float | None) -> StoryMoment:
    names = (name for name in StoryMoment.__struct_fields__ if name not in ("time", "seconds", "gpu_util"))
    values = {name: number(row.get(name)) for name in names}
    return StoryMoment(time=time, seconds=step, gpu_util=gpu_util, **values)


def query_processes(queries: Queries, key: Key) -> list[ProcessUse]:
    """The busiest processes of a job."""
    return [_process(row) for row in queries.rows(_MEMBERS, **_names(key))]


def _process(row: Record) -> ProcessUse:
    return ProcessUse(
        pid=row["pid"],
        program=row["program"],
        command=row["command"] or row["program"],
        first=row["first_time"],
        last=row["last_time"],
        samples=whole(row["samples"]) or 0,
        cpu_seconds=number(row["cpu_seconds"]),
        memory_peak_bytes=_own_memory(row),
        read_bytes=number(row["read_bytes"]),
        write_bytes=number(row["write_bytes"]),
    )


def _own_memory(row: Record) -> float | None:
    """Its own memory at the peak; the kernel's two counters are not of one moment, and may differ the wrong way."""
    peak = number(row["memory_peak"])
    return None if peak is None else max(0.0, peak)


_COURSE = f"""
    SELECT {{place}} AS place, {weighted_mean("j.cpu_cores", "j.interval_seconds")} AS cores,
        {weighted_mean("j.memory", "j.interval_seconds")} AS memory_bytes,
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
    SELECT {{place}} AS place, AVG(util) AS util FROM jobs_on_gpus
    WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND $start IS NOT NULL
    GROUP BY 1"""  # noqa: S608

_MEMBERS = f"""
    WITH span AS (
        SELECT MIN(seq) AS first_seq, MAX(seq) AS last_seq FROM job
        WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND start_ticks = $start
    ),
    members AS (
        SELECT DISTINCT archive, boot, pid, start_ticks FROM process, span
        WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND seq BETWEEN first_seq AND last_seq
    )
    SELECT u.* FROM process_usage AS u JOIN members USING (archive, boot, pid, start_ticks)
    ORDER BY u.cpu_seconds DESC NULLS LAST, u.pid LIMIT {_PROCESSES}"""  # noqa: S608
