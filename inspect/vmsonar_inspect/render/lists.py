"""Every list view as a table."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from vmsonar_inspect import units
from vmsonar_inspect.answers import FleetRow
from vmsonar_inspect.model_advice import Advice
from vmsonar_inspect.render.columns import (
    Column,
    container_columns,
    gap_columns,
    gpu_columns,
    group_columns,
    job_columns,
    moment_columns,
    short_clock,
)
from vmsonar_inspect.render.grid import Grid
from vmsonar_inspect.render.verdicts import size_sentence, size_words, verdict_lines
from vmsonar_inspect.spark import sparkline
from vmsonar_inspect.text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

_NOTHING = {
    "jobs": "No jobs were recorded.",
    "containers": "No containers were recorded.",
    "gpus": "No GPUs were recorded.",
    "users": "No users were recorded.",
    "programs": "No programs were recorded.",
    "timeline": "No samples were recorded.",
    "gaps": "Nothing is missing: every sample was taken and everything could be read.",
    "advice": "Nothing was recorded that could be judged.",
}


def list_view(view: str, rows: Sequence[Any], zone: tzinfo, many: bool) -> "RenderableType":
    """The rows of a view, or a sentence that there are none."""
    if not rows:
        return Text(_NOTHING[view])
    if view == "advice":
        return advice_view(rows)
    return Grid(columns_of(view, zone, many), rows, legend=True)


def columns_of(view: str, zone: tzinfo, many: bool) -> list[Column]:
    """The columns of a view."""
    if view == "jobs":
        return job_columns(zone, many)
    if view == "containers":
        return container_columns(zone, many)
    if view == "gpus":
        return gpu_columns(many)
    if view == "users":
        return group_columns("user")
    if view == "programs":
        return [*group_columns("program"), *_WHEN]
    return moment_columns(zone) if view == "timeline" else gap_columns(zone)


_WHEN = [
    Column("0 h to 23 h", lambda group: sparkline(group.cpu_seconds_by_hour), 13, right=False),
    Column("Mo to Su", lambda group: sparkline(group.cpu_seconds_by_weekday), 14, right=False),
]


def advice_view(advices: Sequence[Advice]) -> "RenderableType":
    """The machine, then each job about which something is to be said, with all figures."""
    parts: list[RenderableType] = []
    quiet = thin = 0
    for advice in advices:
        if advice.about == "job" and not advice.verdicts:
            quiet, thin = quiet + advice.enough_data, thin + (not advice.enough_data)
            continue
        parts += [*_advice(advice), Text()]
    if quiet:
        parts.append(Text(f"Nothing to say against {_jobs(quiet)}.", style="dim"))
    if thin:
        parts.append(Text(f"Too little was recorded of {_jobs(thin)} to judge.", style="dim"))
    return Group(*parts)


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def _advice(advice: Advice) -> "list[RenderableType]":
    return [
        Text(advice.name, style="bold underline"),
        Grid(USED, used(advice)),
        *(verdict_lines(verdict, long=True) for verdict in advice.verdicts),
        size_sentence(advice),
    ]


USED = [
    Column("", lambda row: row[0], 0, right=False),
    Column("median", lambda row: row[1], 1),
    Column("95 %", lambda row: row[2], 2),
    Column("peak", lambda row: row[3], 3),
    Column("of", lambda row: row[4], 4, right=False),
]


def used(advice: Advice) -> list[tuple[str, str, str, str, str]]:
    cards = "" if not advice.gpus else f"{advice.gpus} GPU" + ("" if advice.gpus == 1 else "s")
    rows = [
        ("cores", advice.cores, units.cores, units.count(advice.cpus)),
        ("memory", advice.memory_bytes, units.size, units.size(advice.memory_total_bytes)),
        ("GPU", advice.gpu_util, units.percent, cards),
        ("GPU memory", advice.gpu_memory_bytes, units.size, units.size(advice.gpu_memory_total_bytes)),
        ("disk read", advice.disk_read_rate, units.rate, ""),
        ("disk write", advice.disk_write_rate, units.rate, ""),
        ("received", advice.received_rate, units.rate, ""),
        ("sent", advice.sent_rate, units.rate, ""),
    ]
    return [
        (name, write(use.median), write(use.p95), write(use.peak), whole)
        for name, use, write, whole in rows
        if use.peak is not None
    ]


def fleet_view(rows: Sequence[FleetRow], zone: tzinfo) -> "RenderableType":
    """A row per machine, worst used first."""
    return Grid(fleet_columns(zone), rows)


def fleet_columns(zone: tzinfo) -> list[Column]:
    return [
        Column("machine", lambda row: plain(row.hostname or row.archive[:8]), 0, right=False, widest=28),
        Column("size", lambda row: plain(row.instance_type, ""), 9, right=False, widest=20),
        Column("from", lambda row: short_clock(zone)(row.first), 8, right=False),
        Column("for", lambda row: units.duration(row.span_seconds), 4),
        Column("seen", lambda row: units.share(row.coverage), 5),
        Column("used", lambda row: units.share(row.used_share), 1),
        Column("cores 95 %", lambda row: f"{units.cores(row.cores.p95)} of {units.count(row.cpus)}", 2),
        Column("memory peak", _memory, 3),
        Column("GPU 95 %", lambda row: f"{units.percent(row.gpu_util.p95)} of {row.gpus}" if row.gpus else "", 6),
        Column("jobs", lambda row: units.count(row.jobs), 11),
        Column("would do", lambda row: size_words(row.size_p95) if row.size_p95 else "", 7, right=False),
        Column("verdicts", lambda row: ", ".join(row.verdicts), 10, right=False, least=14, widest=70),
    ]  # fmt: skip


def _memory(row: FleetRow) -> str:
    return f"{units.size(row.memory_bytes.peak)} of {units.size(row.memory_total_bytes)}"
