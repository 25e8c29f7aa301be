"""Use over time in equal steps, for sparklines, charts and the timeline."""

import math
from datetime import datetime, timedelta

from vmsonar_inspect.facts.model import Coverage, Moment
from vmsonar_inspect.facts.queries import Queries, Record, number, weighted_mean

# Lengths of a step that people read easily, in seconds.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)
_COLUMNS = {
    "cores": "cpu_busy_cores",
    "memory_bytes": "memory_used",
    "disk_read_rate": "disk_read_bytes_per_second",
    "disk_write_rate": "disk_write_bytes_per_second",
    "received_rate": "net_received_bytes_per_second",
    "sent_rate": "net_sent_bytes_per_second",
    "pressure_cpu": "cpu_some_share",
    "pressure_memory": "memory_some_share",
    "pressure_io": "io_some_share",
}


def step_for(coverage: Coverage, steps: int) -> float:
    """The shortest easy step with which that many suffice; never shorter than the sampling."""
    least = max(_extent(coverage) / max(1, steps), coverage.interval_seconds or 1.0)
    return next((float(step) for step in _STEPS if step >= least * 0.999), math.ceil(least / 86400) * 86400.0)


def _extent(coverage: Coverage) -> float:
    """The time to show by the wall clock, which may have been set by years in a minute's recording."""
    if coverage.first is None or coverage.last is None:
        return coverage.span_seconds
    return max(coverage.span_seconds, (coverage.last - coverage.first).total_seconds())


def place(step: float, time: str = "time") -> str:
    """SQL: number of the step that an interval ending at `time` belongs to, counted from $first."""
    # A sample speaks of the time before it: one on a border belongs to the step that it ends.
    return f"GREATEST(0, CAST(CEIL((epoch_us({time}) - epoch_us($first)) / {step * 1e6}) AS BIGINT) - 1)"


def begin_of(first: datetime, step: float) -> datetime:
    """The border of a step at or before the first sample."""
    seconds = first.timestamp() // step * step
    return first - timedelta(seconds=first.timestamp() - seconds)


def query_timeline(queries: Queries, archive: str, coverage: Coverage, steps: int) -> list[Moment]:
    """The machine in at most about that many steps, null where there are no samples."""
    if coverage.first is None or coverage.last is None:
        return []
    queries.require_node_steps()
    step = step_for(coverage, steps)
    first = begin_of(coverage.first, step)
    values = {"first": first.replace(tzinfo=None), "archive": archive}
    columns = ", ".join(f"{weighted_mean(column)} AS {name}" for name, column in _COLUMNS.items())
    rows = queries.rows(
        f"SELECT {place(step)} AS place, {columns}, MAX(cpu_busy_cores) AS cores_peak, "  # noqa: S608
        f"MAX(memory_used) AS memory_peak_bytes FROM node_steps WHERE archive = $archive GROUP BY 1",
        **values,
    )
    gpus = queries.rows(
        f"SELECT {place(step)} AS place, AVG(gpu_util) AS gpu_util FROM gpu "  # noqa: S608
        "WHERE archive = $archive GROUP BY 1",
        **values,
    )
    found = {row["place"]: row for row in rows}
    cards = {row["place"]: number(row["gpu_util"]) for row in gpus}
    count = max(1, math.ceil((coverage.last - first).total_seconds() / step))
    return [
        _moment(archive, first + timedelta(seconds=step * at), step, found.get(at, {}), cards.get(at))
        for at in range(count)
    ]


def _moment(archive: str, time: datetime, step: float, row: Record, gpu_util: float | None) -> Moment:
    values = {name: number(row.get(name)) for name in (*_COLUMNS, "cores_peak", "memory_peak_bytes")}
    return Moment(archive=archive, time=time, seconds=step, gpu_util=gpu_util, **values)
