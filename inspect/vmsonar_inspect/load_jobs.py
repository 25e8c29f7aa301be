"""What each job used: the shared rollup, with its GPUs, threads and what the machine suffered meanwhile."""

from dataclasses import dataclass

from vmsonar_inspect.asking import Asker, Record, number, use_columns, use_of, weighted_mean, whole
from vmsonar_inspect.model import JobUse
from vmsonar_inspect.programs import Program, ProgramMap

#: What names a job across the tables.
Key = tuple[str, str, int, int]
_KEY = "archive, boot, pgid, start_ticks"


@dataclass(frozen=True, slots=True)
class JobContext:
    """How the machine fared while a job ran, and how its work was divided."""

    node_cores: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    disk_bytes: float | None = None
    runnable: float | None = None
    workers: int | None = None
    top_worker_share: float | None = None


def key_of(row: Record) -> Key:
    return row["archive"], row["boot"], row["pgid"], row["start_ticks"]


def load_jobs(asker: Asker, programs: ProgramMap, names: dict[str, str | None]) -> dict[Key, JobUse]:
    """Every job, by its key."""
    profiles = {key_of(row): row for row in asker.rows(_PROFILE)}
    cards = {key_of(row): row for row in asker.rows(_GPU)}
    ends = {key_of(row) for row in asker.rows(_ENDS)}
    busiest = {key_of(row): row["command"] for row in asker.rows(_BUSIEST)}
    jobs = {}
    for row in asker.rows("SELECT * FROM job_usage"):
        key = key_of(row)
        job = _job(row, profiles.get(key, {}), cards.get(key, {}), key in ends)
        program = _program(programs, row["command"] or row["program"], busiest.get(key))
        job.program, job.tags = program.name, list(program.tags)
        job.container = names.get(job.container_id or "")
        jobs[key] = job
    return jobs


def _program(programs: ProgramMap, command: str | None, busiest: str | None) -> Program:
    """What a job is called: a shell by the program that it kept busiest."""
    program = programs.of(command)
    if "shell" in program.tags and busiest is not None:
        inner = programs.of(busiest)
        return inner if "shell" not in inner.tags else program
    return program


# Threads are a level, and the memory held over time is what its energy goes by.
_PROFILE = f"""
    SELECT {_KEY}, {use_columns("threads", "threads")},
        SUM(memory * interval_seconds) AS memory_byte_seconds,
        {use_columns("read_bytes_per_second", "read")}, {use_columns("write_bytes_per_second", "write")}
    FROM job_rates GROUP BY {_KEY}"""  # noqa: S608

# Per sample and card what the job's processes used together; then over the cards, then over time.
_GPU = f"""
    WITH cards AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks, g.run, g.seq, g.gpu_uuid,
            LEAST(SUM(g.gpu_util), 100) AS util, SUM(g.memory_used) AS memory
        FROM gpu_process AS g
        JOIN job AS j ON g.archive = j.archive AND g.run = j.run AND g.seq = j.seq AND g.pgid = j.pgid
        GROUP BY ALL
    ),
    samples_ AS (
        SELECT {_KEY}, run, seq, AVG(util) AS util, SUM(util) AS util_sum, SUM(memory) AS memory
        FROM cards GROUP BY ALL
    ),
    rolled AS (
        SELECT {_KEY}, {use_columns("s.util", "util")}, {use_columns("s.memory", "memory")},
            SUM(s.util_sum / 100 * interval_seconds) AS gpu_seconds
        FROM samples_ AS s
        JOIN (SELECT archive, run, seq, interval_seconds FROM sample_intervals) AS i USING (archive, run, seq)
        GROUP BY {_KEY}
    )
    SELECT rolled.*, (
        SELECT list(DISTINCT c.gpu_uuid ORDER BY c.gpu_uuid) FROM cards AS c
        WHERE c.archive = rolled.archive AND c.boot = rolled.boot AND c.pgid = rolled.pgid
            AND c.start_ticks = rolled.start_ticks
    ) AS gpus
    FROM rolled"""  # noqa: S608

# A job has ended when samples of its boot go on without it.
_ENDS = f"""
    WITH last_job AS (SELECT {_KEY}, MAX(seq) AS seq FROM job GROUP BY {_KEY}),
    last_boot AS (SELECT archive, MAX(seq) AS last_seq FROM samples GROUP BY archive)
    SELECT {_KEY} FROM last_job JOIN last_boot USING (archive) WHERE seq < last_seq"""  # noqa: S608

_TICKS = """
    SELECT archive, boot, pgid, pid, start_ticks, COUNT(*) AS samples,
        MAX(user_ticks + system_ticks)
        - CASE WHEN COUNT(*) > 1 THEN MIN(user_ticks + system_ticks) ELSE 0 END AS ticks,
        MIN(seq) AS first_seq
    FROM process WHERE pgid IS NOT NULL GROUP BY ALL"""

