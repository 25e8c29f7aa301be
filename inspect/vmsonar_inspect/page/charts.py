"""The numbers behind the page's charts, in equal steps, short enough for a month."""

from collections.abc import Sequence
from typing import Any

from vmsonar_inspect.asking import Record
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.load_jobs import Key, key_of
from vmsonar_inspect.load_timeline import begin_of, place, step_for
from vmsonar_inspect.model import GpuUse, JobUse, Moment
from vmsonar_inspect.text import plain, shorten

#: At most about so many steps: a month in steps of ten minutes.
STEPS = 4400
_STACKED = 9
_NAME = 60
OTHERS = 10

Values = list[float | None]


def chart(unit: str, series: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"unit": unit, "series": series, **more}


def series(name: str, colour: int, values: Sequence[float | None], line: bool = False) -> dict[str, Any]:
    found = {
        "name": shorten(plain(name), _NAME),
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
        return self.inspection.asker.rows(
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

    def _jobs(self) -> dict[str, Any]:
        rows = self._rows(_JOBS)
        chosen = self._names()
        cores: list[dict[str, Any]] = []
        memory: list[dict[str, Any]] = []
        for colour, (key, name) in enumerate(chosen.items()):
            mine = [row for row in rows if key_of(row) == key]
            cores.append(series(name, colour, self._spread(mine, "cores")))
            memory.append(series(name, colour, self._spread(mine, "memory")))
        rest = [row for row in rows if key_of(row) not in chosen]
        if rest:
            cores.append(series("other jobs", OTHERS, self._spread(rest, "cores")))
            memory.append(series("other jobs", OTHERS, self._spread(rest, "memory")))
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
        boxes = [box for box in self.inspection.containers if box.archive == self.archive]
        if not boxes:
            return {}
        rows = self._rows(_CONTAINERS)
        top = {box.container_id: box.name or box.container_id[:12] for box in boxes[:_STACKED]}
        cores, memory = [], []
        for colour, (container_id, name) in enumerate(top.items()):
            mine = [row for row in rows if row["container_id"] == container_id]
            cores.append(series(name, colour, self._spread(mine, "cores")))
            memory.append(series(name, colour, self._spread(mine, "memory")))
        rest = [row for row in rows if row["container_id"] not in top]
        if rest:
            cores.append(series("other containers", OTHERS, self._spread(rest, "cores")))
            memory.append(series("other containers", OTHERS, self._spread(rest, "memory")))
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
        SELECT {place} AS place, SUM(interval_seconds) AS seconds FROM sample_intervals
        WHERE archive = $archive GROUP BY 1
    )"""

_JOBS = f"""
    WITH {_SEEN},
    used AS (
        SELECT {{place}} AS place, archive, boot, pgid, start_ticks, SUM(cpu_seconds) AS cpu,
            SUM(memory * interval_seconds) AS held
        FROM job_rates WHERE archive = $archive GROUP BY ALL
    )
    SELECT used.*, cpu / NULLIF(seconds, 0) AS cores, held / NULLIF(seconds, 0) AS memory
    FROM used JOIN seen USING (place)"""  # noqa: S608

_CONTAINERS = f"""
    WITH {_SEEN},
    used AS (
        SELECT {{place}} AS place, container_id, SUM(cpu_seconds) AS cpu,
            SUM(COALESCE(memory_working, memory_used) * interval_seconds) AS held
        FROM container_rates WHERE archive = $archive GROUP BY ALL
    )
    SELECT used.*, cpu / NULLIF(seconds, 0) AS cores, held / NULLIF(seconds, 0) AS memory
    FROM used JOIN seen USING (place)"""  # noqa: S608

_GPUS = """
    SELECT {place} AS place, gpu_uuid, AVG(gpu_util) AS util, AVG(memory_used) AS memory, AVG(watts) AS watts
    FROM gpu_rates WHERE archive = $archive GROUP BY ALL"""
