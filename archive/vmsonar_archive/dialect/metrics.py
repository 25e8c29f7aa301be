"""The one table of metric names, labels and units (metrics.tsv), joined with what the records say of their fields.

Naming follows Prometheus' customs (base units, `_total`, `_info`) and OpenTelemetry's semantic conventions.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated

import msgspec

from vmsonar_archive.records import KINDS, Card, SysInfo
from vmsonar_archive.records.fields import (
    Bytes,
    Count,
    Field,
    Microseconds,
    Milliseconds,
    Row,
    Seconds,
    about,
    fields_of,
)

Labels = tuple[tuple[str, str], ...]

_NAMED = re.compile(r"([A-Za-z_.0-9]+)(?:\{(.*)\})?")
#: Kinds that only describe the subjects of another.
_DESCRIBES = {"job_info": "job", "container_info": "container", "card": "gpu"}
#: Kinds that are called otherwise in names.
_CALLED = {"sysinfo": "node", "cgroup": "unit"}
#: What a unit of our fields is in base units: the unit's name in Prometheus and in UCUM, and the factor as a fraction.
_BASE: dict[str, tuple[str, str, int, float]] = {
    "bytes": ("bytes", "By", 1, 1),
    "sectors of 512 bytes": ("bytes", "By", 512, 1),
    "seconds": ("seconds", "s", 1, 1),
    "milliseconds": ("seconds", "s", 1, 1e3),
    "microseconds": ("seconds", "s", 1, 1e6),
    "nanoseconds": ("seconds", "s", 1, 1e9),
    "ticks": ("seconds", "s", 1, 0),
    "microjoules": ("joules", "J", 1, 1e6),
    "watts": ("watts", "W", 1, 1),
    "degrees celsius": ("celsius", "Cel", 1, 1),
    "percent": ("ratio", "1", 1, 100),
    "megahertz": ("hertz", "Hz", 1_000_000, 1),
    "megabits per second": ("bytes_per_second", "By/s", 125_000, 1),
    "kilobytes per second": ("bytes_per_second", "By/s", 1000, 1),
}
_PLAIN = ("", "1", 1, 1.0)


class ViewRow(Row, kw_only=True):
    """The sample that a scrape shows, and what of it is not shown."""

    sample_time: Annotated[Microseconds | None, about("when the newest sample was taken, since 1970")] = None
    interval: Annotated[Milliseconds | None, about("time between two samples, as configured")] = None
    boot_time: Annotated[Microseconds | None, about("when the kernel started, since 1970")] = None
    jobs: Annotated[Count | None, about("jobs that run, shown or not")] = None
    jobs_not_shown: Annotated[Count | None, about("jobs that have no series of their own")] = None
    containers_not_shown: Annotated[Count | None, about("containers that have no series of their own")] = None
    units_not_shown: Annotated[Count | None, about("units (services, batch jobs, …) without series")] = None
    interfaces_not_shown: Annotated[Count | None, about("network interfaces without series")] = None
    disks_not_shown: Annotated[Count | None, about("disks without series")] = None
    shares_not_shown: Annotated[Count | None, about("network file systems without series")] = None
    filesystems_not_shown: Annotated[Count | None, about("file systems without series")] = None


class ServerRow(Row, kw_only=True):
    """What a fleet's server says of itself; nothing of it is recorded."""

    requests: Annotated[Count | None, about("requests answered, by `path` and `code`")] = None
    denied: Annotated[Count | None, about("requests denied")] = None
    answering: Annotated[Seconds | None, about("time spent on answers")] = None
    answers_within: Annotated[Count | None, about("answers made within that time, by `within_seconds`")] = (
        None
    )
    archives: Annotated[Count | None, about("archives with answers")] = None
    days_waiting: Annotated[Count | None, about("days of archives that wait to be prepared")] = None
    days_failed: Annotated[Count | None, about("days of archives that cannot be prepared")] = None
    uploads: Annotated[Count | None, about("bundles acknowledged")] = None
    uploads_refused: Annotated[Count | None, about("bundles set aside")] = None
    uploaded: Annotated[Bytes | None, about("bytes of acknowledged bundles")] = None


