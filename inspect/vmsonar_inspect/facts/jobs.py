"""What each job used: the shared rollup, with its GPUs, threads and what the machine suffered meanwhile."""

from dataclasses import dataclass

from vmsonar_inspect.facts.model import JobUse
from vmsonar_inspect.facts.programs import Program, ProgramMap
from vmsonar_inspect.facts.queries import (
    JOBS_ON_GPUS,
    Queries,
    Record,
    number,
    use_columns,
    use_of,
    weighted_mean,
    whole,
)
from vmsonar_inspect.tables.views import view

#: What names a job across the tables.
Key = tuple[str, str, int, int]
KEY_COLUMNS = "archive VARCHAR, boot VARCHAR, pgid BIGINT, start_ticks BIGINT"
_KEY = "archive, boot, pgid, start_ticks"
_KEY_OF_J = "j.archive, j.boot, j.pgid, j.start_ticks"


@dataclass(frozen=True, slots=True)
class JobContext:
    """How the machine fared while a job ran, and how its work was divided."""

    node_cores: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    disk_bytes: float | None = None
    runnable: float | None = None
    forks: float | None = None
    workers: int | None = None
    top_worker_share: float | None = None
    seen_cpu_seconds: float | None = None


def key_of(row: Record) -> Key:
    return row["archive"], row["boot"], row["pgid"], row["start_ticks"]


def query_jobs(
    queries: Queries, programs: ProgramMap, names: dict[str, str | None], deep: bool
) -> dict[Key, JobUse]:
    """Every job, by its key; a deep look names a shell's job after the program that it kept busiest."""
    queries.connection.execute(_SUMS)
    profiles = {(*key_of(row), row["measure"]): row for row in queries.rows(_PROFILE)}
    cards = {key_of(row): row for row in queries.rows(_GPU)} if queries.has("gpu_process") else {}
    last = {row["archive"]: row["time"] for row in queries.rows(_LAST)}
    shells = deep and bool(queries.rows(_ANY_SHELL))
    busiest = {key_of(row): row["command"] for row in queries.rows(_BUSIEST)} if shells else {}
    jobs = {}
    for row in queries.rows(view("job_usage", totals="job_sums").query):
        key = key_of(row)
        profile = {name: profiles.get((*key, name), {}) for name in ("threads", "read_bytes", "write_bytes")}
        # A job has ended when samples go on without it.
        job = _job(row, profile, cards.get(key, {}), row["last_time"] < last[row["archive"]])
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


# The totals of the series are computed once for all queries.
_SUMS = "CREATE OR REPLACE TEMP TABLE job_sums AS SELECT * FROM job_totals"

# The measures of the daily summaries that the shared rollup does not show.
_PROFILE = """
    SELECT archive, boot, number AS pgid, start_ticks, measure, total / NULLIF(seconds, 0) AS use_mean,
        median AS use_median, p95 AS use_p95, maximum AS use_peak
    FROM job_sums WHERE measure IN ('threads', 'read_bytes', 'write_bytes')"""

# Per sample and card what a job used; then over the cards, then over time.
_GPU = f"""
    WITH {JOBS_ON_GPUS},
    cards AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks, h.run, h.seq, h.gpu_uuid, h.memory, h.util
        FROM jobs_on_gpus AS h
        JOIN job AS j ON h.archive = j.archive AND h.run = j.run AND h.seq = j.seq AND h.pgid = j.pgid
    ),
    samples_ AS (
        SELECT {_KEY}, run, seq, AVG(util) AS util, SUM(util) AS util_sum, SUM(memory) AS memory
        FROM cards GROUP BY ALL
    ),
    rolled AS (
        SELECT {_KEY}, {use_columns("s.util", "util")}, {use_columns("s.memory", "memory")},
            SUM(s.util_sum / 100 * interval_seconds) AS gpu_seconds
        FROM samples_ AS s
        JOIN (
            SELECT archive, run, seq,
                CASE WHEN interval_seconds <= longest_seconds THEN interval_seconds END AS interval_seconds
            FROM sample_intervals JOIN reading_limits USING (archive, boot)
        ) AS i USING (archive, run, seq)
        GROUP BY {_KEY}
    )
    SELECT rolled.*, (
        SELECT list(DISTINCT c.gpu_uuid ORDER BY c.gpu_uuid) FROM cards AS c
        WHERE c.archive = rolled.archive AND c.boot = rolled.boot AND c.pgid = rolled.pgid
            AND c.start_ticks = rolled.start_ticks
    ) AS gpus
    FROM rolled"""  # noqa: S608

_LAST = "SELECT archive, MAX(time) AS time FROM samples GROUP BY archive"

_STARTERS = (
    "bash|sh|dash|zsh|fish|ksh|timeout|nohup|nice|ionice|chrt|setsid|env|sudo|su|time|xargs|stdbuf|taskset|numactl|"
    "watch|flock|script|strace|unshare|nsenter|systemd-run|runuser|tini|dumb-init"
)
_SHELL = f"regexp_matches(COALESCE(command, program), '^-?(/[^ ]*/)?({_STARTERS})( |$)')"
_ANY_SHELL = f"SELECT 1 AS found FROM job_info WHERE {_SHELL} LIMIT 1"  # noqa: S608

# A process hardly ever changes its job: take the one its rows name.
_MEMBERS = """
    SELECT archive, boot, pid, start_ticks, MAX(pgid) AS pgid, MIN(seq) AS first_seq
    FROM process WHERE pgid IS NOT NULL GROUP BY archive, boot, pid, start_ticks"""

