"""What several days of one thing come to: sums, the largest, means over time; null where days cannot say it.

The interval over midnight belongs to neither day, so sums of more than one day are lower bounds.
"""

import zlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
from vmsonar_inspect.facts.model import ContainerUse, Energy, GpuUse, JobUse, Size, Use
from vmsonar_inspect.facts.queries import total
from vmsonar_inspect.show.answers import FleetRow

from vmsonar.fleet.serve.prepared import LOST, Row, packed

_SUMS: dict[type[Any], tuple[str, ...]] = {
    JobUse: ("observed_seconds", "samples", "memory_byte_seconds", "major_faults", "gpu_seconds", "forks_refused"),
    ContainerUse: ("observed_seconds", "samples", "cpu_seconds", "memory_byte_seconds", "oom_kills", "forks_refused",
                   "read_bytes", "write_bytes", "received_bytes", "sent_bytes", "lives"),
    GpuUse: ("observed_seconds", "samples", "gpu_seconds", "errors"),
    FleetRow: (),
}  # fmt: skip
#: Sums with bounds of their own: a day without them is exact.
_BOUNDED: dict[type[Any], tuple[str, ...]] = {
    JobUse: ("cpu_seconds", "read_bytes", "write_bytes"),
    ContainerUse: (),
}
_LARGEST: dict[type[Any], tuple[str, ...]] = {
    JobUse: (
        "memory_peak_low_bytes",
        "memory_peak_high_bytes",
        "memory_charged_peak_bytes",
        "processes_peak",
    ),
    ContainerUse: ("memory_charged_peak_bytes",),
    FleetRow: ("problems", "gpus", "cpus", "memory_total_bytes"),
}
#: Counts that would count what lived on both days twice.
_UNKNOWN: dict[type[Any], tuple[str, ...]] = {
    JobUse: ("processes_seen", "processes_unseen"),
    ContainerUse: ("cpu_seconds_high",),
}
_FIRST = ("started", "first", "container", "label")
KINDS: dict[str, type[Any]] = {
    "machine": FleetRow, "own_machine": FleetRow, "job": JobUse, "container": ContainerUse, "gpu": GpuUse,
    "own_gpu": GpuUse,
}  # fmt: skip


def combined(rows: list[Row]) -> Row:
    """The row of a thing over its days, from those of each."""
    kind = KINDS[rows[0].kind]
    docs = [msgspec.json.decode(zlib.decompress(row.doc), type=kind) for row in rows]
    last = rows[-1]
    sums = ("cpu", "gpu", "read", "write", "energy", "cost", *LOST, "idle_cpu", "idle_memory", "idle_gpu")
    said: dict[str, Any] = {name: total(getattr(row, name) for row in rows) for name in sums}
    said["memory"] = _largest(rows, "memory")
    said |= {name: any(getattr(row, name) for row in rows) for name in ("damaged", "doubt")}
    said["first"] = _least(rows, "first")
    doc = one_of(docs)
    if isinstance(doc, FleetRow):
        said["share"] = doc.coverage
    return msgspec.structs.replace(last, **said, doc=packed(doc))


def one_of(docs: Sequence[Any]) -> Any:
    """The document over several days, which come in their order."""
    if len(docs) == 1:
        return docs[0]
    kind, last = type(docs[0]), docs[-1]
    said: dict[str, Any] = {name: total(map(attrgetter(name), docs)) for name in _SUMS[kind]}
    for name in _BOUNDED.get(kind, ()):
        said[name] = total(map(attrgetter(name), docs))
        for end in ("low", "high"):
            each = [(getattr(doc, f"{name}_{end}"), getattr(doc, name)) for doc in docs]
            ends = [bound if bound is not None else figure for bound, figure in each]
            said[f"{name}_{end}"] = total(ends) if any(bound is not None for bound, _ in each) else None
        said[f"{name}_high"] = None
    said |= {name: _largest(docs, name) for name in _LARGEST.get(kind, ())}
    said |= dict.fromkeys(_UNKNOWN.get(kind, ()))
    said["first"] = _least(docs, "first") if hasattr(last, "first") else None
    weights = [_weight(doc) for doc in docs]
    for name in kind.__struct_fields__:
        values = [getattr(doc, name) for doc in docs]
        if isinstance(values[0], Use):
            said[name] = _use(values, weights)
        elif isinstance(values[0], Energy):
            said[name] = _energy(values)
        elif name in _FIRST:
            said[name] = next((value for value in values if value is not None), None)
        elif name in ("cpu_is_lower_bound", "io_is_lower_bound"):
            said[name] = True
        elif name in ("gpus", "tags", "jobs", "verdicts", "verdict_words") and isinstance(values[0], list):
            said[name] = list(dict.fromkeys(one for value in values for one in value))
    if kind is FleetRow:
        said |= _machine(docs, weights, said)
    return msgspec.structs.replace(last, **{name: each for name, each in said.items() if hasattr(last, name)})


def _machine(docs: Sequence[FleetRow], weights: list[float], said: dict[str, Any]) -> dict[str, Any]:
    last = docs[-1].last
    span = (last - said["first"]).total_seconds() if last and said["first"] else 0.0
    shares = [(said["cores"].mean, said["cpus"]), (said["gpu_util"].mean, 100)]
    used = [mean / there for mean, there in shares if mean is not None and there]
    sizes = [doc.size_p95 for doc in docs if doc.size_p95 is not None]
    size = (
        Size(**{name: _largest(sizes, name) for name in ("cores", "memory_gib", "gpus")}) if sizes else None
    )
    return {
        "span_seconds": span,
        "coverage": min(1.0, sum(weights) / span) if span else docs[-1].coverage,
        "used_share": max(used, default=None),
        "size_p95": size,
        # Who ran over midnight is counted once a day: the most of a day is what is sure.
        "jobs": max(doc.jobs for doc in docs),
    }


def _weight(doc: Any) -> float:
    if isinstance(doc, FleetRow):
        return (doc.coverage or 0.0) * doc.span_seconds
    return doc.observed_seconds or 0.0


def _use(values: Sequence[Use], weights: Sequence[float]) -> Use:
    known = [
        (value.mean, weight) for value, weight in zip(values, weights, strict=True) if value.mean is not None
    ]
    weight = sum(each for _, each in known)
    mean = sum(value * each for value, each in known) / weight if weight else None
    return Use(mean=mean, peak=_largest(values, "peak"))


def _energy(values: Sequence[Energy]) -> Energy:
    sums = {name: total(getattr(value, name) for value in values) for name in ("joules", "kwh", "grams_co2e")}
    return msgspec.structs.replace(values[-1], **sums)


def _largest(rows: Sequence[Any], name: str) -> Any:
    return max((value for row in rows if (value := getattr(row, name)) is not None), default=None)


def _least(rows: Sequence[Any], name: str) -> Any:
    return min((value for row in rows if (value := getattr(row, name)) is not None), default=None)