_SERVER = "server"
#: The kinds of the table, each with its Struct, whose fields it names.
STRUCTS: dict[str, type[msgspec.Struct]] = {
    **KINDS, "sysinfo": SysInfo, "card": Card, "view": ViewRow, _SERVER: ServerRow,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table: a field that has samples, or becomes a label."""

    #: The kind of the subjects it is about.
    kind: str
    #: The kind whose rows have the field: another where that only describes the subjects.
    source: str
    field: str
    role: str
    name: str
    labels: Labels
    convention: str
    attributes: Labels
    help: str
    #: In base units: names for Prometheus and OpenTelemetry, and by what the field is multiplied and divided.
    unit: str
    ucum: str
    times: int
    #: 0 stands for ticks per second.
    per: float

    @property
    def is_counter(self) -> bool:
        return self.role == "counter"

    def value(self, raw: float, ticks_per_second: int) -> float:
        """The field's number in the base unit; whole numbers stay whole, as long as they fit 64 bits."""
        per = self.per or ticks_per_second
        value = raw * self.times if per == 1 else raw * self.times / per
        return value if -(2**63) <= value < 2**63 else float(value)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A field that is no metric, and why."""

    kind: str
    #: `*` for the whole kind.
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Table:
    """What the lines say, in their order."""

    #: Those with samples.
    metrics: tuple[Metric, ...]
    #: The labels of all series of a kind, and those of its `_info` series besides.
    labels: dict[str, tuple[Metric, ...]]
    infos: dict[str, tuple[Metric, ...]]
    left_out: tuple[LeftOut, ...]
    #: What is not of a machine: the server's own.
    server: tuple[Metric, ...]

    def by_name(self, kinds: tuple[str, ...] = ()) -> dict[str, list[Metric]]:
        """The metrics under each name for Prometheus."""
        named: dict[str, list[Metric]] = {}
        for metric in self.metrics:
            if not kinds or metric.kind in kinds:
                named.setdefault(metric.name, []).append(metric)
        return named


def info_name(kind: str) -> str:
    """The name of the series that describes a kind's subjects; its value is always 1."""
    return f"vmsonar_{_CALLED.get(kind, kind)}_info"


def info_help(kind: str) -> str:
    """What that series says."""
    return f"describes each {_CALLED.get(kind, kind)}"


@cache
def table() -> Table:
    """The table, read once."""
    metrics: list[Metric] = []
    labels: dict[str, tuple[Metric, ...]] = {}
    infos: dict[str, tuple[Metric, ...]] = {}
    left_out: list[LeftOut] = []
    server: list[Metric] = []
    text = files(__package__).joinpath("metrics.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        kind, field, role, name, *convention = line.split("\t")
        if role == "-":
            left_out.append(LeftOut(kind, field, name))
            continue
        metric = _metric(kind, field, role, name, "".join(convention))
        if kind == _SERVER:
            server.append(metric)
        elif role in ("label", "info"):
            of = labels if role == "label" else infos
            of[metric.kind] = (*of.get(metric.kind, ()), metric)
        else:
            metrics.append(metric)
    return Table(tuple(metrics), labels, infos, tuple(left_out), tuple(server))


def _metric(source: str, name: str, role: str, named: str, convention: str) -> Metric:
    field = _fields(source)[name]
    kind = _DESCRIBES.get(source, source)
    prometheus, labels = _parsed(named)
    unit, ucum, times, per = _BASE.get("nanoseconds" if role == "start" else field.unit, _PLAIN)
    theirs, attributes = _parsed(convention or _derived(kind, role, prometheus, unit))
    attributes = attributes if convention else attributes + tuple((f"vmsonar.{k}", v) for k, v in labels)
    return Metric(
        kind, source, name, role, prometheus, labels, theirs, attributes, field.meaning, unit, ucum, times, per
    )  # fmt: skip


@cache
def _fields(kind: str) -> dict[str, Field]:
    return {field.name: field for field in fields_of(STRUCTS[kind])}


def _parsed(text: str) -> tuple[str, Labels]:
    """A name, and the labels in its braces."""
    match = _NAMED.fullmatch(text)
    if match is None:
        raise ValueError(f"metrics.tsv: {text!r} is not a name with labels")
    pairs = (pair.partition("=") for pair in (match[2] or "").split(",") if pair)
    return match[1], tuple((key, value) for key, _, value in pairs)


def _derived(kind: str, role: str, name: str, unit: str) -> str:
    """`vmsonar_disk_discards_total` as `vmsonar.disk.discards`."""
    if role in ("label", "info"):
        return f"vmsonar.{_CALLED.get(kind, kind)}.{name}"
    bare = name.removeprefix("vmsonar_").removesuffix("_total").removesuffix(f"_{unit}")
    head, _, rest = bare.partition("_")
    return f"vmsonar.{head}.{rest}" if rest else f"vmsonar.{head}"
