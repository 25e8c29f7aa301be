"""The views over the tables: an explicit list, each a SELECT in sql/ that DuckDB and Spark both run."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: Every view, each after those it reads.
VIEWS: tuple[str, ...] = (
    "sample_intervals",
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
    "user_usage",
    "container_rates",
    "container_usage",
    "gpu_rates",
    "gpu_usage",
)

#: Views that are one query over different tables: the query's name, and the table.
_SHARED: dict[str, tuple[str, str]] = {
    f"{table}_totals": ("series_totals", table) for table in ("process", "job", "container")
}

#: The histograms of a summary as rows; engines differ in how they take a list apart.
HISTOGRAMS: dict[str, str] = {
    f"{table}_histogram": f"{table}_day" for table in ("process", "job", "container")
}

_COLUMN = re.compile(r"(?:\bAS )?(?:\w+\.)?(\w+),?\s+-- (.+)$")


@dataclass(frozen=True, slots=True)
class View:
    """One view: what it is, its query, and what its columns mean."""

    name: str
    summary: str
    query: str
    columns: dict[str, str]


@cache
def view(name: str) -> View:
    """Reads one view; its first line says what it is, the comments behind its columns what they mean."""
    file, table = _SHARED.get(name, (name, ""))
    text = files("vmsonar_inspect").joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")
    text = text.replace("{source}", table)
    lines = text.splitlines()
    found = [match for line in lines[1:] if (match := _COLUMN.search(line))]
    return View(name, lines[0].removeprefix("-- "), text, {match[1]: match[2] for match in found})
