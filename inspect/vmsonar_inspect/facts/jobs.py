"""What each job used, with its GPUs, threads and what the machine suffered meanwhile; users and programs summed up."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from operator import itemgetter
from typing import Any

import msgspec
from vmsonar_archive.system.moments import in_zone

from vmsonar_inspect.facts.batches import count_jobs, summed
from vmsonar_inspect.facts.energy import ESTIMATE, JOULES_PER_KWH
from vmsonar_inspect.facts.model import ContainerUse, Energy, GroupUse, JobUse
from vmsonar_inspect.facts.programs import ProgramMap, label_of
from vmsonar_inspect.facts.queries import (
    JOB_KEY,
    JOB_KEY_COLUMNS,
    JOBS_ON_GPUS,
    SATURATED,
    Key,
    Queries,
    Record,
    grouped,
    number,
    struct_of,
    total,
    use_columns,
    use_of,
    weighted_mean,
)
from vmsonar_inspect.tables.views import view

_KEY = ", ".join(JOB_KEY)
#: The source of what is no job, but a user's time that cannot be told apart.
NO_GROUP = "no_group"


class JobContext(msgspec.Struct, kw_only=True, frozen=True):
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
    saturated_share: float | None = None
    wanted_cores: float | None = None
    idle_seconds: float | None = None


#: Columns of job_usage that are not named like their fields.
_COLUMNS = {
    "first": "first_time",
    "last": "last_time",
    "observed_seconds": "recorded_seconds",
    "cpu_is_lower_bound": "unattributed",
    "io_is_lower_bound": "io_partial",
    "memory_bytes": "memory",
    **{f"memory_{name}_bytes": f"memory_{name}" for name in ("peak_low", "peak_high", "charged_peak")},
}
#: Fields that are profiles of a measure over time.
_PROFILES = {"threads": "threads", "read_rate": "read_bytes", "write_rate": "write_bytes"}


def query_jobs(
    queries: Queries, programs: ProgramMap, names: dict[str, str | None], deep: bool
) -> dict[Key, JobUse]:
    """Every job, by its key; a deep look calls each by the program that it kept busiest."""
    queries.connection.execute(_SUMS)
    profiles = queries.by((*JOB_KEY, "measure"), _PROFILE)
    cards = queries.by(JOB_KEY, _GPU) if queries.has("gpu_process") else {}
    last = queries.by("archive", _LAST)
    if deep:
        queries.require_members()
    busiest = queries.by(JOB_KEY, _BUSIEST) if deep else {}
    refused, ulimits = queries.by(JOB_KEY, _REFUSED), queries.by(JOB_KEY, _ULIMITS)
    jobs = {}
    for key, row in queries.by(JOB_KEY, view("job_usage", totals="job_sums").query).items():
        command = row["command"] or row["program"]
        kept = busiest.get(key, {})
        program, label = label_of(programs, command, kept.get("command"), kept.get("libraries"))
        mean, seconds = number(row["memory_mean"]), number(row["recorded_seconds"])
        jobs[key] = struct_of(
            JobUse,
            {**row, **cards.get(key, {}), **refused.get(key, {}), **ulimits.get(key, {})},
            _COLUMNS,
            job=_job_name(row),
            series_id=row["series_id"] or "",
            user=_user_name(row),
            program=program.name,
            label=label,
            tags=list(program.tags),
            command=command,
            container=names.get(row["container_id"] or ""),
            # A job has ended when a sample finds nobody, or samples go on without it.
            ended=row["ended"] or row["last_time"] < last[row["archive"]]["time"],
            end=_end(row),
            memory_byte_seconds=None if mean is None or seconds is None else mean * seconds,
            **{
                field: use_of(profiles.get((*key, measure), {}), "use")
                for field, measure in _PROFILES.items()
            },
        )
    return jobs


# What its group had counted before the job was first read may be of others that were in it earlier.
_REFUSED = f"""
    SELECT {_KEY}, MAX(pids_limit) AS processes_limit, MAX(pids_max_events) - MIN(pids_max_events) AS forks_refused
    FROM job ANTI JOIN (SELECT * FROM job_info WHERE container_id IS NOT NULL) USING ({_KEY})
    WHERE pids_max_events IS NOT NULL GROUP BY {_KEY}"""  # noqa: S608

_ULIMITS = f"""
    SELECT {_KEY}, open_files_limit AS open_files_ulimit, processes_limit AS processes_ulimit FROM latest_job_info
    WHERE open_files_limit IS NOT NULL OR processes_limit IS NOT NULL"""  # noqa: S608


def _user_name(row: Record) -> str | None:
    return row["user_name"] or (None if row["user_id"] is None else f"uid {row['user_id']}")


def _job_name(row: Record) -> str:
    if row["job_source"] == NO_GROUP:
        return f"not told apart ({_user_name(row) or 'unknown'})"
    return row["job_id"] or str(row["pgid"])


def _end(row: Record) -> datetime | None:
    """The end as wall time, where it was told."""
    is_told = row["ended"] and row["runtime_seconds_low"] is None and row["runtime_seconds"] is not None
    return row["started"] + timedelta(seconds=row["runtime_seconds"]) if is_told and row["started"] else None


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
        SELECT {_KEY}, {use_columns("s.util", "gpu_util")}, {use_columns("s.memory", "gpu_memory_bytes")},
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
_IS_STARTER = f"regexp_matches(COALESCE(command, program), '^-?(/[^ ]*/)?({_STARTERS})( |$)')"

# Many short processes of one program count together; where nothing used CPU time, what was started counts.
_BUSIEST = f"""
    WITH programs AS (
        SELECT {_KEY}, arg_max(COALESCE(command, program), (COALESCE(cpu_seconds, 0), -pid)) AS command,
            arg_max(libraries, COALESCE(cpu_seconds, 0)) AS libraries,
            SUM(COALESCE(cpu_seconds, 0)) + CASE WHEN bool_or({_IS_STARTER}) THEN 0 ELSE 0.001 END AS cpu_seconds
        FROM job_members WHERE pgid <> 0 GROUP BY {_KEY}, program
    )
    SELECT {_KEY}, arg_max(command, (cpu_seconds, command)) AS command,
        arg_max(COALESCE(libraries, ''), (cpu_seconds, command)) AS libraries
    FROM programs GROUP BY ALL"""  # noqa: S608


def query_contexts(queries: Queries, judged: dict[Key, JobUse], deep: bool) -> dict[Key, JobContext]:
    """How the machine fared while each of these jobs ran; a deep one also shows how its work was divided."""
    queries.require_node_steps()
    rows = [
        (*key, job.first.replace(tzinfo=None), job.last.replace(tzinfo=None))
        for key, job in judged.items()
        if job.first is not None and job.last is not None
    ]
    queries.keep("judged_jobs", f"{JOB_KEY_COLUMNS}, first_time TIMESTAMP, last_time TIMESTAMP", rows)
    found = queries.by(JOB_KEY, _CONTEXT)
    more = [queries.by(JOB_KEY, _WORKERS)] if deep else []
    # Only where cores were short does it matter who was ready to run; a long record is read for that on request.
    # By machine: what is said of one must not depend on which others are opened with it.
    crowded = {key[0] for key, row in found.items() if (row["saturated_share"] or 0.0) > 0}
    if crowded and (deep or max(job.samples for job in judged.values()) <= _FEW_SAMPLES):
        more.append({key: row for key, row in queries.by(JOB_KEY, _WANTED).items() if key[0] in crowded})
    if quiet := _quiet_jobs(queries, judged.values()):
        queries.keep("quiet_jobs", f"{JOB_KEY_COLUMNS}, first_time TIMESTAMP, last_time TIMESTAMP", quiet)
        more.append(queries.by(JOB_KEY, _IDLE))
    several = {key for key, count in Counter(queries.leaders.values()).items() if count > 1}
    for told in more:
        for key, row in told.items():
            if key in several:
                row = {
                    name: row[name] for name in row.keys() - {"wanted_cores", "idle_seconds"}
                }  # of one group alone
            found.get(key, {}).update(row)
    return {key: struct_of(JobContext, row) for key, row in found.items()}


#: A first screen looks at processes of a record that is no longer than this.
_FEW_SAMPLES = 5000
#: Nobody is called idle for less: two hours, in seconds.
_LONG = 7200


# Joined by time rather than by sample, so that a month of job rows is not read.
_CONTEXT = f"""
    SELECT j.archive, boot, pgid, start_ticks, {weighted_mean("cpu_busy_cores")} AS node_cores,
        {weighted_mean("cpu_some_share")} AS pressure_cpu, {weighted_mean("memory_some_share")} AS pressure_memory,
        {weighted_mean("io_some_share")} AS pressure_io, AVG(tasks_runnable) AS runnable,
        SUM((disk_read_bytes_per_second + disk_write_bytes_per_second) * interval_seconds) AS disk_bytes,
        {weighted_mean("forks_per_second")} AS forks, {weighted_mean(SATURATED)} AS saturated_share
    FROM judged_jobs AS j JOIN node_steps AS n ON j.archive = n.archive AND n.time BETWEEN first_time AND last_time
    GROUP BY j.archive, boot, pgid, start_ticks"""  # noqa: S608

# Whoever is in state R runs or waits for a core; of many threads only the first is known. Rows of processes do not say
# whose they are, so nothing is said of a group that several users share. The recorder itself always runs as it looks.
_WANTED = """
    SELECT j.archive, j.boot, j.pgid, j.start_ticks,
        COUNT(*) FILTER (WHERE p.state = 'R') / COUNT(DISTINCT p.seq) AS wanted_cores
    FROM judged_jobs AS j JOIN process AS p
        ON j.archive = p.archive AND j.boot = p.boot AND j.pgid = p.pgid AND p.time BETWEEN first_time AND last_time
    WHERE NOT EXISTS (
        SELECT 1 FROM judged_jobs AS o WHERE o.archive = j.archive AND o.boot = j.boot AND o.pgid = j.pgid
            AND o.start_ticks <> j.start_ticks AND o.first_time < j.last_time AND j.first_time < o.last_time
    ) AND NOT EXISTS (
        SELECT 1 FROM process_info AS r WHERE r.archive = p.archive AND r.boot = p.boot AND r.pid = p.pid
            AND r.start_ticks = p.start_ticks AND regexp_matches(r.command, '(^|[/ ])vmsonar\\b')
    )
    GROUP BY j.archive, j.boot, j.pgid, j.start_ticks HAVING COUNT(DISTINCT p.seq) >= 10"""

# Who did nothing in the last two hours that were recorded of it. Counters tell, without the rates, which take five
# times as long; and of a month's rows only those of these hours are read.
_QUIET = f"""
    SELECT {_KEY}, first_time, last_time
    FROM job JOIN judged_jobs USING ({_KEY}) JOIN tick_lengths USING (archive, boot)
    WHERE time BETWEEN $since AND $until AND time BETWEEN last_time - INTERVAL {_LONG} SECONDS AND last_time
        AND epoch(last_time) - epoch(first_time) >= {_LONG}
    GROUP BY ALL HAVING MAX(user_ticks + system_ticks) - MIN(user_ticks + system_ticks)
        <= 0.005 * {_LONG} * MAX(ticks_per_second)"""  # noqa: S608

# From the last time that such a job did anything to its last sample.
_IDLE = f"""
    WITH steps AS (
        SELECT {_KEY}, time, first_time, last_time, (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
            user_ticks + system_ticks - LAG(user_ticks + system_ticks) OVER w AS ticks,
            read_bytes + write_bytes - LAG(read_bytes + write_bytes) OVER w AS moved
        FROM job JOIN quiet_jobs USING ({_KEY}) WINDOW w AS (PARTITION BY {_KEY} ORDER BY boottime)
    )
    SELECT {_KEY}, epoch(MAX(last_time)) - epoch(COALESCE(
        MAX(time) FILTER (WHERE ticks >= 0.005 * seconds * ticks_per_second OR moved >= 4096 * seconds),
        MIN(first_time))) AS idle_seconds
    FROM steps JOIN tick_lengths USING (archive, boot) GROUP BY {_KEY}"""  # noqa: S608
#: Separate times that are read one by one; more are read as one.
_MOST_TIMES = 64


def _quiet_jobs(queries: Queries, judged: Iterable[JobUse]) -> list[tuple[Any, ...]]:
    """Long jobs that did nothing at the end, with their first and last time."""
    long = timedelta(seconds=_LONG)
    lasts = sorted(
        job.last.replace(tzinfo=None)
        for job in judged
        if job.last is not None and (job.observed_seconds or 0.0) >= _LONG
    )
    times: list[tuple[datetime, datetime]] = []
    for last in lasts:
        if times and last - long <= times[-1][1]:
            times[-1] = times[-1][0], last
        else:
            times.append((last - long, last))
    if len(times) > _MOST_TIMES:
        times = [(times[0][0], times[-1][1])]
    return [
        (
            *(row[name] for name in JOB_KEY),
            *(row[name].replace(tzinfo=None) for name in ("first_time", "last_time")),
        )
        for since, until in times
        for row in queries.rows(_QUIET, since=since, until=until)
    ]


# Workers are the members that lived for most of the job and run the same program as the busiest of them.
_WORKERS = f"""
    WITH workers AS (
        SELECT *, lasting AND program IS NOT DISTINCT FROM first_value(program) OVER (
            PARTITION BY {_KEY}, lasting ORDER BY cpu_seconds DESC
        ) AS works
        FROM job_members JOIN judged_jobs USING ({_KEY})
    )
    SELECT {_KEY}, NULLIF(COUNT(*) FILTER (WHERE works), 0) AS workers, SUM(cpu_seconds) AS seen_cpu_seconds,
        MAX(cpu_seconds) FILTER (WHERE works) / NULLIF(SUM(cpu_seconds) FILTER (WHERE works), 0) AS top_worker_share
    FROM workers GROUP BY {_KEY}"""  # noqa: S608


# No zone is offset from UTC by anything finer.
_QUARTER = 900
#: Seconds of the first moment that there is.
_YEAR_1 = -62_135_596_800

_MEMORY = """
    WITH moments AS (
        SELECT g.name, j.archive, j.run, j.seq, SUM(j.memory) AS memory
        FROM job AS j JOIN job_groups AS g USING (archive, boot, pgid, start_ticks)
        WHERE COALESCE(j.processes, 1) > 0 GROUP BY ALL
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
    every = names | {key: names[lead] for key, lead in queries.leaders.items() if lead in names}
    queries.keep(
        "job_groups", f"{JOB_KEY_COLUMNS}, name VARCHAR", [(*key, name) for key, name in every.items()]
    )
    memory = queries.by("name", _MEMORY)
    times = grouped(queries.rows(_TIMES), itemgetter("name"))
    members = grouped(jobs, names.__getitem__)
    groups = [
        _group(name, [jobs[key] for key in keys], memory.get(name, {}), times.get(name, []), zone)
        for name, keys in members.items()
    ]
    return sorted(groups, key=lambda group: (-(group.cpu_seconds or 0.0), group.name))


def as_job(container: ContainerUse) -> JobUse:
    """A container of which no process was recorded, counted as one job."""
    same = ("archive", "user", "first", "last", "runtime_seconds", "observed_seconds", "samples", "cpu_seconds",
            "cpu_seconds_high", "cpu_is_lower_bound", "cores", "memory_bytes", "read_bytes", "write_bytes", "energy",
            "container_id")  # fmt: skip
    return JobUse(
        job=f"container {container.name or container.container_id[:12]}",
        series_id=container.container_id,
        job_source="container",
        user_source="container",
        **{name: getattr(container, name) for name in same},
    )


def _group(name: str, jobs: Sequence[JobUse], memory: Record, times: list[Record], zone: tzinfo) -> GroupUse:
    by_hour, by_weekday = [0.0] * 24, [0.0] * 7
    for row in times:
        moment = in_zone(datetime.fromtimestamp(max(row["quarter"] * _QUARTER, _YEAR_1), UTC), zone)
        by_hour[moment.hour] += row["cpu_seconds"]
        by_weekday[moment.weekday()] += row["cpu_seconds"]
    peaks = [memory.get("peak"), *(job.memory_peak_low_bytes or job.memory_bytes.peak for job in jobs)]
    return GroupUse(
        name=name,
        tags=sorted({tag for job in jobs for tag in job.tags}),
        jobs=count_jobs(job for job in jobs if job.is_told_apart),
        users=len({job.user for job in jobs}),
        accounts=sorted({job.account for job in jobs if job.account}),
        projects=sorted({job.project for job in jobs if job.project}),
        user_sources=sorted({job.user_source for job in jobs if job.user_source}),
        cpu_is_lower_bound=any(job.cpu_is_lower_bound for job in jobs),
        io_is_lower_bound=any(job.io_is_lower_bound for job in jobs),
        runtime_seconds=total(job.observed_seconds for job in jobs),
        gpu_seconds=total(job.gpu_seconds for job in jobs),
        **{f"memory_{part}_bytes": number(memory.get(part)) for part in ("median", "p95")},
        memory_peak_bytes=max((float(peak) for peak in peaks if peak is not None), default=None),
        # Jobs are seen together only in samples; old records leave it at that.
        memory_peak_is_lower_bound=any(job.memory_peak_source for job in jobs),
        # The words are in the order of the alphabet, the weakest first.
        memory_source=min((job.memory_source for job in jobs if job.memory_source), default=None),
        **summed("cpu_seconds", "cpu_is_lower_bound", jobs),
        **summed("read_bytes", "io_is_lower_bound", jobs),
        **summed("write_bytes", "io_is_lower_bound", jobs),
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