_BUSIEST = f"""
    WITH shells AS (
        SELECT archive, boot, pgid, start_ticks AS job_ticks FROM latest_job_info WHERE {_SHELL}
    ),
    members AS ({_MEMBERS})
    SELECT s.archive, s.boot, s.pgid, s.job_ticks AS start_ticks,
        arg_max(COALESCE(u.command, u.program), u.cpu_seconds) AS command
    FROM shells AS s
    JOIN members AS m ON s.archive = m.archive AND s.boot = m.boot AND s.pgid = m.pgid
    JOIN process_usage AS u
        ON m.archive = u.archive AND m.boot = u.boot AND m.pid = u.pid AND m.start_ticks = u.start_ticks
    GROUP BY ALL"""  # noqa: S608


def _job(row: Record, profile: dict[str, Record], cards: Record, ended: bool) -> JobUse:
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
        memory_byte_seconds=_held(row),
        threads=use_of(profile["threads"], "use"),
        processes_peak=whole(row["processes_peak"]),
        processes_seen=whole(row["processes_seen"]),
        read_bytes=number(row["read_bytes"]),
        write_bytes=number(row["write_bytes"]),
        read_rate=use_of(profile["read_bytes"], "use"),
        write_rate=use_of(profile["write_bytes"], "use"),
        io_is_lower_bound=bool(row["io_partial"]),
        major_faults=number(row["major_faults"]),
        gpus=cards.get("gpus") or [],
        gpu_seconds=number(cards.get("gpu_seconds")),
        gpu_util=use_of(cards, "util"),
        gpu_memory_bytes=use_of(cards, "memory"),
    )


def _held(row: Record) -> float | None:
    mean, seconds = number(row["memory_mean"]), number(row["recorded_seconds"])
    return None if mean is None or seconds is None else mean * seconds


def query_contexts(queries: Queries, judged: dict[Key, JobUse], deep: bool) -> dict[Key, JobContext]:
    """How the machine fared while each of these jobs ran; a deep one also shows how its work was divided."""
    queries.require_node_steps()
    rows = [
        (*key, job.first.replace(tzinfo=None), job.last.replace(tzinfo=None))
        for key, job in judged.items()
        if job.first is not None and job.last is not None
    ]
    queries.keep("judged_jobs", f"{KEY_COLUMNS}, first_time TIMESTAMP, last_time TIMESTAMP", rows)
    workers = {key_of(row): row for row in queries.rows(_WORKERS)} if deep else {}
    found = {}
    for row in queries.rows(_CONTEXT):
        key = key_of(row)
        own = workers.get(key, {})
        found[key] = JobContext(
            node_cores=number(row["node_cores"]),
            pressure_cpu=number(row["pressure_cpu"]),
            pressure_memory=number(row["pressure_memory"]),
            pressure_io=number(row["pressure_io"]),
            disk_bytes=number(row["disk_bytes"]),
            runnable=number(row["runnable"]),
            forks=number(row["forks"]),
            workers=whole(own.get("workers")),
            top_worker_share=number(own.get("top_share")),
            seen_cpu_seconds=number(own.get("seen_cpu")),
        )
    return found


# Joined by time rather than by sample, so that a month of job rows is not read.
_CONTEXT = f"""
    SELECT {_KEY_OF_J}, {weighted_mean("n.cpu_busy_cores", "n.interval_seconds")} AS node_cores,
        {weighted_mean("n.cpu_some_share", "n.interval_seconds")} AS pressure_cpu,
        {weighted_mean("n.memory_some_share", "n.interval_seconds")} AS pressure_memory,
        {weighted_mean("n.io_some_share", "n.interval_seconds")} AS pressure_io,
        SUM((n.disk_read_bytes_per_second + n.disk_write_bytes_per_second) * n.interval_seconds) AS disk_bytes,
        AVG(n.tasks_runnable) AS runnable, {weighted_mean("n.forks_per_second", "n.interval_seconds")} AS forks
    FROM judged_jobs AS j
    JOIN node_steps AS n ON j.archive = n.archive AND n.time BETWEEN j.first_time AND j.last_time
    GROUP BY {_KEY_OF_J}"""  # noqa: S608

# Workers are the members that lived for most of the job and run the same program as the busiest of them.
_WORKERS = f"""
    WITH spans AS (
        SELECT {_KEY}, COUNT(*) AS samples, MIN(seq) AS first_seq, MAX(seq) AS last_seq
        FROM job JOIN judged_jobs USING ({_KEY}) GROUP BY {_KEY}
    ),
    members AS ({_MEMBERS}),
    used AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks, u.cpu_seconds, u.program, u.samples >= j.samples / 2 AS lasting
        FROM spans AS j
        JOIN members AS m ON j.archive = m.archive AND j.boot = m.boot AND j.pgid = m.pgid
            AND m.first_seq BETWEEN j.first_seq AND j.last_seq
        JOIN process_usage AS u
            ON m.archive = u.archive AND m.boot = u.boot AND m.pid = u.pid AND m.start_ticks = u.start_ticks
    ),
    workers AS (
        SELECT used.*, lasting AND program IS NOT DISTINCT FROM first_value(program) OVER (
            PARTITION BY {_KEY}, lasting ORDER BY cpu_seconds DESC
        ) AS works
        FROM used
    )
    SELECT {_KEY}, NULLIF(COUNT(*) FILTER (WHERE works), 0) AS workers, SUM(cpu_seconds) AS seen_cpu,
        MAX(cpu_seconds) FILTER (WHERE works) / NULLIF(SUM(cpu_seconds) FILTER (WHERE works), 0) AS top_share
    FROM workers GROUP BY {_KEY}"""  # noqa: S608
