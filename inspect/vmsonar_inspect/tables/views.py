"""The views over the tables: an explicit list, each a SELECT in sql/ that DuckDB and Spark both run."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from vmsonar_archive.parquet.measures import MEMORY_BY, PEAK_BY, RESET_TO_ZERO, TOLD_BY
from vmsonar_archive.records import ALLOWANCES, FabricRow, NetRow

#: Every view, each after those it reads.
VIEWS: tuple[str, ...] = (
    "sample_intervals",
    "reading_limits",
    "tick_lengths",
    "latest_sysinfo",
    "latest_process_info",
    "latest_job_info",
    "latest_container_info",
    "latest_batch_job",
    "coverage",
    "coverage_gaps",
    "disk_rates",
    "netfs_rates",
    "net_rates",
    "fabric_rates",
    "pressure_rates",
    "energy_rates",
    "node_clocks",
    "node_rates",
    "node_usage",
    "process_totals",
    "job_totals",
    "container_totals",
    "process_rates",
    "process_usage",
    "job_rates",
    "job_usage",
    "user_rates",
    "user_usage",
    "container_lives",
    "container_rates",
    "container_usage",
    "cgroup_rates",
    "gpu_rates",
    "gpu_usage",
)

#: Views that are one query over different tables: the query's name.
_QUERIES: dict[str, str] = {
    **{name: "series_totals" for name in VIEWS if name.endswith("_totals")},
    **{
        name: "latest_info"
        for name in VIEWS
        if name.startswith("latest_") and name.endswith(("info", "sysinfo"))
    },
}

#: The counters whose rises a view shows, by table.
_TASK_COUNTERS = ("user_ticks", "system_ticks", "read_bytes", "write_bytes", "major_faults")
#: Counters that are absent while they are zero.
_SPARSE = ("child_read_bytes", "child_write_bytes")
_COUNTERS: dict[str, tuple[str, ...]] = {
    "process": (*_TASK_COUNTERS, *_SPARSE),
    "job": _TASK_COUNTERS,
    "container": (
        *("cpu_time", "cpu_user_time", "cpu_system_time", "periods", "throttled_periods", "throttled_time"),
        *("read_bytes", "write_bytes", "received_bytes", "sent_bytes", "oom_kills"),
        *("cpu_some_time", "memory_some_time", "io_some_time"),
    ),
    "cgroup": (
        *("cpu_time", "periods", "throttled_periods", "read_bytes", "write_bytes", "oom_kills"),
        *("cpu_some_time", "memory_some_time", "io_some_time"),
    ),
    "netfs": (
        *("program_read", "program_write", "server_read_bytes", "server_write_bytes", "operations"),
        *("read_operations", "write_operations", "metadata_operations", "rpc_operations", "execute_time"),
        *(
            "read_execute_time",
            "write_execute_time",
            "metadata_execute_time",
            "queue_time",
            "round_trip_time",
        ),
        *("retransmissions", "timeouts", "errors"),
    ),
    "fabric": FabricRow.__struct_fields__[FabricRow.__struct_fields__.index("received_bytes") :],
    "net": NetRow.__struct_fields__[1:9] + ALLOWANCES,
}


def _rise(counter: str, resets_to_zero: bool) -> str:
    """How far a counter rose since the row before: the rule of parquet/rollup.py, in SQL.

    A series that has just begun counted from zero. A counter that fell was reset: its rise is its value where it
    began at zero again, and unknown elsewhere.
    """
    value = _value(counter)
    fell = value if resets_to_zero else "NULL"
    return (
        f"CASE WHEN is_new THEN {value} WHEN {value} < {counter}_before THEN {fell} "
        f"ELSE {value} - {counter}_before END AS {counter}_rise"
    )


def _value(counter: str) -> str:
    return f"COALESCE({counter}, 0)" if counter in _SPARSE else counter


def _rises(table: str) -> dict[str, str]:
    """The columns with each counter's value in the row before, and with its rise since."""
    between = ",\n        "
    before = (f"LAG({_value(counter)}) OVER w AS {counter}_before" for counter in _COUNTERS[table])
    rises = (_rise(counter, table in RESET_TO_ZERO) for counter in _COUNTERS[table])
    return {"values_before": between.join(before), "rises": between.join(rises)}


