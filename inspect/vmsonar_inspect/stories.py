"""The story of one job: its course, its processes, where it ran, and what ended it."""

from datetime import datetime, timedelta

from vmsonar_archive.errors import AnswerIsNo

from vmsonar_inspect.asking import Record, number, weighted_mean, whole
from vmsonar_inspect.held_cards import HELD_CARDS
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.load_jobs import Key
from vmsonar_inspect.load_timeline import begin_of, place, step_for
from vmsonar_inspect.model import (
    Answer,
    ContainerUse,
    Coverage,
    GpuUse,
    Happening,
    JobUse,
)
from vmsonar_inspect.model_advice import Advice

_PROCESSES = 20
_MOST = 5


class StoryMoment(Answer):
    """One step of a job's course; pressure is the machine's."""

    time: datetime
    seconds: float
    cores: float | None
    memory_bytes: float | None
    read_rate: float | None
    write_rate: float | None
    gpu_util: float | None
    pressure_cpu: float | None
    pressure_memory: float | None
    pressure_io: float | None


class ProcessUse(Answer):
    """One process of a job."""

    pid: int
    program: str | None
    command: str | None
    first: datetime | None
    last: datetime | None
    samples: int
    cpu_seconds: float | None
    memory_peak_bytes: float | None
    read_bytes: float | None
    write_bytes: float | None


class Story(Answer):
    """Everything about one job."""

    job: JobUse
    ended_by: str
    advice: Advice
    timeline: list[StoryMoment]
    processes: list[ProcessUse]
    container: ContainerUse | None
    gpus: list[GpuUse]
    events: list[Happening]


def find_jobs(inspection: Inspection, wanted: str) -> list[tuple[Key, JobUse]]:
    """The jobs of that id, process group or series, the latest first."""
    found = [
        (key, job)
        for key, job in inspection.keyed_jobs.items()
        if wanted in (job.job, str(job.pgid), job.series_id)
    ]
    if not found:
        raise AnswerIsNo(f"no job {wanted!r} was recorded: see the view jobs for those that were")
    return sorted(found, key=lambda pair: pair[1].first.timestamp() if pair[1].first else 0, reverse=True)[
        :_MOST
    ]


def tell(inspection: Inspection, key: Key, steps: int) -> Story:
    """The story of one job."""
    inspection.jobs  # noqa: B018 - gives each job its energy
    job = inspection.keyed_jobs[key]
    advice = next(each for each in inspection.advice(key[0], all_jobs=True) if each.subject == job.series_id)
    events = [event for archive, event in inspection.events if archive == key[0] and _concerns(event, job)]
    boxes = [box for box in inspection.containers if box.container_id == job.container_id]
    return Story(
        job=job,
        ended_by=_end(job, advice, events),
        advice=advice,
        timeline=_timeline(inspection, key, job, steps),
        processes=[_process(row) for row in inspection.asker.rows(_MEMBERS, **_names(key))],
        container=boxes[0] if boxes else None,
        gpus=[gpu for gpu in inspection.gpus if gpu.gpu in job.gpus],
        events=events,
    )


def _names(key: Key) -> dict[str, object]:
    return {"archive": key[0], "boot": key[1], "pgid": key[2], "start": key[3]}


def _concerns(event: Happening, job: JobUse) -> bool:
    if event.container_id is not None:
        return event.container_id == job.container_id
    return event.pgid is not None and event.pgid == job.pgid


def _end(job: JobUse, advice: Advice, events: list[Happening]) -> str:
    if not job.ended:
        return "still running at the last sample"
    if any(verdict.rule == "job_out_of_memory" for verdict in advice.verdicts):
        return "killed for lack of memory"
    deaths = [event for event in events if event.event == "container_die"]
    if deaths and job.last is not None and abs((deaths[-1].time - job.last).total_seconds()) < 120:
        code = deaths[-1].exit_code
        return "its container ended" + ("" if code is None else f" with exit code {code}")
    return "ended; how is not recorded"


def _timeline(inspection: Inspection, key: Key, job: JobUse, steps: int) -> list[StoryMoment]:
    if job.first is None or job.last is None:
        return []
    coverage = inspection.coverage[key[0]]
    span = Coverage(
        span_seconds=(job.last - job.first).total_seconds(), interval_seconds=coverage.interval_seconds
    )
    step = step_for(span, steps)
    # The first interval of a job ends at its first sample.
    first = begin_of(job.first - timedelta(seconds=(coverage.interval_seconds or 1.0) / 2), step)
    values = {**_names(key), "first": first.replace(tzinfo=None)}
    inspection.need_node_steps()
    rows = {
        row["place"]: row
        for row in inspection.asker.rows(_COURSE.format(place=place(step, "j.time")), **values)
    }
    cards = {}
    if job.gpus:
        found = inspection.asker.rows(_CARDS.format(place=place(step)), **values)
        cards = {row["place"]: number(row["util"]) for row in found}
    count = max(rows, default=-1) + 1
    return [
        _moment(first + timedelta(seconds=step * at), step, rows.get(at, {}), cards.get(at))
        for at in range(count)
    ]


def _moment(time: datetime, step: float, row: Record, gpu_util: float | None) -> StoryMoment:
    names = (
        "cores",
        "memory_bytes",
        "read_rate",
        "write_rate",
        "pressure_cpu",
        "pressure_memory",
        "pressure_io",
    )
    values = {name: number(row.get(name)) for name in names}
    return StoryMoment(time=time, seconds=step, gpu_util=gpu_util, **values)


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
    WITH {HELD_CARDS}
    SELECT {{place}} AS place, AVG(util) AS util FROM held_cards
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
