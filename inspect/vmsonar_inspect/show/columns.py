"""Which fields of the model each view shows, and how early a column leaves when space is short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import Any

import msgspec

from vmsonar_inspect.advice.verdicts import size_words
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import ShownField, shown_field
from vmsonar_inspect.facts.model import (
    ContainerUse,
    Gap,
    GpuUse,
    GroupUse,
    Happening,
    JobUse,
    Moment,
    ProcessUse,
    ProgramUse,
    StepUse,
    TaskUse,
)
from vmsonar_inspect.facts.network import LinkUse, ShareUse
from vmsonar_inspect.facts.unit_use import UnitUse
from vmsonar_inspect.show.answers import FleetRow

Write = Callable[[Any], str]


def _by_unit(row: Any) -> str:
    raise AssertionError("columns_of puts in what the units of the fields say")


@dataclass(frozen=True, slots=True)
class Column:
    """Fields that share a column: `cores.p95`, `name|container_id` (the first known), `a / b` or `a of b` (both).

    The lower its rank, the longer it stays. Title and writing are those of the fields, where nothing is said here.
    """

    names: str
    rank: int
    title: str = ""
    write: Write = _by_unit
    right: bool = True
    widest: int = 60
    least: int = 8
    #: Left out when every cell is unknown.
    optional: bool = False
    #: Times to the minute, without the year.
    brief: bool = False

    def cells(self, rows: Sequence[Any]) -> list[str]:
        """What is written of each row; energies in one unit, so that they can be compared at a glance."""
        if self.names != "energy":
            return [self.write(row) for row in rows]
        most = max((row.energy.joules or 0.0 for row in rows), default=0.0)
        return [units.energy(row.energy.joules, row.energy.source, like=most) for row in rows]


_MACHINE = Column("hostname", 1, widest=24)


def _job_id(job: JobUse) -> str:
    has_name = job.is_one_job or not job.is_told_apart
    return shown_field(JobUse, "job").write(job.job) if has_name else "no group"


def _how_ended(job: JobUse) -> str:
    """The sentence, short where it says nothing of this job."""
    if not job.ended:
        return "running"
    words = shown_field(JobUse, "ending.words").write(job.ending.words)
    is_bare = job.ending.cause is None or job.ending.is_coincidence
    return "not known" if words.startswith("not known") and is_bare else words


_JOBS = (
    Column("job", 0, widest=30, write=_job_id),
    Column("user", 2, widest=16),
    Column("label", 3, widest=36, least=14),
    Column("started|first", 10, brief=True, least=11),
    Column("runtime_seconds", 4),
    Column("observed_seconds", 9),
    Column("cpu_seconds", 1),
    Column("cores.median", 11),
    Column("cores.p95", 5),
    Column("cores.peak", 12),
    Column("memory_bytes.median", 14),
    Column("memory_bytes.peak", 6),
    Column("gpu_seconds", 7),
    Column("gpu_util.p95", 13),
    Column("read_bytes / write_bytes", 15),
    Column("energy", 16),
    Column("container", 17, widest=20),
    Column("session_id", 18),
    Column("account", 9, optional=True, widest=16),
    Column("project", 10, optional=True, widest=16),
    Column("allocated_cpus", 8, optional=True),
    Column("allocated_memory_bytes", 9, optional=True),
    Column("allocated_gpus", 9, optional=True),
    Column("time_limit_seconds", 10, optional=True),
    Column("ending.words", 8, widest=50, least=20, write=_how_ended),
    Column("command", 19, least=12),
)

_CONTAINERS = (
    Column("name|container_id", 0, widest=28),
    Column("user", 6, widest=16),
    Column("image", 9, widest=36),
    Column("runtime_seconds", 4),
    Column("observed_seconds", 12),
    Column("cpu_seconds", 1),
    Column("cores.p95", 3),
    Column("quota_cores", 10),
    Column("throttled_share", 11),
    Column("memory_charged_peak_bytes", 2),
    Column("memory_bytes.p95", 16),
    Column("memory_limit_bytes", 5),
    Column("oom_kills", 7),
    Column("ending.words", 8, widest=50, least=20),
    Column("read_bytes / write_bytes", 13),
    Column("received_bytes / sent_bytes", 14),
    Column("energy", 15),
    Column("first", 12, brief=True, least=11),
)

_UNITS = (
    Column("unit", 0, widest=40),
    Column("cgroup_kind", 6),
    Column("seconds", 8),
    Column("cpu_seconds", 1),
    Column("cores.p95", 4),
    Column("cores.peak", 9),
    Column("memory_bytes.p95", 5),
    Column("memory_charged_peak_bytes", 2),
    Column("memory_limit_bytes", 3, optional=True),
    Column("swap_peak_bytes", 10, optional=True),
    Column("swap_limit_bytes", 17, optional=True),
    Column("tasks_peak", 11),
    Column("oom_kills", 7, optional=True),
    Column("throttled_share", 12, optional=True),
    Column("read_bytes / write_bytes", 13),
    Column("pressure_cpu", 14, optional=True),
    Column("pressure_memory", 15, optional=True),
    Column("pressure_io", 16, optional=True),
)

_GPUS = (
    Column("index|gpu", 0),
    Column("model", 6, widest=28),
    Column("gpu_util.median", 3),
    Column("gpu_util.p95", 1),
    Column("gpu_util.peak", 4),
    Column("gpu_seconds", 2),
    Column("memory_bytes.peak", 5),
    Column("memory_total_bytes", 7),
    Column("power_watts.mean", 8),
    Column("energy", 9),
    Column("temperature.peak", 11, title="hottest"),
    Column("errors", 10),
    Column("jobs", 12, widest=30),
    Column("gpu", 13, widest=44),
)

_SHARES = (
    Column("share", 0, widest=36),
    Column("fs_type", 7),
    Column("server", 10, widest=28),
    Column("export", 12, widest=28),
    Column("read_bytes / write_bytes", 1),
    Column("server_read_bytes / server_write_bytes", 9),
    Column("operations", 4),
    Column("metadata_share", 5),
    Column("operation_seconds", 3),
    Column("slowest_seconds", 6),
    Column("waiting.mean", 2),
    Column("retransmissions", 8),
    Column("timeouts", 8),
    Column("errors", 13),
    Column("seconds", 14),
)

_LINKS = (
    Column("link", 0, widest=28),
    Column("kind", 9),
    Column("speed_rate", 4),
    Column("received_bytes / sent_bytes", 1),
    Column("received_rate.p95", 2),
    Column("sent_rate.p95", 3),
    Column("link_share.p95", 5),
    Column("drops", 6),
    Column("errors", 7),
    Column("repeats", 10, optional=True),
    Column("exceeded", 8, optional=True),
    Column("throttled_share", 8, optional=True),
)

_GROUPS = (
    Column("jobs", 3),
    Column("users", 9),
    Column("cpu_seconds", 1),
    Column("gpu_seconds", 4, optional=True),
    Column("runtime_seconds", 8),
    Column("memory_median_bytes", 7),
    Column("memory_p95_bytes", 6),
    Column("memory_peak_bytes", 2),
    Column("read_bytes / write_bytes", 10),
    Column("energy", 5),
    Column("energy.grams_co2e", 11, title="CO2e"),
    Column("tags", 12),
    Column("accounts", 9, optional=True, widest=24),
    Column("projects", 13, optional=True, widest=24),
)

_WHEN = (
    Column("cpu_seconds_by_hour", 13, write=lambda group: units.sparkline(group.cpu_seconds_by_hour)),
    Column("cpu_seconds_by_weekday", 14, write=lambda group: units.sparkline(group.cpu_seconds_by_weekday)),
)

_TIMELINE = (
    Column("time", 0),
    Column("cores", 1),
    Column("cores_peak", 8),
    Column("memory_bytes", 2),
    Column("gpu_util", 3, optional=True),
    Column("disk_read_rate", 4),
    Column("disk_write_rate", 5),
    Column("received_rate", 6),
    Column("sent_rate", 7),
    Column("pressure_cpu", 9),
    Column("pressure_memory", 10),
    Column("pressure_io", 11),
)

_GAPS = (
    Column("kind", 0),
    Column("begin", 1),
    Column("end", 6),
    Column("seconds", 2),
    Column("collector", 4, widest=16),
    Column("reason", 3, widest=24),
    Column("times", 8),
    Column("samples_lost", 7),
    Column("detail", 5, widest=90, least=10),
)

_EVENTS = (
    Column("time", 0),
    Column("kind", 4),
    Column("subject", 2, widest=30),
    Column("program", 3, widest=20),
    Column("what", 1, least=20, widest=100),
    Column("detail", 5, least=10),
)

_PROCESSES = (
    Column("pid", 0),
    Column("cpu_seconds", 1),
    Column("memory_peak_bytes", 2),
    Column("own_read_bytes", 4),
    Column("own_write_bytes", 5),
    Column("samples", 6),
    Column("command", 3, least=12),
)


def _times(row: ProgramUse) -> str:
    name = shown_field(ProgramUse, "program").write(row.program)
    return name if row.processes == 1 else f"{name} \u00d7 {row.processes}"


#: All processes of a program in one row.
_STORY_PROGRAMS = (
    Column("program", 0, widest=30, write=_times),
    Column("cpu_seconds", 1),
    Column("memory_peak_bytes", 2),
    Column("own_read_bytes", 3),
    Column("own_write_bytes", 4),
)


#: A batch job on several machines, side by side.
_STORY_NODES = (
    Column("hostname", 0, widest=28),
    Column("cpu_seconds", 1),
    Column("cores.mean", 2),
    Column("cores.peak", 6),
    Column("memory_bytes.peak", 3),
    Column("gpu_seconds", 4),
    Column("read_bytes / write_bytes", 7),
    Column("runtime_seconds", 5),
)

_STEPS = (
    Column("step", 0),
    Column("groups", 3),
    Column("cpu_seconds", 1),
    Column("memory_peak_bytes", 2),
    Column("memory_charged_peak_bytes", 4, optional=True),
    Column("gpu_seconds", 6, optional=True),
    Column("command", 7, least=12),
)

_TASKS = (
    Column("task", 0),
    Column("hostname", 3, widest=28),
    Column("cpu_seconds", 1),
    Column("memory_peak_bytes", 2),
    Column("gpu_seconds", 6, optional=True),
    Column("command", 7, least=12),
)


def _would_do(row: FleetRow) -> str:
    return ("≥ " * row.size_is_lower_bound + size_words(row.size_p95)) if row.size_p95 else ""


_FLEET = (
    Column("hostname|archive", 0, widest=28),
    Column("instance_type", 9, widest=20),
    Column("first", 8, brief=True, least=11),
    Column("span_seconds", 4),
    Column("coverage", 5),
    Column("used_share", 1),
    Column("cores.p95 of cpus", 2),
    Column("memory_bytes.peak of memory_total_bytes", 3),
    Column("gpu_util.p95 of gpus", 6),
    Column("jobs", 11),
    Column("size_p95", 7, write=_would_do),
    Column("verdict_words", 10, least=14, widest=70),
)

_VIEWS: dict[str, tuple[type[msgspec.Struct], tuple[Column, ...]]] = {
    "jobs": (JobUse, _JOBS),
    "containers": (ContainerUse, _CONTAINERS),
    "units": (UnitUse, _UNITS),
    "gpus": (GpuUse, _GPUS),
    "shares": (ShareUse, _SHARES),
    "links": (LinkUse, _LINKS),
    "users": (
        GroupUse,
        (
            Column("name", 0, title="user", widest=28),
            *(each for each in _GROUPS if each.names not in ("users", "tags")),
        ),
    ),
    "sessions": (GroupUse, (Column("name", 0, title="session", widest=32), *_GROUPS)),
    "programs": (GroupUse, (Column("name", 0, title="program", widest=28), *_GROUPS)),
    "hours": (GroupUse, _WHEN),
    "timeline": (Moment, _TIMELINE),
    "gaps": (Gap, _GAPS),
    "events": (Happening, _EVENTS),
    "processes": (ProcessUse, _PROCESSES),
    "story programs": (ProgramUse, _STORY_PROGRAMS),
    "story nodes": (JobUse, _STORY_NODES),
    "story steps": (StepUse, _STEPS),
    "story tasks": (TaskUse, _TASKS),
    "machines": (FleetRow, _FLEET),
}


def columns_of(view: str, zone: tzinfo, many: bool = False) -> list[Column]:
    """The columns of a view; rows of many machines say whose they are."""
    kind, shown = _VIEWS[view]
    has_machine = many and view in ("jobs", "containers", "units", "gpus", "shares", "links", "events")
    return [_column(kind, each, zone) for each in ((_MACHINE, *shown) if has_machine else shown)]


def _column(kind: type[msgspec.Struct], column: Column, zone: tzinfo) -> Column:
    pair = next((sign for sign in (" / ", " of ") if sign in column.names), None)
    fields = [shown_field(kind, name) for name in column.names.split(pair or "|")]
    clock = partial(units.short_clock if column.brief else units.clock, zone=zone)
    title = " / ".join(field.title for field in fields) if pair == " / " else fields[0].title
    write = partial(_both, fields, pair) if pair else partial(_first_known, fields, clock)
    return replace(
        column,
        title=column.title or title,
        write=write if column.write is _by_unit else column.write,
        right=all(field.is_figure for field in fields),
    )


def _first_known(fields: Sequence[ShownField], clock: Write, row: Any) -> str:
    field = next((field for field in fields if field.is_known(row)), fields[-1])
    if not field.is_relevant(row):
        return ""
    value = field.value(row)
    return clock(value) if field.unit == "time" else field.marked(row)


def _both(fields: Sequence[ShownField], sign: str, row: Any) -> str:
    words = [field.marked(row) for field in fields]
    if not fields[0].is_relevant(row):
        return ""
    return units.UNKNOWN if sign == " / " and {*words} == {units.UNKNOWN} else sign.join(words)


def legend(cells: Sequence[str]) -> str:
    """Explains the marks that occur in some cells."""
    begun = {part[:1] for cell in cells for part in cell.split(" / ")}
    words = [f"{mark} {meaning}" for mark, meaning in units.MARKS.items() if mark in begun]
    words += [meaning for name, meaning in _NAMES.items() if any(cell.startswith(name) for cell in cells)]
    return "; ".join([*words, f"{units.UNKNOWN} unknown"] if units.UNKNOWN in cells else words)


#: Jobs that are none.
_NAMES = {
    "no group": "no group: of groups beyond this PID namespace",
    "not told apart": "not told apart: time of a user that belongs to some job, but nobody can say which",
}