def _latest(table: str, described: str, *keys: str, newest: str = "seq DESC") -> dict[str, str]:
    return {"table": table, "described": described, "keys": ", ".join(("archive", *keys)), "newest": newest}


#: The totals that have bounds, by the names of these.
_GAPS = {"cpu": "cpu", "read": "read_bytes", "write": "write_bytes"}


def _of(measure: str, column: str) -> str:
    """A column of the row of one measure."""
    return f"MAX(CASE WHEN measure = '{measure}' THEN {column} END)"


def _gap(gap: str) -> str:
    """How much further apart a total and its bound are at the end of the record than at its beginning.

    Total and bounds are rounded to ticks, each by itself: a gap from before the record may differ by two of them.
    """
    counter = _GAPS[gap.rpartition("_")[0]]
    is_late = f"{_of(gap, 'first_boottime')} > {_of(counter, 'first_boottime')}"
    end = _gap_at_end(gap, counter)
    grown = f"{end} - COALESCE({_of(gap, 'first_value')}, 0.0)"
    rounding = "2.5 / MAX(t.ticks_per_second)" if counter == "cpu" else "0.0"
    began = f"BOOL_OR(measure = '{counter}' AND begins) OR {is_late}"
    return f"CASE WHEN {began} THEN {end} WHEN ABS({grown}) <= {rounding} THEN 0.0 ELSE {grown} END"


def _doubted(flag: str, *names: str) -> str:
    """Whether a flag is about the record: bounds that did not move apart in it are about the time before."""
    gaps = [f"{name}_{side}" for name in names for side in ("below", "above")]
    has_bounds = f"BOOL_OR(measure IN ({', '.join(map(repr, gaps))}))"
    moved = " OR ".join(f"ABS({_gap(gap)}) > 1e-6" for gap in gaps)
    return f"COALESCE({_of(flag, 'maximum')} > 0 AND (NOT {has_bounds} OR {moved}), FALSE) AS {flag}"


def _gap_at_end(gap: str, counter: str) -> str:
    """How far a total and its bound are apart at the end; days without any gap have no row of it."""
    is_last = f"{_of(gap, 'last_boottime')} >= {_of(counter, 'last_boottime')}"
    return f"CASE WHEN {is_last} THEN {_of(gap, 'last_value')} ELSE 0.0 END"


def _worded(measure: str, column: str, words: tuple[str, ...]) -> str:
    cases = " ".join(f"WHEN {place} THEN '{word}'" for place, word in enumerate(words))
    return f"CASE CAST({_of(measure, column)} AS BIGINT) {cases} END AS {measure}"


def _latest_peak(measure: str) -> str:
    """A bound of the peak, if the last row that tells the peak tells it too."""
    is_of_last = f"{_of(measure, 'last_boottime')} >= {_of('memory_peak', 'last_boottime')}"
    return f"CAST(CASE WHEN {is_of_last} THEN {_of(measure, 'last_value')} END AS BIGINT) AS {measure}"


