"""Use over time in equal steps, for sparklines, charts and the timeline."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from vmsonar_inspect.facts.machine import PRESSURES, RATES
from vmsonar_inspect.facts.model import Coverage, Moment
from vmsonar_inspect.facts.queries import Queries, Record, S, struct_of, weighted_mean

#: Nothing can be said of a time before it.
_FIRST_DAY = datetime.min.replace(tzinfo=UTC)

# Lengths of a step that people read easily, in seconds.
_LENGTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)
_COLUMNS = {"cores": "cpu_busy_cores", "memory_bytes": "memory_used", **RATES, **PRESSURES}


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps of time."""

    first: datetime
    last: datetime
    seconds: float

    @classmethod
    def over(
        cls, first: datetime, last: datetime, most: int, interval: float | None, extent: float = 0.0
    ) -> "Steps":
        """About that many steps at most, of the shortest easy length, never shorter than the sampling.

        The extent counts where a clock that was set makes it longer than the time from first to last.
        """
        extent = max(extent, (last - first).total_seconds())
        least = max(extent / max(1, most), interval or 1.0)
        days = math.ceil(least / 86400) * 86400.0
        length = next((float(length) for length in _LENGTHS if length >= least * 0.999), days)
        return cls(first, last, length).reaching(first)

    @classmethod
    def of(cls, coverage: Coverage, most: int) -> "Steps | None":
        """The steps of an archive's time; None without samples."""
        if coverage.first is None or coverage.last is None:
            return None
        interval, extent = coverage.interval_seconds, coverage.span_seconds
        return cls.over(coverage.first, coverage.last, most, interval, extent)

    def reaching(self, first: datetime) -> "Steps":
        """The same steps from the border at or before this moment on."""
        into_step = timedelta(seconds=first.timestamp() % self.seconds)
        return replace(self, first=max(first, _FIRST_DAY + into_step) - into_step)

    @property
    def count(self) -> int:
        return max(1, math.ceil((self.last - self.first).total_seconds() / self.seconds))

    def rows(self, queries: Queries, sql: str, time: str = "time", **values: Any) -> list[Record]:
        """The rows of a query whose {place} is the number of the step that an interval ending at `time` belongs to."""
        # A sample speaks of the time before it: one on a border belongs to the step that it ends.
        number = f"CEIL((epoch_us({time}) - epoch_us($first)) / {self.seconds * 1e6})"
        place = f"GREATEST(0, CAST({number} AS BIGINT) - 1)"
        return queries.rows(sql.format(place=place), first=self.first.replace(tzinfo=None), **values)

    def filled(self, kind: type[S], rows: Iterable[Record], count: int, **more: Any) -> list[S]:
        """A Struct for each of so many steps, from the rows of its place."""
        places: dict[int, Record] = {}
        for row in rows:
            places.setdefault(row["place"], {}).update(row)
        return [
            struct_of(
                kind,
                places.get(at, {}),
                time=self.first + timedelta(seconds=self.seconds * at),
                seconds=self.seconds,
                **more,
            )
            for at in range(count)
        ]


_MEANS = ", ".join(f"{weighted_mean(column)} AS {name}" for name, column in _COLUMNS.items())
_NODE = f"""
    SELECT {{place}} AS place, {_MEANS}, MAX(cpu_busy_cores) AS cores_peak, MAX(memory_used) AS memory_peak_bytes
    FROM node_steps WHERE archive = $archive GROUP BY 1"""  # noqa: S608
_GPUS = "SELECT {place} AS place, AVG(gpu_util) AS gpu_util FROM gpu WHERE archive = $archive GROUP BY 1"


def query_timeline(queries: Queries, archive: str, coverage: Coverage, most: int) -> list[Moment]:
    """The machine in at most about that many steps, null where there are no samples."""
    steps = Steps.of(coverage, most)
    if steps is None:
        return []
    queries.require_node_steps()
    rows = steps.rows(queries, _NODE, archive=archive) + steps.rows(queries, _GPUS, archive=archive)
    return steps.filled(Moment, rows, steps.count, archive=archive)
