"""The page's tables as data: cells as people read them, what they sort by, when each row was, and where it leads."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.events import is_everyday
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import Energy, Happening, JobUse, Size
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import Summary
from vmsonar_inspect.show.columns import Column, columns_of, legend

#: Most rows of a table; the browser draws only those in view.
MOST_ROWS = 20_000
#: Columns with so few values that one chooses from a list.
_CHOICES = {"user", "program", "container", "kind", "collector", "instance_type"}

Table = dict[str, Any]


def table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    rest: str = "with less CPU time",
    link: str = "",
    **more: Callable[[Any], Any],
) -> Table:
    """The first rows, or the last where the rest is earlier, without empty columns; `more` is said of each row.

    A link is the column of another table that its rows choose from.
    """
    kept = rows[-MOST_ROWS:] if rest == "earlier" else rows[:MOST_ROWS]
    written = [column for column in (_column(column, kept) for column in columns) if column is not None]
    hidden = f"and {len(rows) - len(kept):,} {rest}, which are not on this page"
    found = {
        "title": title,
        "count": len(rows),
        "columns": written,
        "note": legend([cell for column in written for cell in column["cells"]]),
        "rest": hidden if len(rows) > len(kept) else "",
        "link": link,
        "spans": [_span(row) for row in kept],
    }
    return found | {name: [say(row) for row in kept] for name, say in more.items()}


def _column(column: Column, rows: Sequence[Any]) -> Table | None:
    """A column with its cells; None where it says nothing."""
    cells = column.cells(rows)
    if not any(cell and not (column.optional and cell == units.UNKNOWN) for cell in cells):
        return None
    keys = [_key(column, row) for row in rows]
    found = {"name": column.names, "title": column.title, "cells": cells, "right": column.right}
    found["keys"] = keys if any(key is not None for key in keys) else None
    return found | {"choice": column.names in _CHOICES}


def _key(column: Column, row: Any) -> float | None:
    """The figure that a cell sorts by; None of words, which sort by themselves."""
    kind: type[msgspec.Struct] = type(row)
    values = (shown_field(kind, name).value(row) for name in re.split(r"\|| / | of ", column.names))
    value = next((value for value in values if value is not None), None)
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Energy | Size):
        value = value.joules if isinstance(value, Energy) else value.cores
    return float(f"{value:.6g}") if isinstance(value, int | float) else None


def _span(row: Any) -> list[float]:
    """Begin and end of a row's time in seconds; nothing of one that has none."""
    begin, end = (
        next((time for name in names if (time := getattr(row, name, None)) is not None), None)
        for names in (("time", "started", "first", "begin"), ("time", "end", "last"))
    )
    return [] if begin is None else [begin.timestamp(), (end or begin).timestamp()]


def _program(job: JobUse) -> str:
    return shown_field(JobUse, "program").write(job.program)


#: A job is called by its label; its program is what the programs' table chooses jobs by.
_PROGRAM = Column("program", 20, title="program", write=_program, right=False)


def machine_tables(inspection: Inspection, found: Summary, zone: tzinfo) -> dict[str, Table]:
    """Every table of one machine that has rows."""
    # What ended well is in the jobs' own rows.
    told = (event for _, event in inspection.events if event.event != "exit" or event.exit_code != 0)
    events = [event for event in told if not is_everyday(event)]
    wrong = {id(event) for event in found.wrong}
    users, programs = inspection.users(zone), inspection.programs(zone)

    def listed(title: str, view: str, rows: Sequence[Any], *rest: str, **more: Any) -> Table:
        columns = _command_early(columns_of(view, zone))
        return table(title, [*columns, *([_PROGRAM] if view == "jobs" else [])], rows, *rest, **more)

    every = {
        "jobs": listed("Jobs", "jobs", found.jobs, ids=lambda job: job.series_id),
        "containers": listed("Containers", "containers", found.containers, link="jobs.container",
                             ids=lambda container: container.container_id),
        "cards": listed("GPUs", "gpus", found.gpus, ids=lambda gpu: gpu.gpu),
        "shares": listed("Shares", "shares", found.shares),
        "users": listed("Users", "users", users, link="jobs.user"),
        "programs": listed("Programs", "programs", programs, link="jobs.program"),
        "gaps": listed("What was not seen", "gaps", found.gaps, "earlier"),
        "events": listed("Events", "events", events, "earlier", about=_about, wrong=lambda event: id(event) in wrong),
        "wrong": listed("What went wrong", "events", found.wrong, "earlier", about=_about),
    }  # fmt: skip
    return {name: each for name, each in every.items() if each["count"]}


def _about(event: Happening) -> str:
    """What an event is about, as a job's detail names it."""
    return event.job_series_id or event.container_id or ("" if event.pgid is None else str(event.pgid))


def _command_early(columns: list[Column]) -> list[Column]:
    """Moves a job's command to the left: a page scrolls sideways."""
    first = [column for column in columns if column.names == "command"]
    rest = [column for column in columns if column.names != "command"]
    return [*rest[:3], *first, *rest[3:]]
