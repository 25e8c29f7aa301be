"""The numbers behind the charts of many machines: all on one clock, the busiest by name, the rest together."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from vmsonar_inspect.answers import FleetRow
from vmsonar_inspect.asking import Record, weighted_mean
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.load_timeline import begin_of, place, step_for
from vmsonar_inspect.model import Coverage
from vmsonar_inspect.page.charts import OTHERS, Values, chart, has_data, series

#: At most about so many steps: finer than a screen is wide.
_STEPS = 1500
_NAMED = 9

_USED = f"""
    SELECT {{place}} AS place, archive, {weighted_mean("cpu_busy_cores")} AS cores,
        {weighted_mean("memory_used")} AS memory
    FROM node_steps GROUP BY 1, 2"""  # noqa: S608

_GPUS = "SELECT {place} AS place, archive, AVG(gpu_util) AS util FROM gpu GROUP BY 1, 2"


class FleetCharts:
    """Use over time of all machines that were opened together."""

    def __init__(self, inspection: Inspection, rows: Sequence[FleetRow]) -> None:
        self.inspection = inspection
        self.rows = [row for row in rows if row.first is not None and row.last is not None]
        firsts = [row.first for row in self.rows if row.first is not None]
        lasts = [row.last for row in self.rows if row.last is not None]
        intervals = [inspection.coverage[row.archive].interval_seconds or 1.0 for row in self.rows]
        span = Coverage(
            span_seconds=(max(lasts) - min(firsts)).total_seconds(), interval_seconds=max(intervals)
        )
        self.step = step_for(span, _STEPS)
        self.first = begin_of(min(firsts), self.step)
        self.count = max(1, -(-(max(lasts) - self.first) // timedelta(seconds=self.step)))

    def data(self, zone: str) -> dict[str, Any]:
        """What the page draws."""
        every = {**self._used(), **self._gpus()}
        return {
            "first": self.first.timestamp(),
            "step": self.step,
            "count": self.count,
            "zone": zone,
            "holes": [],
            "charts": {name: each for name, each in every.items() if has_data(each)},
        }

    def _rows(self, sql: str) -> dict[str, list[Record]]:
        self.inspection.need_node_steps()
        first = self.first.replace(tzinfo=None)
        found: dict[str, list[Record]] = {row.archive: [] for row in self.rows}
        for row in self.inspection.asker.rows(sql.format(place=place(self.step)), first=first):
            found.setdefault(row["archive"], []).append(row)
        return found

    def _used(self) -> dict[str, Any]:
        rows = self._rows(_USED)
        cpus = sum(row.cpus or 0 for row in self.rows) or None
        memory = sum(row.memory_total_bytes or 0 for row in self.rows) or None
        cores = self._stacked(rows, "cores", lambda row: row.cores.mean)
        held = self._stacked(rows, "memory", lambda row: row.memory_bytes.mean)
        return {
            "fleet-cores": chart("cores", cores, stacked=True, capacity=cpus, top=cpus),
            "fleet-memory": chart("bytes", held, stacked=True, capacity=memory, top=memory),
        }

    def _stacked(self, rows: dict[str, list[Record]], name: str, size: Any) -> list[dict[str, Any]]:
        """The largest by name, all others as one."""
        ordered = sorted(self.rows, key=lambda row: -(size(row) or 0.0))
        found = [
            series(row.hostname or row.archive[:8], colour, self._spread(rows[row.archive], name))
            for colour, row in enumerate(ordered[:_NAMED])
        ]
        rest = [each for row in ordered[_NAMED:] for each in rows[row.archive]]
        return [*found, series("other machines", OTHERS, self._spread(rest, name))] if rest else found

    def _spread(self, rows: Sequence[Record], name: str) -> Values:
        values: Values = [None] * self.count
        for row in rows:
            if 0 <= row["place"] < self.count and row[name] is not None:
                values[row["place"]] = (values[row["place"]] or 0.0) + row[name]
        return values

    def _gpus(self) -> dict[str, Any]:
        cards = [row for row in self.rows if row.gpus]
        if not cards or not self.inspection.asker.has("gpu"):
            return {}
        rows = self._rows(_GPUS)
        # The least busy first: they are what one looks for.
        least = sorted(cards, key=lambda row: row.gpu_util.mean or 0.0)[:_NAMED]
        lines = [
            series(
                row.hostname or row.archive[:8], colour, self._spread(rows[row.archive], "util"), line=True
            )
            for colour, row in enumerate(least)
        ]
        return {"fleet-gpus": chart("percent", lines, top=100)}
