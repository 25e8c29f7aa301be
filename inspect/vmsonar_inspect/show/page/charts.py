"""The numbers behind the page's charts, in equal steps, short enough for a month."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from vmsonar_archive.system.text import printable

from vmsonar_inspect.facts.model import Happening
from vmsonar_inspect.facts.queries import JOB_KEY, Key, Record, grouped, key_of, weighted_mean
from vmsonar_inspect.facts.timeline import Steps
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow, Summary

#: Most steps of a chart, roughly: a month in steps of ten minutes; of many machines, finer than a screen is wide.
_STEPS = 4400
_FLEET_STEPS = 1500
#: So many of a chart have a name and a colour of their own.
_NAMED = 9
_OTHERS = 10
_LONGEST_NAME = 60
_LONGEST_MARK = 120
_MOST_MARKS = 200

Values = list[float | None]
Chart = dict[str, Any]
Groups = list[tuple[str, int, list[Record]]]


def machine_data(inspection: Inspection, found: Summary, zone: str) -> dict[str, Any]:
    """What the page of one machine draws."""
    steps = Steps.of(found.coverage, _STEPS)
    assert steps is not None
    charts = MachineCharts(inspection, found, steps)
    holes = [
        (gap.begin.timestamp(), gap.end.timestamp())
        for gap in found.gaps
        if gap.kind == "no_samples" and gap.begin is not None and gap.end is not None
    ]
    drawn = charts.machine() | charts.jobs() | charts.containers() | charts.gpus()
    return _data(steps, zone, drawn, holes, _marks(found.wrong))


def _marks(events: Sequence[Happening]) -> list[tuple[float, str]]:
    """The time of what went wrong, and a line about it."""
    said = ((event, f"{event.subject or ''} {event.what or ''}".strip()) for event in events)
    return [(event.time.timestamp(), printable(words, _LONGEST_MARK)) for event, words in said][:_MOST_MARKS]


def _data(
    steps: Steps,
    zone: str,
    charts: dict[str, Chart],
    holes: Sequence[object] = (),
    marks: Sequence[object] = (),
) -> dict[str, Any]:
    return {
        "first": steps.first.timestamp(),
        "step": steps.seconds,
        "count": steps.count,
        "zone": zone,
        "holes": holes,
        "marks": marks,
        "charts": {name: each for name, each in charts.items() if _has_data(each)},
    }


def _has_data(chart: Chart) -> bool:
    return any(value is not None for one in chart["series"] for value in one["values"])


def _chart(unit: str, series: list[dict[str, Any]], **more: Any) -> Chart:
    return {"unit": unit, "series": series, **more}


def _series(name: str, colour: int, values: Iterable[float | None], line: bool = False) -> dict[str, Any]:
    said = printable(name, _LONGEST_NAME)
    found = {"name": said, "colour": colour, "values": [_short(value) for value in values]}
    return {**found, "line": True} if line else found


def _short(value: float | None) -> float | int | None:
    """Four digits are more than a chart shows."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) else short


def _named(
    rows: Iterable[Record], key: Callable[[Record], Any], names: Mapping[Any, str], others: str
) -> Groups:
    """The rows of those that have a name, each with its colour, and of all others together."""
    groups = grouped(rows, key)
    found = [(name, colour, groups.pop(one, [])) for colour, (one, name) in enumerate(names.items())]
    rest = [row for mine in groups.values() for row in mine]
    return [*found, (others, _OTHERS, rest)] if rest else found


def _summed(empty: Values, rows: Iterable[Record], measure: str) -> Values:
    """What the rows say of each step, all together."""
    values = [*empty]
    for row in rows:
        if 0 <= row["place"] < len(values) and row[measure] is not None:
            values[row["place"]] = (values[row["place"]] or 0.0) + row[measure]
    return values


def _stack(groups: Groups, measure: str, empty: Values) -> list[dict[str, Any]]:
    return [_series(name, colour, _summed(empty, rows, measure)) for name, colour, rows in groups]