_BUSIEST = f"""
    WITH ticks_ AS ({_TICKS}),
    shells AS (
        SELECT archive, boot, pgid, start_ticks AS job_ticks FROM latest_job_info
        WHERE regexp_matches(COALESCE(command, program), '^-?(/[^ ]*/)?(bash|sh|dash|zsh|fish|ksh)( |$)')
    )
    SELECT s.archive, s.boot, s.pgid, s.job_ticks AS start_ticks,
        arg_max(COALESCE(p.command, p.program), t.ticks) AS command
    FROM shells AS s
    JOIN ticks_ AS t ON s.archive = t.archive AND s.boot = t.boot AND s.pgid = t.pgid
    JOIN latest_process_info AS p
        ON t.archive = p.archive AND t.boot = p.boot AND t.pid = p.pid AND t.start_ticks = p.start_ticks
    GROUP BY ALL"""  # noqa: S608


def _job(row: Record, profile: Record, cards: Record, ended: bool) -> JobUse:
    return JobUse(
        job=row["job_id"] or str(row["pgid"]),
        series_id=row["series_id"] or "",
        archive=row["archive"],
        job_source=row["job_source"],
        pgid=row["pgid"],
        user=row["user_name"] or (None if row["user_id"] is None else f"uid {row['user_id']}"),
        command=row["command"] or row["program"],
        container_id=row["container_id"],
        started=row["started"],
        first=row["first_time"],
        last=row["last_time"],
        runtime_seconds=number(row["runtime_seconds"]),
        observed_seconds=number(row["recorded_seconds"]),
        samples=row["samples"],
        ended=ended,
        cpu_seconds=number(row["cpu_seconds"]),
        cpu_is_lower_bound=bool(row["unattributed"]),
        cores=use_of(row, "cores"),
        memory_bytes=use_of(row, "memory"),
        memory_byte_seconds=number(profile.get("memory_byte_seconds")),
        threads=use_of(profile, "threads"),
        processes_peak=whole(row["processes_peak"]),
        processes_seen=whole(row["processes_seen"]),
        read_bytes=number(row["read_bytes"]),
        write_bytes=number(row["write_bytes"]),
        read_rate=use_of(profile, "read"),
        write_rate=use_of(profile, "write"),
        io_is_lower_bound=bool(row["io_partial"]),
        major_faults=number(row["major_faults"]),
        gpus=cards.get("gpus") or [],
        gpu_seconds=number(cards.get("gpu_seconds")),
        gpu_util=use_of(cards, "util"),
        gpu_memory_bytes=use_of(cards, "memory"),
    )


def load_contexts(asker: Asker) -> dict[Key, JobContext]:
    """How the machine fared while each job ran."""
    workers = {key_of(row): row for row in asker.rows(_WORKERS)}
    found = {}
    for row in asker.rows(_CONTEXT):
        key = key_of(row)
        own = workers.get(key, {})
        found[key] = JobContext(
            node_cores=number(row["node_cores"]),
            pressure_cpu=number(row["pressure_cpu"]),
            pressure_memory=number(row["pressure_memory"]),
            pressure_io=number(row["pressure_io"]),
            disk_bytes=number(row["disk_bytes"]),
            runnable=number(row["runnable"]),
            workers=whole(own.get("workers")),
            top_worker_share=number(own.get("top_share")),
        )
    return found


_CONTEXT = f"""
    WITH nodes AS (
        SELECT r.archive, r.run, r.seq, r.cpu_busy_cores, r.cpu_some_share, r.memory_some_share, r.io_some_share,
            r.disk_read_bytes_per_second + r.disk_write_bytes_per_second AS disk_rate, n.tasks_runnable,
            r.interval_seconds
        FROM node_rates AS r JOIN node AS n USING (archive, run, boot, seq)
    )
    SELECT {_KEY}, {weighted_mean("n.cpu_busy_cores", "n.interval_seconds")} AS node_cores,
        {weighted_mean("n.cpu_some_share", "n.interval_seconds")} AS pressure_cpu,
        {weighted_mean("n.memory_some_share", "n.interval_seconds")} AS pressure_memory,
        {weighted_mean("n.io_some_share", "n.interval_seconds")} AS pressure_io,
        SUM(n.disk_rate * n.interval_seconds) AS disk_bytes, quantile_cont(n.tasks_runnable, 0.5) AS runnable
    FROM job AS j JOIN nodes AS n USING (archive, run, seq)
    GROUP BY {_KEY}"""  # noqa: S608

# Workers are the members that lived for most of the job and run the same program as the busiest of them.
_WORKERS = f"""
    WITH ticks_ AS ({_TICKS}),
    jobs AS (SELECT {_KEY}, COUNT(*) AS samples, MIN(seq) AS first_seq, MAX(seq) AS last_seq FROM job GROUP BY {_KEY}),
    members AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks, t.ticks, p.program,
            first_value(p.program) OVER (
                PARTITION BY j.archive, j.boot, j.pgid, j.start_ticks ORDER BY t.ticks DESC
            ) AS busiest
        FROM jobs AS j
        JOIN ticks_ AS t ON j.archive = t.archive AND j.boot = t.boot AND j.pgid = t.pgid
            AND t.first_seq BETWEEN j.first_seq AND j.last_seq AND t.samples >= j.samples / 2
        LEFT JOIN latest_process_info AS p
            ON t.archive = p.archive AND t.boot = p.boot AND t.pid = p.pid AND t.start_ticks = p.start_ticks
    )
    SELECT {_KEY}, COUNT(*) AS workers, MAX(ticks) / NULLIF(SUM(ticks), 0) AS top_share
    FROM members WHERE program IS NOT DISTINCT FROM busiest GROUP BY {_KEY}"""  # noqa: S608
