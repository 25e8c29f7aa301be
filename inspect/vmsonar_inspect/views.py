"""The views over the tables: an explicit list, each a SELECT in sql/ that DuckDB and Spark both run."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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
    "container_rates",
    "container_usage",
    "gpu_rates",
    "gpu_usage",
)

#: Views that are one query over different tables: the query's name.
_QUERIES: dict[str, str] = {f"{table}_totals": "series_totals" for table in ("process", "job", "container")}

#: What stands for the names in braces; any other is that of a file in sql/parts/, which several queries share.
_WORDS: dict[str, dict[str, str]] = {
    "process_totals": {"source": "process"},
    "job_totals": {"source": "job"},
    "container_totals": {"source": "container"},
    "process_rates": {"source": "process", "number": "pid"},
    "job_rates": {"source": "job", "number": "pgid"},
}

#: The histograms of a summary as rows; engines differ in how they take a list apart.
HISTOGRAMS: dict[str, str] = {
    f"{table}_histogram": f"{table}_day" for table in ("process", "job", "container")
}

_COLUMN = re.compile(r"(?:\bAS )?(?:\w+\.)?(\w+),?\s+-- (.+)$")
_BRACE = re.compile(r"\{(\w+)\}")


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
    text = _filled(_read(f"{_QUERIES.get(name, name)}.sql"), _WORDS.get(name, {}))
    lines = text.splitlines()
    found = [match for line in lines[1:] if (match := _COLUMN.search(line))]
    return View(name, lines[0].removeprefix("-- "), text, {match[1]: match[2] for match in found})


def words_of(query: str) -> set[str]:
    """The words of a query, without those in strings and comments, and without columns of a named table."""
    bare = re.sub(r"--[^\n]*|'[^']*'", " ", query)
    return {word.lower() for word in re.findall(r"(?<![\w.])\w+", bare)}


def read_by(query: str) -> list[str]:
    """The tables and views whose names occur in a query or in what it reads, each after those it reads itself."""
    found: dict[str, None] = {}
    for word in sorted(words_of(query)):
        if word in VIEWS:
            found |= dict.fromkeys(read_by(view(word).query))
        elif word in HISTOGRAMS:
            found[HISTOGRAMS[word]] = None
        found[word] = None
    return list(found)


def _filled(text: str, words: dict[str, str]) -> str:
    def filling(brace: re.Match[str]) -> str:
        name = brace[1]
        return words[name] if name in words else _filled(_part(name), words)

    return _BRACE.sub(filling, text)


def _part(name: str) -> str:
    """What several queries share, without the line that says what it is."""
    return _read("parts", f"{name}.sql").split("\n", 1)[1].strip()


def _read(*path: str) -> str:
    return files("vmsonar_inspect").joinpath("sql", *path).read_text(encoding="utf-8")
