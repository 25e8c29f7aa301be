"""The views over the tables: an explicit list, each a SELECT in sql/ that DuckDB and Spark both run."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from vmsonar_archive.parquet.rollup import RESET_TO_ZERO

#: Every view, each after those it reads.
VIEWS: tuple[str, ...] = (
    "sample_intervals",
    "reading_limits",
    "tick_lengths",
    "latest_sysinfo",
    "latest_process_info",
    "latest_job_info",
    "latest_container_info",
    "coverage",
    "coverage_gaps",
    "disk_rates",
    "net_rates",
    "pressure_rates",
    "energy_rates",
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
    "gpu_rates",
    "gpu_usage",
)

#: Views that are one query over different tables: the query's name.
_QUERIES: dict[str, str] = {
    **{name: "series_totals" for name in VIEWS if name.endswith("_totals")},
    **{name: "latest_info" for name in VIEWS if name.startswith("latest_")},
}

#: The counters whose rises a view shows, by table.
_TASK_COUNTERS = ("user_ticks", "system_ticks", "read_bytes", "write_bytes", "major_faults")
_COUNTERS: dict[str, tuple[str, ...]] = {
    "process": _TASK_COUNTERS,
    "job": _TASK_COUNTERS,
    "container": (
        *("cpu_time", "cpu_user_time", "cpu_system_time", "periods", "throttled_periods", "throttled_time"),
        *("read_bytes", "write_bytes", "received_bytes", "sent_bytes", "oom_kills"),
        *("cpu_some_time", "memory_some_time", "io_some_time"),
    ),
}


def _rise(counter: str, resets_to_zero: bool) -> str:
    """How far a counter rose since the row before: the rule of parquet/rollup.py, in SQL.

    A series that has just begun counted from zero. A counter that fell was reset: its rise is its value where it
    began at zero again, and unknown elsewhere.
    """
    fell = counter if resets_to_zero else "NULL"
    return (
        f"CASE WHEN is_new THEN {counter} WHEN {counter} < {counter}_before THEN {fell} "
        f"ELSE {counter} - {counter}_before END AS {counter}_rise"
    )


def _rises(table: str) -> dict[str, str]:
    """The columns with each counter's value in the row before, and with its rise since."""
    between = ",\n        "
    before = (f"LAG({counter}) OVER w AS {counter}_before" for counter in _COUNTERS[table])
    rises = (_rise(counter, table in RESET_TO_ZERO) for counter in _COUNTERS[table])
    return {"values_before": between.join(before), "rises": between.join(rises)}


def _latest(table: str, described: str, *keys: str, newest: str = "seq DESC") -> dict[str, str]:
    return {"table": table, "described": described, "keys": ", ".join(("archive", *keys)), "newest": newest}


_BY_CLOCK = "boottime DESC, seq DESC"
_PROCESS = {"source": "process", "number": "pid"}
_JOB = {"source": "job", "number": "pgid"}

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
    "process_totals": {"source": "process"},
    "job_totals": {"source": "job"},
    "container_totals": {"source": "container"},
    "process_rates": {**_PROCESS, **_rises("process")},
    "job_rates": {**_JOB, **_rises("job")},
    "container_rates": _rises("container"),
    "process_usage": {**_PROCESS, "totals": "process_totals"},
    "job_usage": {**_JOB, "totals": "job_totals"},
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
    found = [match for line in lines[1:] if (match := _COLUMN.search(line))]
    return View(name, lines[0].removeprefix("-- "), text, {match[1]: match[2] for match in found})


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
