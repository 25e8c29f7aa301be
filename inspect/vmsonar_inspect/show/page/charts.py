"""The numbers behind the page's charts, in equal steps, short enough for a month."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from vmsonar_archive.system.text import printable

from vmsonar_inspect.facts.jobs import Key, key_of
from vmsonar_inspect.facts.model import GpuUse, JobUse, Moment
from vmsonar_inspect.facts.queries import Record
from vmsonar_inspect.facts.timeline import begin_of, place, step_for
from vmsonar_inspect.inspection import Inspection

#: Most steps of a chart, roughly: a month in steps of ten minutes.
STEPS = 4400
_STACKED = 9
_NAME = 60
OTHERS = 10

Values = list[float | None]


def chart(unit: str, series: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"unit": unit, "series": series, **more}


def series(name: str, colour: int, values: Sequence[float | None], line: bool = False) -> dict[str, Any]:
    found = {
        "name": printable(name, _NAME),
        "colour": colour,
        "values": [_short(value) for value in values],
    }
    return {**found, "line": True} if line else found


def _short(value: float | None) -> float | int | None:
    """Four digits are more than a chart shows."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) else short


def machine_charts(moments: Sequence[Moment], cpus: int | None, memory: int | None) -> dict[str, Any]:
    """How busy the machine was."""
    charts = {
        "cpu": chart(
            "cores",
            [
                series("mean of the step", 0, [at.cores for at in moments]),
                series("highest sample of the step", 1, [at.cores_peak for at in moments], line=True),
            ],
            top=cpus,
            capacity=cpus,
        ),
        "memory": chart(
            "bytes", [series("used", 4, [at.memory_bytes for at in moments])], top=memory, capacity=memory
        ),
        "disk": chart(
            "rate",
            [
                series("read", 0, [at.disk_read_rate for at in moments]),
                series("written", 1, [at.disk_write_rate for at in moments]),
            ],
        ),
        "network": chart(
            "rate",
            [
                series("received", 2, [at.received_rate for at in moments]),
                series("sent", 3, [at.sent_rate for at in moments]),
            ],
        ),
        "pressure": chart(
            "percent",
            [
                series("for a CPU", 0, [_percent(at.pressure_cpu) for at in moments], line=True),
                series("for memory", 4, [_percent(at.pressure_memory) for at in moments], line=True),
                series("for the disk", 1, [_percent(at.pressure_io) for at in moments], line=True),
            ],
            top=100,
        ),
    }
    return {name: each for name, each in charts.items() if has_data(each)}


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def has_data(each: dict[str, Any]) -> bool:
    """Whether there is anything to draw."""
    return any(value is not None for one in each["series"] for value in one["values"])


