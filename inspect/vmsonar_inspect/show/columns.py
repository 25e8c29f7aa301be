"""Which fields of the model each view shows, and how early a column leaves when space is short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Any

import msgspec

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
    Size,
)
from vmsonar_inspect.show.answers import FleetRow

Write = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; the lower its rank, the longer it stays."""

    title: str
    write: Write
    rank: int
    right: bool = True
    widest: int = 60
    least: int = 8
    #: Left out when every cell is unknown.
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Fields that share a column: `cores.p95`, `name|container_id` (the first known), `a / b` or `a of b` (both)."""

    names: str
    rank: int
    title: str | None = None
    widest: int = 60
    least: int = 8
    optional: bool = False
    #: Times to the minute, without the year.
    brief: bool = False
    #: Replaces what the unit would write.
    write: Write | None = None


_MACHINE = Shown("hostname", 1, widest=24)


def _job_id(job: JobUse) -> str:
    return shown_field(JobUse, "job").write(job.job) if job.is_one_job else "no group"


_JOBS = (
    Shown("job", 0, widest=16, write=_job_id),
    Shown("user", 2, widest=16),
    Shown("program", 3, widest=20),
    Shown("started|first", 10, brief=True),
    Shown("runtime_seconds", 4),
    Shown("cpu_seconds", 1),
    Shown("cores.median", 11),
    Shown("cores.p95", 5),
    Shown("cores.peak", 12),
    Shown("memory_bytes.median", 14),
    Shown("memory_bytes.peak", 6),
    Shown("gpu_seconds", 7),
    Shown("gpu_util.p95", 13),
    Shown("read_bytes / write_bytes", 15),
    Shown("energy", 16),
    Shown("container", 17, widest=20),
    Shown("ended", 18, write=lambda job: "ended" if job.ended else "running"),
    Shown("command", 8, least=12),
)

_CONTAINERS = (
    Shown("name|container_id", 0, widest=28),
    Shown("user", 6, widest=16),
    Shown("image", 9, widest=36),
    Shown("runtime_seconds", 4),
    Shown("cpu_seconds", 1),
    Shown("cores.p95", 3),
    Shown("quota_cores", 10),
    Shown("throttled_share", 11),
    Shown("memory_bytes.peak", 2),
    Shown("memory_limit_bytes", 5),
    Shown("oom_kills", 7),
    Shown("exit_code", 8),
    Shown("read_bytes / write_bytes", 13),
    Shown("received_bytes / sent_bytes", 14),
    Shown("energy", 15),
    Shown("first", 12, brief=True),
)

_GPUS = (
    Shown("index|gpu", 0),
    Shown("model", 6, widest=28),
    Shown("gpu_util.median", 3),
    Shown("gpu_util.p95", 1),
    Shown("gpu_util.peak", 4),
    Shown("gpu_seconds", 2),
    Shown("memory_bytes.peak", 5),
    Shown("memory_total_bytes", 7),
    Shown("power_watts.mean", 8),
    Shown("energy", 9),
    Shown("temperature.peak", 11, title="hottest"),
    Shown("errors", 10),
    Shown("jobs", 12, widest=30),
    Shown("gpu", 13, widest=44),
)

_GROUPS = (
    Shown("jobs", 3),
    Shown("users", 9),
    Shown("cpu_seconds", 1),
    Shown("gpu_seconds", 4, optional=True),
    Shown("runtime_seconds", 8),
    Shown("memory_median_bytes", 7),
    Shown("memory_p95_bytes", 6),
    Shown("memory_peak_bytes", 2),
    Shown("read_bytes / write_bytes", 10),
    Shown("energy", 5),
    Shown("energy.grams_co2e", 11, title="CO2e"),
    Shown("tags", 12),
)

_WHEN = (
    Shown("cpu_seconds_by_hour", 13, write=lambda group: units.sparkline(group.cpu_seconds_by_hour)),
    Shown("cpu_seconds_by_weekday", 14, write=lambda group: units.sparkline(group.cpu_seconds_by_weekday)),
)

_TIMELINE = (
    Shown("time", 0),
    Shown("cores", 1),
    Shown("cores_peak", 8),
    Shown("memory_bytes", 2),
    Shown("gpu_util", 3, optional=True),
    Shown("disk_read_rate", 4),
    Shown("disk_write_rate", 5),
    Shown("received_rate", 6),
    Shown("sent_rate", 7),
    Shown("pressure_cpu", 9),
    Shown("pressure_memory", 10),
    Shown("pressure_io", 11),
)

_GAPS = (
    Shown("kind", 0),
    Shown("begin", 1),
    Shown("end", 6),
    Shown("seconds", 2),
    Shown("collector", 4, widest=16),
    Shown("reason", 3, widest=24),
    Shown("times", 8),
    Shown("samples_lost", 7),
    Shown("detail", 5, widest=90, least=10),
)

_EVENTS = (
    Shown("time", 0),
    Shown("what", 1, least=20),
    Shown("subject", 2, widest=30),
    Shown("detail", 3, least=10),
)

_PROCESSES = (
    Shown("pid", 0),
    Shown("cpu_seconds", 1),
    Shown("memory_peak_bytes", 2),
    Shown("read_bytes", 4),
    Shown("write_bytes", 5),
    Shown("samples", 6),
    Shown("command", 3, least=12),
)


def size_words(size: Size) -> str:
    """`2 cores, 8 GiB, 1 GPU`."""
    parts = [
        units.plural(size.cores, "core") if size.cores is not None else "",
        f"{size.memory_gib} GiB" if size.memory_gib is not None else "",
        units.plural(size.gpus, "GPU") if size.gpus is not None else "",
    ]
    named = f" ({size.flavour})" if size.flavour else ""
    return ", ".join(part for part in parts if part) + named


_FLEET = (
    Shown("hostname|archive", 0, widest=28),
    Shown("instance_type", 9, widest=20),
    Shown("first", 8, brief=True),
    Shown("span_seconds", 4),
    Shown("coverage", 5),
    Shown("used_share", 1),
    Shown("cores.p95 of cpus", 2),
    Shown("memory_bytes.peak of memory_total_bytes", 3),
    Shown("gpu_util.p95 of gpus", 6),
    Shown("jobs", 11),
    Shown("size_p95", 7, write=lambda row: size_words(row.size_p95) if row.size_p95 else ""),
    Shown("verdicts", 10, least=14, widest=70),
)

_VIEWS: dict[str, tuple[type[msgspec.Struct], tuple[Shown, ...]]] = {
    "jobs": (JobUse, _JOBS),
    "containers": (ContainerUse, _CONTAINERS),
    "gpus": (GpuUse, _GPUS),
    "users": (
        GroupUse,
        (
            Shown("name", 0, title="user", widest=28),
            *(each for each in _GROUPS if each.names not in ("users", "tags")),
        ),
    ),
    "programs": (GroupUse, (Shown("name", 0, title="program", widest=28), *_GROUPS)),
    "hours": (GroupUse, _WHEN),
    "timeline": (Moment, _TIMELINE),
    "gaps": (Gap, _GAPS),
    "events": (Happening, _EVENTS),
    "processes": (ProcessUse, _PROCESSES),
    "machines": (FleetRow, _FLEET),
}


def columns_of(view: str, zone: tzinfo, many: bool = False) -> list[Column]:
    """The columns of a view; rows of many machines say whose they are."""
    kind, shown = _VIEWS[view]
    has_machine = many and view in ("jobs", "containers", "gpus")
    return [_column(kind, each, zone) for each in ((_MACHINE, *shown) if has_machine else shown)]


def _column(kind: type[msgspec.Struct], shown: Shown, zone: tzinfo) -> Column:
    pair = next((sign for sign in (" / ", " of ") if sign in shown.names), None)
    fields = [shown_field(kind, name) for name in shown.names.split(pair or "|")]
    clock = partial(units.short_clock if shown.brief else units.clock, zone=zone)
    title = " / ".join(field.title for field in fields) if pair == " / " else fields[0].title
    return Column(
        title=shown.title or title,
        write=shown.write or (partial(_both, fields, pair) if pair else partial(_first_known, fields, clock)),
        rank=shown.rank,
        right=all(field.is_figure for field in fields),
        widest=shown.widest,
        least=shown.least,
        optional=shown.optional,
    )


def _first_known(fields: Sequence[ShownField], clock: Write, row: Any) -> str:
    field = next((field for field in fields if field.is_known(row)), fields[-1])
    if not field.is_relevant(row):
        return ""
    value = field.value(row)
    text = clock(value) if field.unit == "time" else field.write(value)
    return units.lower_bound(text, field.is_lower_bound(row))


def _both(fields: Sequence[ShownField], sign: str, row: Any) -> str:
    values = [field.value(row) for field in fields]
    if not fields[0].is_relevant(row):
        return ""
    if sign == " / " and values == [None, None]:
        return units.UNKNOWN
    text = sign.join(field.write(value) for field, value in zip(fields, values, strict=True))
    return units.lower_bound(text, any(field.is_lower_bound(row) for field in fields))