def _doubts() -> str:
    """What the totals of a series say about how sure its figures are."""
    gaps = [f"{name}_{side}" for name in _GAPS for side in ("below", "above")]
    absolute = " + ".join(_gap_at_end(gap, "cpu") for gap in ("cpu_below", "cpu_above"))
    return ",\n        ".join(
        (
            *(f"{_gap(gap)} AS {gap}" for gap in gaps),
            _doubted("unattributed", "cpu"),
            _doubted("io_partial", "read", "write"),
            f"{absolute} AS cpu_doubt",
            _worded("cpu_source", "maximum", TOLD_BY),
            _worded("io_source", "maximum", TOLD_BY),
            _worded("memory_source", "maximum", MEMORY_BY),
            _worded("memory_peak_source", "last_value", PEAK_BY),
            f"CAST({_of('memory_peak', 'last_value')} AS BIGINT) AS memory_peak_told",
            _latest_peak("memory_peak_low"),
            _latest_peak("memory_peak_high"),
            f"CAST({_of('memory_charged_peak', 'maximum')} AS BIGINT) AS memory_charged_peak",
            f"CAST({_of('resident_peak', 'maximum')} AS BIGINT) AS resident_peak",
            f"CAST(COALESCE({_of('child_read_bytes', 'total')}, 0) AS BIGINT) AS child_read_bytes",
            f"CAST(COALESCE({_of('child_write_bytes', 'total')}, 0) AS BIGINT) AS child_write_bytes",
        )
    )


#: The CPU time that the machine had while a job was seen.
_HAD = "r.recorded_seconds * r.cpus"


def _bounds(name: str, figure: str, whole: bool = True) -> str:
    """The columns with the least and the most that a figure can be, null where it is exact.

    Of CPU time (not `whole`) both are always known; of bytes nobody may know the most.
    """
    below, above = f"r.{name}_below", f"r.{name}_above"
    low, high = f"GREATEST({below}, -{above}, 0.0)", f"GREATEST({above}, -{below}, 0.0)"
    least, most = f"GREATEST(r.{figure} - {low}, 0.0)", f"r.{figure} + {high}"
    if whole:
        least, most = f"CAST({least} AS BIGINT)", f"CAST({most} AS BIGINT)"
        has_low, has_high = f"{low} > 0 AND r.{figure} > 0", f"{high} > 0 AND r.{figure} IS NOT NULL"
    else:
        most = f"CASE WHEN {most} > {_HAD} THEN {_HAD} ELSE {most} END"
        has_low = has_high = f"({low} > 0 AND r.{figure} > 0) OR ({high} > 0 AND r.{figure} IS NOT NULL)"
    return (
        f"CASE WHEN {has_low} THEN {least} END AS {figure}_low, "
        "-- least that it can be, where it is not exact\n"
        f"    CASE WHEN {has_high} THEN {most} END AS {figure}_high, "
        "-- most that it can be, where it is not exact and that is known"
    )


_BY_CLOCK = "boottime DESC, seq DESC"
_PROCESS = {
    "source": "process",
    "number": "pid",
    "alive": "cpu",
    "cpu_time": "r.cpu_seconds",
    "doubts": _doubts(),
    "runtime": "r.runtime_seconds",
    "until": "boottime",
    "is_alive": "TRUE",
    "counts_anew": "FALSE",
    "seen_before": "",
}
_JOB = {
    "source": "job",
    "number": "pgid",
    "alive": "processes",
    # What is not exact is no more than the machine had.
    "cpu_time": f"CASE WHEN r.unattributed AND r.cpu_seconds > {_HAD} THEN {_HAD} ELSE r.cpu_seconds END "
    "AS cpu_seconds",
    "doubts": _doubts(),
    "until": "CASE WHEN end_boottime < boottime THEN end_boottime ELSE boottime END",
    "runtime": "CASE WHEN n.job_source = 'no_group' THEN NULL ELSE r.runtime_seconds END AS runtime_seconds",
    "is_alive": "COALESCE(processes, 1) > 0",
    # The same run of the recorder had jobs in the sample before, but not this one.
    "counts_anew": "i.previous_run = i.run AND k.boottime IS NOT NULL",
    "seen_before": "LEFT JOIN (SELECT DISTINCT archive, boot, boottime FROM job) AS k\n"
    "        ON s.archive = k.archive AND s.boot = k.boot AND i.previous_boottime = k.boottime",
}