class Stacks:
    """Use per job, container and GPU in the steps of the page."""

    def __init__(self, inspection: Inspection, archive: str, moments: Sequence[Moment]) -> None:
        self.inspection = inspection
        self.archive = archive
        self.moments = moments
        self.coverage = inspection.coverage[archive]
        self.step = step_for(self.coverage, STEPS)

    def charts(self) -> dict[str, Any]:
        found = {**self._jobs(), **self._containers(), **self._gpus()}
        return {name: each for name, each in found.items() if has_data(each)}

    def _rows(self, sql: str) -> list[Record]:
        assert self.coverage.first is not None
        first = begin_of(self.coverage.first, self.step).replace(tzinfo=None)
        return self.inspection.queries.rows(
            sql.format(place=place(self.step)), first=first, archive=self.archive
        )

    def _spread(self, rows: list[Record], name: str) -> Values:
        """Sums of each step over the time that was seen of it; 0 where the machine was seen without it."""
        values: Values = [
            None if at.cores is None and at.memory_bytes is None else 0.0 for at in self.moments
        ]
        for row in rows:
            if 0 <= row["place"] < len(values) and row[name] is not None:
                values[row["place"]] = (values[row["place"]] or 0.0) + row[name]
        return values

    def _stacked(
        self, rows: list[Record], key: Callable[[Record], Any], names: dict[Any, str], others: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Cores and memory of those that have a name, and of all others as one."""
        groups = [(name, colour, [row for row in rows if key(row) == one])
                  for colour, (one, name) in enumerate(names.items())]  # fmt: skip
        if rest := [row for row in rows if key(row) not in names]:
            groups.append((others, OTHERS, rest))
        cores = [series(name, colour, self._spread(mine, "cores")) for name, colour, mine in groups]
        return cores, [series(name, colour, self._spread(mine, "memory")) for name, colour, mine in groups]

    def _jobs(self) -> dict[str, Any]:
        cores, memory = self._stacked(self._rows(_JOBS), key_of, self._names(), "other jobs")
        use = self.inspection.node_use[self.archive]
        return {
            "job-cores": chart("cores", cores, stacked=True, capacity=use.cpus, top=use.cpus),
            "job-memory": chart("bytes", memory, stacked=True, capacity=use.memory_total_bytes),
        }

    def _names(self) -> dict[Key, str]:
        jobs = [job for job in self.inspection.jobs if job.archive == self.archive]
        largest = sorted(jobs, key=lambda job: -(job.memory_byte_seconds or 0.0))[:3]
        chosen: list[JobUse] = jobs[: _STACKED - 3]
        chosen += [job for job in largest if job not in chosen]
        keys = {job.series_id: key for key, job in self.inspection.keyed_jobs.items()}
        return {keys[job.series_id]: f"{job.job} {job.command or job.program}" for job in chosen}

    def _containers(self) -> dict[str, Any]:
        containers = [
            container for container in self.inspection.containers if container.archive == self.archive
        ]
        if not containers:
            return {}
        names = {
            container.container_id: container.name or container.container_id[:12]
            for container in containers[:_STACKED]
        }
        rows = self._rows(_CONTAINERS)
        cores, memory = self._stacked(rows, itemgetter("container_id"), names, "other containers")
        return {
            "container-cores": chart("cores", cores, stacked=True),
            "container-memory": chart("bytes", memory, stacked=True),
        }

    def _gpus(self) -> dict[str, Any]:
        gpus = [gpu for gpu in self.inspection.gpus if gpu.archive == self.archive]
        if not gpus:
            return {}
        rows = self._rows(_GPUS)
        memory = max(gpu.memory_total_bytes or 0 for gpu in gpus) or None
        return {
            "gpu-busy": chart("percent", self._cards(gpus, rows, "util"), top=100),
            "gpu-memory": chart("bytes", self._cards(gpus, rows, "memory"), top=memory),
            "gpu-power": chart("watts", self._cards(gpus, rows, "watts")),
        }

    def _cards(self, gpus: list[GpuUse], rows: list[Record], name: str) -> list[dict[str, Any]]:
        found = []
        for number, gpu in enumerate(gpus):
            values: Values = [None] * len(self.moments)
            for row in rows:
                if row["gpu_uuid"] == gpu.gpu and 0 <= row["place"] < len(values):
                    values[row["place"]] = row[name]
            label = f"GPU {gpu.index}" if gpu.index is not None else gpu.gpu
            found.append(series(label, number % OTHERS, values, line=len(gpus) > 1))
        return found


_SEEN = """
    seen AS (
        SELECT {{place}} AS place, SUM(interval_seconds) AS seconds FROM sample_intervals
        WHERE archive = $archive GROUP BY 1
    )"""

_STACK = f"""
    WITH {_SEEN},
    used AS (
        SELECT {{{{place}}}} AS place, {{key}}, SUM(cpu_seconds) AS cpu, SUM({{memory}} * interval_seconds) AS held
        FROM {{table}} WHERE archive = $archive GROUP BY ALL
    )
    SELECT used.*, cpu / NULLIF(seconds, 0) AS cores, held / NULLIF(seconds, 0) AS memory
    FROM used JOIN seen USING (place)"""  # noqa: S608

_JOBS = _STACK.format(key="archive, boot, pgid, start_ticks", memory="memory", table="job_rates")
_CONTAINERS = _STACK.format(
    key="container_id", memory="COALESCE(memory_working, memory_used)", table="container_rates"
)

_GPUS = """
    SELECT {place} AS place, gpu_uuid, AVG(gpu_util) AS util, AVG(memory_used) AS memory, AVG(watts) AS watts
    FROM gpu_rates WHERE archive = $archive GROUP BY ALL"""