class MachineCharts:
    """Use of one machine, and of each job, container and GPU on it."""

    def __init__(self, inspection: Inspection, found: Summary, steps: Steps) -> None:
        self.inspection = inspection
        self.found = found
        self.steps = steps
        self.archive = found.machine.archive
        self.moments = inspection.timeline(self.archive, _STEPS)
        #: 0 where the machine was seen.
        self.idle: Values = [
            None if at.cores is None and at.memory_bytes is None else 0.0 for at in self.moments
        ]

    def _rows(self, sql: str) -> list[Record]:
        return self.steps.rows(self.inspection.queries, sql, archive=self.archive)

    def machine(self) -> dict[str, Chart]:
        """How busy the machine was."""
        cpus, memory = self.found.use.cpus, self.found.use.memory_total_bytes

        def course(name: str, colour: int, field: str, line: bool = False, times: int = 1) -> dict[str, Any]:
            values = (getattr(at, field) for at in self.moments)
            return _series(name, colour, (None if each is None else each * times for each in values), line)

        cores = [
            course("mean of the step", 0, "cores"),
            course("highest sample of the step", 1, "cores_peak", line=True),
        ]
        waited = [
            course("for a CPU", 0, "pressure_cpu", line=True, times=100),
            course("for memory", 4, "pressure_memory", line=True, times=100),
            course("for the disk", 1, "pressure_io", line=True, times=100),
        ]
        disk = [course("read", 0, "disk_read_rate"), course("written", 1, "disk_write_rate")]
        network = [course("received", 2, "received_rate"), course("sent", 3, "sent_rate")]
        return {
            "cpu": _chart("cores", cores, top=cpus, capacity=cpus),
            "memory": _chart("bytes", [course("used", 4, "memory_bytes")], top=memory, capacity=memory),
            "disk": _chart("rate", disk),
            "network": _chart("rate", network),
            "pressure": _chart("percent", waited, top=100),
        }

    def jobs(self) -> dict[str, Chart]:
        groups = _named(self._rows(_JOBS), key_of, self._job_names(), "other jobs")
        use = self.found.use
        cores, memory = (_stack(groups, measure, self.idle) for measure in ("cores", "memory"))
        return {
            "job-cores": _chart("cores", cores, stacked=True, capacity=use.cpus, top=use.cpus),
            "job-memory": _chart("bytes", memory, stacked=True, capacity=use.memory_total_bytes),
        }

    def _job_names(self) -> dict[Key, str]:
        jobs = self.found.jobs
        largest = sorted(jobs, key=lambda job: -(job.memory_byte_seconds or 0.0))[:3]
        chosen = jobs[: _NAMED - 3]
        chosen += [job for job in largest if job not in chosen]
        keys = {job.series_id: key for key, job in self.inspection.keyed_jobs.items()}
        return {keys[job.series_id]: f"{job.job} {job.command or job.program}" for job in chosen}

    def containers(self) -> dict[str, Chart]:
        if not self.found.containers:
            return {}
        names = {
            each.container_id: each.name or each.container_id[:12] for each in self.found.containers[:_NAMED]
        }
        groups = _named(self._rows(_CONTAINERS), itemgetter("container_id"), names, "other containers")
        return {
            "container-cores": _chart("cores", _stack(groups, "cores", self.idle), stacked=True),
            "container-memory": _chart("bytes", _stack(groups, "memory", self.idle), stacked=True),
        }

    def gpus(self) -> dict[str, Chart]:
        gpus = self.found.gpus
        if not gpus:
            return {}
        rows = grouped(self._rows(_GPUS), itemgetter("gpu_uuid"))
        memory = max(gpu.memory_total_bytes or 0 for gpu in gpus) or None
        unseen: Values = [None] * len(self.moments)

        def cards(measure: str) -> list[dict[str, Any]]:
            found = []
            for number, gpu in enumerate(gpus):
                label = f"GPU {gpu.index}" if gpu.index is not None else gpu.gpu
                values = _summed(unseen, rows.get(gpu.gpu, []), measure)
                found.append(_series(label, number % _OTHERS, values, line=len(gpus) > 1))
            return found

        return {
            "gpu-busy": _chart("percent", cards("util"), top=100),
            "gpu-memory": _chart("bytes", cards("memory"), top=memory),
            "gpu-power": _chart("watts", cards("watts")),
        }