#: What stands for the names in braces; any other is that of a file in sql/parts/, which several queries share.
_WORDS: dict[str, dict[str, str]] = {
    "latest_sysinfo": _latest("sysinfo", "description of every machine"),
    "latest_process_info": _latest(
        "process_info", "info row of every process", "boot", "pid", "start_ticks", newest=_BY_CLOCK
    ),
    "latest_job_info": _latest(
        "job_info", "info row of every job", "boot", "pgid", "start_ticks", newest=_BY_CLOCK
    ),
    "latest_container_info": _latest("container_info", "info row of every container", "container_id"),
    "process_totals": {"source": "process", "counts_anew": "FALSE"},
    "job_totals": {
        "source": "job",
        "counts_anew": "i.previous_run = i.run AND b.last_boottime IS NOT NULL",
    },
    "container_totals": {"source": "container", "counts_anew": "FALSE"},
    "process_rates": {**_PROCESS, **_rises("process")},
    "job_rates": {**_JOB, **_rises("job")},
    **{f"{table}_rates": _rises(table) for table in ("container", "cgroup", "netfs", "fabric", "net")},
    "process_usage": {**_PROCESS, "totals": "process_totals"},
    "job_usage": {
        **_JOB,
        "totals": "job_totals",
        "cpu_bounds": _bounds("cpu", "cpu_seconds", whole=False),
        "read_bounds": _bounds("read", "read_bytes"),
        "write_bounds": _bounds("write", "write_bytes"),
    },
}

#: The histograms of a summary as rows; engines differ in how they take a list apart.
HISTOGRAMS: dict[str, str] = {
    f"{table}_histogram": f"{table}_day" for table in ("process", "job", "container")
}

_HISTOGRAM = """
    SELECT archive, boot, number, start_ticks, container_id, measure,
        entry.bucket AS bucket, entry.frequency AS frequency
    FROM (SELECT *, {unnest}(histogram) AS entry FROM {table}) AS entries
"""

_COLUMN = re.compile(r"(?:\bAS )?(?:\w+\.)?(\w+),?\s+-- (.+)$")


@dataclass(frozen=True, slots=True)
class View:
    """One view: what it is, its query, and what its columns mean."""

    name: str
    summary: str
    query: str
    columns: dict[str, str]


@cache
def view(name: str, **words: str) -> View:
    """Reads one view; its first line says what it is, the comments behind its columns what they mean.

    Words given here replace the view's own: `totals="job_sums"` reads the sums from another table.
    """
    text = _read(f"{_QUERIES.get(name, name)}.sql").format_map(_Words(_WORDS.get(name, {}) | words))
    lines = text.splitlines()
    columns: dict[str, str] = {}
    for match in filter(None, map(_COLUMN.search, lines[1:])):
        columns.pop(match[1], None)  # a shared part may explain one before its place
        columns[match[1]] = match[2]
    return View(name, lines[0].removeprefix("-- "), text, columns)


def histogram(name: str, unnest: str) -> str:
    """The query of a histogram, with the engine's function that makes rows of a list."""
    return _HISTOGRAM.format(unnest=unnest, table=HISTOGRAMS[name])


def read_by(query: str) -> list[str]:
    """The tables and views whose names occur in a query or in what it reads, each after those it reads itself."""
    found: dict[str, None] = {}
    for word in sorted(_words_of(query)):
        if word in VIEWS:
            found |= dict.fromkeys(read_by(view(word).query))
        elif word in HISTOGRAMS:
            found[HISTOGRAMS[word]] = None
        found[word] = None
    return list(found)


def _words_of(query: str) -> set[str]:
    """The words of a query, without those in strings and comments, and without columns of a named table."""
    bare = re.sub(r"--[^\n]*|'[^']*'", " ", query)
    return {word.lower() for word in re.findall(r"(?<![\w.])\w+", bare)}


class _Words(dict[str, str]):
    """What stands for the names in braces of one view."""

    def __missing__(self, name: str) -> str:
        """A part that several queries share, without the line that says what it is."""
        return _read("parts", f"{name}.sql").split("\n", 1)[1].strip().format_map(self)


def _read(*path: str) -> str:
    return files("vmsonar_inspect").joinpath("tables", "sql", *path).read_text(encoding="utf-8")
