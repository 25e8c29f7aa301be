"""Asks the tables: rows as plain Python values in UTC, Structs made of them, and SQL that several facts share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from vmsonar_archive.records.fields import fields_of

from vmsonar_inspect.facts.model import Use

Record = dict[str, Any]
#: What names a job across the tables.
Key = tuple[str, str, int, int]
JOB_KEY = ("archive", "boot", "pgid", "start_ticks")
JOB_KEY_COLUMNS = "archive VARCHAR, boot VARCHAR, pgid BIGINT, start_ticks BIGINT"
key_of: Callable[[Record], Key] = itemgetter(*JOB_KEY)

_ROWS_AT_ONCE = 500

K = TypeVar("K")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class Queries:
    """Runs queries on one connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._kept: set[str] = set()
        #: Of each process group of a batch job the one that stands for the whole.
        self.leaders: dict[Key, Key] = {}

    def rows(self, sql: str, **values: Any) -> list[Record]:
        """The rows of a query; times come back in UTC."""
        cursor = self.connection.execute(sql, values) if values else self.connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(_in_utc, row), strict=True)) for row in cursor.fetchall()]

    def by(self, key: str | Sequence[str], sql: str, **values: Any) -> dict[Any, Record]:
        """The rows of a query by one of their columns, or by several."""
        name = itemgetter(*([key] if isinstance(key, str) else key))
        return {name(row): row for row in self.rows(sql, **values)}

    def has(self, table: str) -> bool:
        """Whether a table has any row."""
        return bool(self.rows(f"SELECT 1 AS found FROM {table} LIMIT 1"))  # noqa: S608

    def require_node_steps(self) -> None:
        """Computes the table of the machine's intervals, once."""
        self._require("node_steps", _NODE_STEPS)

    def require_members(self) -> None:
        """Computes the table of every job's processes and what each used, once; it reads all rows of processes."""
        self._require("job_members", _JOB_MEMBERS)
        if self.leaders and "merged_members" not in self._kept:
            self.connection.execute(_MERGE_MEMBERS)
            self._kept.add("merged_members")

    def merge_groups(self, leaders: dict[Key, Key], steps: dict[Key, str | None]) -> None:
        """From now on the members of these groups are those of the group that stands for all of them."""
        self.leaders = leaders
        columns = f"{JOB_KEY_COLUMNS}, leader_pgid BIGINT, leader_start BIGINT, step VARCHAR"
        self.keep(
            "batch_groups", columns, [(*key, *leader[2:], steps[key]) for key, leader in leaders.items()]
        )
        self._kept.discard("merged_members")
        if "job_members" in self._kept:
            self.require_members()

    def _require(self, table: str, sql: str) -> None:
        if table not in self._kept:
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {sql}")
            self._kept.add(table)

    def keep(self, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Replaces a temporary table by these rows."""
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns})")
        # Many rows a statement: DuckDB plans each anew.
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[at : at + _ROWS_AT_ONCE]
            marks = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            values = [each for row in some for each in row]
            self.connection.execute(f"INSERT INTO {table} VALUES {marks}", values)  # noqa: S608


def names_of(key: Key) -> dict[str, Any]:
    """A job's key as the parameters of a query."""
    return dict(zip(("archive", "boot", "pgid", "start"), key, strict=True))


# The recorder itself runs while it counts the tasks that do.
_NODE_STEPS = """
    SELECT r.archive, r.run, r.seq, r.time, r.interval_seconds, r.cpus, r.cpu_busy_cores, r.cpu_seconds,
        r.cpu_steal_cores, r.memory_total, r.memory_used, r.swap_used, r.pages_swapped_in_per_second,
        r.pages_swapped_out_per_second, r.major_faults_per_second, r.forks_per_second, r.oom_kills,
        r.disk_read_bytes_per_second,
        r.disk_write_bytes_per_second, r.net_received_bytes_per_second, r.net_sent_bytes_per_second,
        r.cpu_some_share, r.memory_some_share, r.io_some_share,
        CASE WHEN n.tasks_runnable > 0 THEN n.tasks_runnable - 1 ELSE n.tasks_runnable END AS tasks_runnable
    FROM node_rates AS r JOIN node AS n USING (archive, run, boot, seq)"""


# A process hardly ever changes its job: take the one its rows name. The kernel's two counters of a process's own memory
# are not of one moment, and may differ the wrong way. A look in brief has processes in some samples only.
_JOB_MEMBERS = """
    WITH looked AS (SELECT DISTINCT archive, boot, seq, TRUE AS is_shown FROM process),
    spans AS (
        SELECT archive, boot, pgid, start_ticks, COUNT(is_shown) AS samples, MIN(seq) AS first_seq, MAX(seq) AS last_seq
        FROM job LEFT JOIN looked USING (archive, boot, seq) GROUP BY ALL
    ),
    members AS (
        SELECT archive, boot, pid, start_ticks, MAX(pgid) AS pgid, MIN(seq) AS first_seq
        FROM process WHERE pgid IS NOT NULL GROUP BY ALL
    )
    SELECT j.archive, j.boot, j.pgid, j.start_ticks, u.pid, u.program, u.command, u.libraries, u.first_time,
        u.last_time, u.samples, u.samples >= j.samples / 2 AS lasting, u.cpu_seconds,
        CASE WHEN u.memory_peak < 0 THEN 0 ELSE u.memory_peak END AS memory_peak_bytes,
        u.resident_peak, u.read_bytes, u.write_bytes, u.own_read_bytes, u.own_write_bytes
    FROM spans AS j
    JOIN members AS m ON j.archive = m.archive AND j.boot = m.boot AND j.pgid = m.pgid
        AND m.first_seq BETWEEN j.first_seq AND j.last_seq
    JOIN process_usage AS u
        ON m.archive = u.archive AND m.boot = u.boot AND m.pid = u.pid AND m.start_ticks = u.start_ticks"""


_MERGE_MEMBERS = """
    UPDATE job_members AS m SET pgid = g.leader_pgid, start_ticks = g.leader_start FROM batch_groups AS g
    WHERE m.archive = g.archive AND m.boot = g.boot AND m.pgid = g.pgid AND m.start_ticks = g.start_ticks"""


#: Whether all cores were busy in an interval while tasks waited for one; null where that is not known.
SATURATED = """CASE WHEN cpu_busy_cores < 0.95 * cpus THEN 0.0
    WHEN COALESCE(cpu_some_share >= 0.2, tasks_runnable >= 1.5 * cpus) THEN 1.0
    WHEN COALESCE(cpu_some_share, tasks_runnable) IS NOT NULL THEN 0.0 END"""


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value


def weighted_mean(column: str, interval: str = "interval_seconds") -> str:
    """The mean over time; over the samples where there is but one."""
    known = f"CASE WHEN {column} IS NOT NULL THEN {interval} END"
    return f"COALESCE(SUM({column} * {interval}) / NULLIF(SUM({known}), 0), AVG({column}))"


def use_columns(column: str, name: str, interval: str = "interval_seconds") -> str:
    """The four aggregates of one measured column."""
    return (
        f"{weighted_mean(column, interval)} AS {name}_mean, "
        f"quantile_cont({column}, 0.5) AS {name}_median, "
        f"quantile_cont({column}, 0.95) AS {name}_p95, "
        f"MAX({column}) AS {name}_peak"
    )


def use_of(record: Record, name: str) -> Use:
    """What `use_columns` found."""
    return Use(**{part: number(record.get(f"{name}_{part}")) for part in Use.__struct_fields__})


def struct_of(kind: type[S], row: Record, columns: Mapping[str, str] | None = None, /, **more: Any) -> S:
    """A Struct of the columns that are named like its fields, but for those named here, and of what is given.

    A use is made of its four columns. What is null is None, and the default where the field cannot be None.
    """
    for field in fields_of(kind):
        if field.name in more:
            continue
        column = (columns or {}).get(field.name, field.name)
        value = use_of(row, column) if field.type is Use else row.get(column)
        if value is not None:
            more[field.name] = field.type(value) if field.type in (int, float, bool) else value
        elif field.nullable:
            more[field.name] = None
    return kind(**more)


def number(value: Any) -> float | None:
    return None if value is None else float(value)


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The rows of each key, in their order."""
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# The driver reports no use for a process that was idle (nvmlDeviceGetProcessUtilization): then the card's use counts,
# if it was idle itself or only one job held it. Otherwise the use is unknown.
JOBS_ON_GPUS = """
    held AS (
        SELECT archive, boot, run, seq, pgid, gpu_uuid, MIN(time) AS time, SUM(gpu_util) AS util,
            SUM(memory_used) AS memory, COUNT(*) OVER (PARTITION BY archive, run, seq, gpu_uuid) AS jobs
        FROM gpu_process GROUP BY archive, boot, run, seq, pgid, gpu_uuid
    ),
    jobs_on_gpus AS (
        SELECT h.archive, h.boot, h.run, h.seq, h.pgid, h.gpu_uuid, h.time, h.memory,
            CASE
                WHEN h.util > 100 THEN 100
                WHEN h.util IS NOT NULL THEN h.util
                WHEN c.gpu_util = 0 OR h.jobs = 1 THEN c.gpu_util
            END AS util
        FROM held AS h
        LEFT JOIN gpu AS c
            ON h.archive = c.archive AND h.run = c.run AND h.seq = c.seq AND h.gpu_uuid = c.gpu_uuid
    )"""


def _limit_rise(name: str) -> str:
    return f"""CASE
            WHEN before_{name} IS NULL THEN CASE WHEN seq > first_seq THEN {name} END
            WHEN {name} < before_{name} THEN {name} ELSE {name} - before_{name}
        END AS {name}"""


_LIMITS_MET = ("oom_kills", "oom_events", "memory_max_events", "pids_max_events")

#: How often containers met their limits since the row before; one that came while recording counted from zero.
LIMIT_RISES = f"""
    limit_counters AS (
        SELECT archive, container_id, seq, time, processes_limit, {", ".join(_LIMITS_MET)},
            {", ".join(f"LAG({name}) OVER w AS before_{name}" for name in _LIMITS_MET)}
        FROM container WINDOW w AS (PARTITION BY archive, boot, container_id ORDER BY seq)
    ),
    limit_rises AS (
        SELECT archive, container_id, time, processes_limit, {", ".join(map(_limit_rise, _LIMITS_MET))}
        FROM limit_counters
        JOIN (SELECT archive, MIN(seq) AS first_seq FROM samples GROUP BY archive) USING (archive)
    )"""  # noqa: S608
