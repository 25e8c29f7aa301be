"""The numbers behind the page's charts: means and highest samples of equal steps, short enough for a month."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from operator import itemgetter
from typing import Any

from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import printable

from vmsonar_inspect.facts.machine import PRESSURES, RATES
from vmsonar_inspect.facts.queries import JOB_KEY, Key, Record, grouped, key_of
from vmsonar_inspect.facts.timeline import Steps
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow, Summary, by_machine, names_of
from vmsonar_inspect.show.page.details import Values, course, means_and_highs, short

#: Most steps of a chart, roughly: a month in steps of ten minutes; of many machines, finer than a screen is wide.
_STEPS = 4400
_FLEET_STEPS = 1500
#: So many of a chart have a name and a colour of their own; the others share a grey.
_NAMED = 9
_OTHERS = 10
_COLOURS = 20
_LONGEST_NAME = 60
#: Zones change their offset at quarters of an hour.
_QUARTER = 900
_MOST_QUARTERS = 40_000
# The last day that Python knows, less one: a clock may have been far away.
_LATEST = datetime(9999, 12, 30, tzinfo=UTC).timestamp()

Chart = dict[str, Any]
Groups = list[tuple[str, int, list[Record]]]


def machine_data(inspection: Inspection, found: Summary, zone: tzinfo) -> dict[str, Any]:
    """What the page of one machine draws."""
    steps = Steps.of(found.coverage, _STEPS)
    assert steps is not None
    charts = MachineCharts(inspection, found, steps)
    drawn = charts.machine() | charts.jobs() | charts.containers() | charts.gpus()
    return drawn_over(steps, zone, drawn)


def drawn_over(steps: Steps, zone: tzinfo, charts: dict[str, Chart]) -> dict[str, Any]:
    first, length = steps.first.timestamp(), steps.seconds * steps.count
    times = {
        "first": first,
        "step": steps.seconds,
        "last": first + length,
        "zones": _zones(first, length, zone),
    }
    return {**times, "charts": charts}


def _zones(first: float, length: float, zone: tzinfo) -> list[tuple[float, float, str]]:
    """From when on the zone has which offset and name."""
    found: list[tuple[float, float, str]] = []
    begin, stride = first // _QUARTER * _QUARTER, max(_QUARTER, length / _MOST_QUARTERS)
    for number in range(int(length / stride) + 2):
        moment = min(begin + number * stride, _LATEST)
        local = in_zone(datetime.fromtimestamp(moment, UTC), zone)
        offset = local.utcoffset()
        shown = (0.0 if offset is None else offset.total_seconds(), local.tzname() or "")
        if not found or shown != found[-1][1:]:
            found.append((moment, *shown))
    return found


def chart_of(title: str, unit: str, series: list[dict[str, Any]], **more: Any) -> Chart:
    return {"title": title, "unit": unit, "series": series, **more}


def series_of(name: str, colour: int, values: Mapping[str, Values], line: bool = False) -> dict[str, Any]:
    return {"name": printable(name, _LONGEST_NAME), "colour": colour % _COLOURS, "line": line, **values}


def _named(
    rows: Iterable[Record], key: Callable[[Record], Any], names: Mapping[Any, tuple[str, int]], others: str
) -> Groups:
    """The rows of those that have a name, each with its colour, and of all others together."""
    groups = grouped(rows, key)
    found = [(name, colour, groups.pop(one, [])) for one, (name, colour) in names.items()]
    rest = [row for mine in groups.values() for row in mine]
    return [*found, (others, _OTHERS, rest)] if rest else found


def _coloured(names: Iterable[tuple[Any, str]]) -> dict[Any, tuple[str, int]]:
    return {key: (name, colour) for colour, (key, name) in enumerate(names)}


def _stack(groups: Groups, measure: str, empty: Values) -> list[dict[str, Any]]:
    """What the rows of each group say of each step, all together."""
    found = []
    for name, colour, rows in groups:
        values = [*empty]
        for row in rows:
            if 0 <= row["place"] < len(values) and row[measure] is not None:
                values[row["place"]] = (values[row["place"]] or 0.0) + row[measure]
        found.append(series_of(name, colour, {"mean": [*map(short, values)]}))
    return found


def _stacked(
    name: str, groups: Groups, empty: Values, high: list[Record], whole: Mapping[str, float | None]
) -> dict[str, Chart]:
    """Cores and memory of each group on each other, what there was, and the highest moment of all together."""
    found = {}
    for measure, title, unit in (("cores", "Busy cores", "cores"), ("memory", "Memory", "bytes")):
        drawn = _stack(groups, measure, empty)
        more = {"peak": course(high, measure, len(empty))["mean"], "stacked": True, "wide": bool(whole)}
        capacity = whole.get(measure)
        found[f"{name}-{measure}"] = chart_of(f"{title} per {name}", unit, drawn, capacity=capacity, **more)
    return found


class MachineCharts:
    """Use of one machine, and of each job, container and GPU on it."""

    def __init__(self, inspection: Inspection, found: Summary, steps: Steps) -> None:
        self.inspection = inspection
        self.found = found
        self.steps = steps
        self.archive = found.machine.archive
        inspection.queries.require_node_steps()
        self.moments = self._rows(_NODE)
        #: 0 where the machine was seen.
        self.idle: Values = [None] * steps.count
        for row in self.moments:
            if row["place"] < steps.count:
                self.idle[row["place"]] = 0.0

    def _rows(self, sql: str) -> list[Record]:
        return self.steps.rows(self.inspection.queries, sql, archive=self.archive)

    def machine(self) -> dict[str, Chart]:
        """How busy the machine was."""
        cpus, memory = self.found.use.cpus, self.found.use.memory_total_bytes

        def of(name: str, colour: int, field: str, line: bool = False) -> dict[str, Any]:
            return series_of(name, colour, course(self.moments, field, self.steps.count), line)

        stalled = [
            of("for a CPU", 0, "pressure_cpu", True),
            of("for memory", 4, "pressure_memory", True),
            of("for the disk", 1, "pressure_io", True),
        ]
        disk = [of("read", 0, "disk_read_rate"), of("written", 1, "disk_write_rate")]
        network = [of("received", 2, "received_rate"), of("sent", 3, "sent_rate")]
        cores, held = [of("busy cores", 0, "cores")], [of("in use", 4, "memory_bytes")]
        return {
            "cpu": chart_of("CPU: busy cores", "cores", cores, top=cpus, capacity=cpus, wide=True),
            "memory": chart_of("Memory in use", "bytes", held, top=memory, capacity=memory),
            "pressure": chart_of("Time stalled (PSI)", "share", stalled, top=1),
            "disk": chart_of("Disk", "rate", disk),
            "network": chart_of("Network", "rate", network),
        }

    def _stacks(self, name: str, groups: Groups, table: str, **capacity: float | None) -> dict[str, Chart]:
        """Cores and memory of jobs or containers, with the highest moment of all together."""
        high = self._rows(_HIGHEST.format(table=table, memory=_MEMORY[table], clocks=_CLOCKS))
        return _stacked(name, groups, self.idle, high, capacity)

    def jobs(self) -> dict[str, Chart]:
        groups = _named(self._rows(_JOBS), key_of, self._job_names(), "other jobs")
        use = self.found.use
        return self._stacks("job", groups, "job_rates", cores=use.cpus, memory=use.memory_total_bytes)

    def _job_names(self) -> dict[Key, tuple[str, int]]:
        jobs = self.found.jobs
        largest = sorted(jobs, key=lambda job: -(job.memory_byte_seconds or 0.0))[:3]
        chosen = jobs[: _NAMED - 3]
        chosen += [job for job in largest if job not in chosen]
        keys = {job.series_id: key for key, job in self.inspection.keyed_jobs.items()}
        return _coloured((keys[job.series_id], f"{job.job} {job.label or job.program}") for job in chosen)

    def containers(self) -> dict[str, Chart]:
        if not self.found.containers:
            return {}
        first = self.found.containers[:_NAMED]
        names = _coloured((each.container_id, each.name or each.container_id[:12]) for each in first)
        groups = _named(self._rows(_CONTAINERS), itemgetter("container_id"), names, "other containers")
        return self._stacks("container", groups, "container_rates")

    def gpus(self) -> dict[str, Chart]:
        gpus = self.found.gpus
        if not gpus:
            return {}
        rows = grouped(self._rows(_GPUS), itemgetter("gpu_uuid"))
        memory = max(gpu.memory_total_bytes or 0 for gpu in gpus) or None

        def cards(measure: str) -> list[dict[str, Any]]:
            found = []
            for number, gpu in enumerate(gpus):
                label = f"GPU {gpu.index}" if gpu.index is not None else gpu.gpu
                values = course(rows.get(gpu.gpu, []), measure, self.steps.count)
                found.append(series_of(label, number, values, line=len(gpus) > 1))
            return found

        return {
            "gpu-busy": chart_of("GPU busy", "percent", cards("util"), top=100),
            "gpu-memory": chart_of("GPU memory", "bytes", cards("memory"), top=memory, capacity=memory),
            "gpu-power": chart_of("GPU power", "watts", cards("watts"), wide=True),
        }


_MEASURES = {"cores": "cpu_busy_cores", "memory_bytes": "memory_used", **RATES, **PRESSURES}
_NODE = f"""
    SELECT {{place}} AS place, {means_and_highs(_MEASURES)} FROM node_steps WHERE archive = $archive GROUP BY 1
    ORDER BY 1"""  # noqa: S608

# How long each interval was, by the clock and by the counters of the CPUs. Jobs are not read at the same instant:
# together they are never shown with more cores than there are.
_CLOCKS = """
    clocks AS (
        SELECT run, seq, time, interval_seconds AS seconds, COALESCE(counted_seconds, interval_seconds) AS counted
        FROM sample_intervals LEFT JOIN node_clocks USING (archive, run, boot, seq) WHERE archive = $archive
    ),
    machine AS (SELECT CAST(MAX(cpus) AS DOUBLE) AS cpus FROM tick_lengths WHERE archive = $archive)"""
_STACK = """
    WITH {clocks},
    seen AS (SELECT {{place}} AS place, SUM(seconds) AS seconds, SUM(counted) AS counted FROM clocks GROUP BY 1),
    used AS (
        SELECT {{place}} AS place, {key}, SUM(cpu_seconds) AS cpu, SUM({memory} * interval_seconds) AS held
        FROM {table} WHERE archive = $archive GROUP BY ALL
    )
    SELECT used.*, held / NULLIF(seconds, 0) AS memory,
        cpu / NULLIF(GREATEST(counted, COALESCE(SUM(cpu) OVER (PARTITION BY place) / cpus, 0)), 0) AS cores
    FROM used JOIN seen USING (place), machine"""

_MEMORY = {"job_rates": "memory", "container_rates": "COALESCE(memory_working, memory_used)"}
_JOBS, _CONTAINERS = (
    _STACK.format(key=key, table=table, memory=_MEMORY[table], clocks=_CLOCKS)
    for key, table in ((", ".join(JOB_KEY), "job_rates"), ("container_id", "container_rates"))
)
_HIGHEST = """
    WITH {clocks},
    moments AS (
        SELECT run, seq, SUM(cpu_seconds) AS cpu, SUM({memory}) AS memory
        FROM {table} WHERE archive = $archive GROUP BY run, seq
    )
    SELECT {{place}} AS place, MAX(cpu / NULLIF(GREATEST(counted, COALESCE(cpu / cpus, 0)), 0)) AS cores,
        MAX(memory) AS memory
    FROM moments JOIN clocks USING (run, seq), machine GROUP BY 1"""

_GPU_MEASURES = {"util": "gpu_util", "memory": "memory_used", "watts": "watts"}
_GPUS = f"""
    SELECT {{place}} AS place, gpu_uuid, {means_and_highs(_GPU_MEASURES, "1")}
    FROM gpu_rates WHERE archive = $archive GROUP BY ALL"""  # noqa: S608

_FLEET = f"""
    SELECT {{place}} AS place, archive, {means_and_highs({"cores": "cpu_busy_cores", "memory": "memory_used"})}
    FROM node_steps GROUP BY 1, 2"""  # noqa: S608

# Machines do not sample at the same moments: those of one interval count as one.
_FLEET_HIGHEST = """
    WITH each AS (
        SELECT archive, FLOOR(epoch(time) / $interval) AS moment, MAX(time) AS time, AVG(cpu_busy_cores) AS cores,
            AVG(memory_used) AS memory
        FROM node_steps GROUP BY 1, 2
    ),
    moments AS (SELECT moment, MAX(time) AS time, SUM(cores) AS cores, SUM(memory) AS memory FROM each GROUP BY 1)
    SELECT {place} AS place, MAX(cores) AS cores, MAX(memory) AS memory FROM moments GROUP BY 1"""

_FLEET_GPUS = f"""
    SELECT {{place}} AS place, archive, {means_and_highs({"util": "gpu_util"}, "1")} FROM gpu GROUP BY 1, 2"""  # noqa: S608


def fleet_data(inspection: Inspection, rows: Sequence[FleetRow], zone: tzinfo) -> dict[str, Any]:
    """What the page of many machines draws, on one clock; nothing without samples. Each machine has one colour."""
    seen = [(row, row.first, row.last) for row in rows if row.first is not None and row.last is not None]
    if not seen:
        return {}
    machines, queries = [row for row, _, _ in seen], inspection.queries
    interval = max(inspection.coverage[row.archive].interval_seconds or 1.0 for row in machines)
    first, last = min(first for _, first, _ in seen), max(last for _, _, last in seen)
    steps = Steps.over(first, last, _FLEET_STEPS, interval)
    queries.require_node_steps()
    called = names_of(rows, zone)
    names = _fleet_names(machines, called)
    groups = _named(steps.rows(queries, _FLEET), itemgetter("archive"), names, "other machines")
    high = steps.rows(queries, _FLEET_HIGHEST, interval=interval)
    each = [latest for latest, *_ in by_machine(machines)]
    cpus, memory = (sum(getattr(row, of) or 0 for row in each) for of in ("cpus", "memory_total_bytes"))
    whole = {"cores": cpus or None, "memory": memory or None}
    charts = _stacked("machine", groups, [None] * steps.count, high, whole)
    if queries.has("gpu"):
        busy = grouped(steps.rows(queries, _FLEET_GPUS), itemgetter("archive"))
        # Idle GPUs are what the reader looks for. A machine without a colour gets one that is left.
        least = sorted((row for row in machines if row.gpus), key=lambda row: row.gpu_util.mean or 0.0)
        lines = []
        for row in least[:_NAMED]:
            name, colour = names.setdefault(row.archive, (called[row.archive], len(names) + 2))
            lines.append(
                series_of(name, colour, course(busy.get(row.archive, []), "util", steps.count), line=True)
            )
        charts["machine-gpus"] = chart_of(
            "GPU busy, the least busy machines", "percent", lines, top=100, wide=True
        )
    return {
        **drawn_over(steps, zone, charts),
        "colours": {archive: colour for archive, (_, colour) in names.items()},
    }


def _fleet_names(machines: Sequence[FleetRow], called: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """The machines that the stacks name: the busiest, and the largest of the others by memory."""
    busiest = sorted(machines, key=lambda row: -(row.cores.mean or 0.0))[: _NAMED - 3]
    largest = sorted(machines, key=lambda row: -(row.memory_bytes.mean or 0.0))
    chosen = [*busiest, *[row for row in largest if row not in busiest][: _NAMED - len(busiest)]]
    return _coloured((row.archive, called[row.archive]) for row in chosen)