_STACK = """
    WITH seen AS (
        SELECT {{place}} AS place, SUM(interval_seconds) AS seconds FROM sample_intervals
        WHERE archive = $archive GROUP BY 1
    ),
    used AS (
        SELECT {{place}} AS place, {key}, SUM(cpu_seconds) AS cpu, SUM({memory} * interval_seconds) AS held
        FROM {table} WHERE archive = $archive GROUP BY ALL
    )
    SELECT used.*, cpu / NULLIF(seconds, 0) AS cores, held / NULLIF(seconds, 0) AS memory
    FROM used JOIN seen USING (place)"""

_JOBS = _STACK.format(key=", ".join(JOB_KEY), memory="memory", table="job_rates")
_CONTAINERS = _STACK.format(
    key="container_id", memory="COALESCE(memory_working, memory_used)", table="container_rates"
)

_GPUS = """
    SELECT {place} AS place, gpu_uuid, AVG(gpu_util) AS util, AVG(memory_used) AS memory, AVG(watts) AS watts
    FROM gpu_rates WHERE archive = $archive GROUP BY ALL"""


_FLEET = f"""
    SELECT {{place}} AS place, archive, {weighted_mean("cpu_busy_cores")} AS cores,
        {weighted_mean("memory_used")} AS memory
    FROM node_steps GROUP BY 1, 2"""  # noqa: S608

_FLEET_GPUS = "SELECT {place} AS place, archive, AVG(gpu_util) AS util FROM gpu GROUP BY 1, 2"


def fleet_data(inspection: Inspection, rows: Sequence[FleetRow], zone: str) -> dict[str, Any] | None:
    """What the page of many machines draws, on one clock; None without samples."""
    seen = [(row, row.first, row.last) for row in rows if row.first is not None and row.last is not None]
    if not seen:
        return None
    machines = [row for row, _, _ in seen]
    interval = max(inspection.coverage[row.archive].interval_seconds or 1.0 for row in machines)
    first, last = min(first for _, first, _ in seen), max(last for _, _, last in seen)
    steps = Steps.over(first, last, _FLEET_STEPS, interval)
    empty: Values = [None] * steps.count
    inspection.queries.require_node_steps()
    used = steps.rows(inspection.queries, _FLEET)

    def stack(measure: str, size: Callable[[FleetRow], float | None]) -> list[dict[str, Any]]:
        """The largest by name, all others as one."""
        largest = sorted(machines, key=lambda row: -(size(row) or 0.0))[:_NAMED]
        names = {row.archive: row.hostname or row.archive[:8] for row in largest}
        return _stack(_named(used, itemgetter("archive"), names, "other machines"), measure, empty)

    cpus = sum(row.cpus or 0 for row in machines) or None
    memory = sum(row.memory_total_bytes or 0 for row in machines) or None
    cores = stack("cores", lambda row: row.cores.mean)
    held = stack("memory", lambda row: row.memory_bytes.mean)
    charts = {
        "fleet-cores": _chart("cores", cores, stacked=True, capacity=cpus, top=cpus),
        "fleet-memory": _chart("bytes", held, stacked=True, capacity=memory, top=memory),
    }
    with_gpus = [row for row in machines if row.gpus]
    if with_gpus and inspection.queries.has("gpu"):
        busy = grouped(steps.rows(inspection.queries, _FLEET_GPUS), itemgetter("archive"))
        # Idle GPUs are what the reader looks for.
        least = sorted(with_gpus, key=lambda row: row.gpu_util.mean or 0.0)[:_NAMED]
        lines = []
        for colour, row in enumerate(least):
            values = _summed(empty, busy.get(row.archive, []), "util")
            lines.append(_series(row.hostname or row.archive[:8], colour, values, line=True))
        charts["fleet-gpus"] = _chart("percent", lines, top=100)
    return _data(steps, zone, charts)
