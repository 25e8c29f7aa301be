"""Asks the tables: rows as plain Python values, times in UTC, and the common table of GPUs held by jobs."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from vmsonar_inspect.facts.model import Use

Record = dict[str, Any]


class Queries:
    """Runs queries on one connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._has_node_steps = False

    def rows(self, sql: str, **values: Any) -> list[Record]:
        """The rows of a query; times come back in UTC."""
        cursor = self.connection.execute(sql, values) if values else self.connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(_in_utc, row), strict=True)) for row in cursor.fetchall()]

    def has(self, table: str) -> bool:
        """Whether a table has any row."""
        return bool(self.rows(f"SELECT 1 AS found FROM {table} LIMIT 1"))  # noqa: S608

    def require_node_steps(self) -> None:
        """Computes the table of the machine's intervals, once."""
        if not self._has_node_steps:
            self.connection.execute(_NODE_STEPS)
            self._has_node_steps = True

    def keep(self, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Replaces a temporary table by these rows."""
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns})")
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608

    def by(self, key: str, sql: str) -> dict[Any, Record]:
        """The rows of a query by one of their columns."""
        return {row[key]: row for row in self.rows(sql)}


_NODE_STEPS = """
    CREATE OR REPLACE TEMP TABLE node_steps AS
    SELECT r.archive, r.run, r.seq, r.time, r.interval_seconds, r.cpus, r.cpu_busy_cores, r.cpu_steal_cores,
        r.memory_total, r.memory_used, r.swap_used, r.pages_swapped_in_per_second, r.pages_swapped_out_per_second,
        r.major_faults_per_second, r.forks_per_second, r.oom_kills, r.disk_read_bytes_per_second,
        r.disk_write_bytes_per_second, r.net_received_bytes_per_second, r.net_sent_bytes_per_second,
        r.cpu_some_share, r.memory_some_share, r.io_some_share, n.tasks_runnable
    FROM node_rates AS r JOIN node AS n USING (archive, run, boot, seq)"""


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
    return Use(
        mean=number(record.get(f"{name}_mean")),
        median=number(record.get(f"{name}_median")),
        p95=number(record.get(f"{name}_p95")),
        peak=number(record.get(f"{name}_peak")),
    )


def number(value: Any) -> float | None:
    """A float, or None."""
    return None if value is None else float(value)


def whole(value: Any) -> int | None:
    """An int, or None."""
    return None if value is None else int(value)


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
