"""The answers of every view as data: the same rows for tables, JSON and CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.load_events import is_wrong
from vmsonar_inspect.model import (
    ANSWER,
    Answer,
    ContainerUse,
    Coverage,
    Energy,
    EnergyUse,
    Gap,
    GpuUse,
    GroupUse,
    Happening,
    JobUse,
    Machine,
    Moment,
    NodeUse,
    Use,
)
from vmsonar_inspect.model_advice import Advice, Size, Verdict

VIEWS = ("summary", "jobs", "containers", "gpus", "users", "programs", "timeline", "advice", "gaps")
SORTS = ("cpu", "memory", "gpu", "runtime", "start", "read", "write", "energy", "name")
#: Steps of the timeline that are shown unless asked otherwise.
STEPS = 48


class Summary(Answer):
    """One machine on the first screen."""

    machine: Machine
    coverage: Coverage
    use: NodeUse
    energy: EnergyUse
    jobs: list[JobUse]
    containers: list[ContainerUse]
    gpus: list[GpuUse]
    wrong: list[Happening]
    gaps: list[Gap]
    advice: list[Advice]


class FleetRow(Answer):
    """One machine among many."""

    hostname: str | None
    archive: str
    source: str
    instance_type: str | None
    first: datetime | None
    last: datetime | None
    span_seconds: float
    coverage: float | None
    cpus: int | None
    cores: Use
    memory_total_bytes: int | None
    memory_bytes: Use
    gpus: int
    gpu_util: Use
    used_share: float | None
    jobs: int
    problems: int
    verdicts: list[str]
    size_p95: Size | None


class Document(Answer):
    """What --json prints."""

    answer: int
    view: str
    since: datetime | None
    until: datetime | None
    rows: list[Any]


ROW_TYPES: dict[str, type] = {
    "summary": FleetRow,
    "jobs": JobUse,
    "containers": ContainerUse,
    "gpus": GpuUse,
    "users": GroupUse,
    "programs": GroupUse,
    "timeline": Moment,
    "advice": Verdict,
    "gaps": Gap,
}


def rows_of(inspection: Inspection, view: str, zone: tzinfo, steps: int = STEPS) -> list[Any]:
    """The rows of a view, of all machines."""
    archives = list(inspection.sources)
    ways: dict[str, Callable[[], Sequence[Any]]] = {
        "jobs": lambda: inspection.jobs,
        "containers": lambda: inspection.containers,
        "gpus": lambda: inspection.gpus,
        "users": lambda: inspection.users(zone),
        "programs": lambda: inspection.programs(zone),
        "timeline": lambda: [at for archive in archives for at in inspection.timeline(archive, steps)],
        "advice": lambda: [advice for archive in archives for advice in inspection.advice(archive)],
        "gaps": lambda: [gap for _, gap in inspection.gaps],
    }
    return list(ways[view]())


def document(inspection: Inspection, view: str, rows: Sequence[Any]) -> Document:
    """What --json prints."""
    frame = inspection.settings.frame
    return Document(answer=ANSWER, view=view, since=frame.since, until=frame.until, rows=list(rows))


def json_rows(
    inspection: Inspection, view: str, zone: tzinfo, sort: str | None, top: int | None
) -> tuple[str, list[Any]]:
    """What --json lists, and what to call it."""
    if view == "summary" and len(inspection.sources) == 1:
        return view, [summary_of(inspection, archive, top) for archive in inspection.sources]
    if view == "summary":
        return "machines", fleet_rows(inspection)[:top]
    return view, arranged(rows_of(inspection, view, zone), sort, top)


def csv_rows(inspection: Inspection, view: str, zone: tzinfo, sort: str | None, top: int | None) -> list[Any]:
    """What --csv lists: machines for the summary, verdicts for the advice."""
    if view == "summary":
        return fleet_rows(inspection)[:top]
    if view == "advice":
        return [verdict for advice in rows_of(inspection, view, zone) for verdict in advice.verdicts][:top]
    return arranged(rows_of(inspection, view, zone), sort, top)


def fleet_rows(inspection: Inspection) -> list[FleetRow]:
    """Every machine, worst used first."""
    return worst_used_first([fleet_row(inspection, machine) for machine in inspection.machines])


def summary_of(inspection: Inspection, archive: str, top: int | None = None) -> Summary:
    """The first screen of one machine as data."""
    machine = next(machine for machine in inspection.machines if machine.archive == archive)
    return Summary(
        machine=machine,
        coverage=inspection.coverage[archive],
        use=inspection.node_use[archive],
        energy=inspection.energy(archive),
        jobs=[job for job in inspection.jobs if job.archive == archive][:top],
        containers=[box for box in inspection.containers if box.archive == archive][:top],
        gpus=[gpu for gpu in inspection.gpus if gpu.archive == archive],
        wrong=[event for owner, event in inspection.events if owner == archive and is_wrong(event)],
        gaps=[gap for owner, gap in inspection.gaps if owner in (archive, "")],
        advice=inspection.advice(archive),
    )


def fleet_row(inspection: Inspection, machine: Machine) -> FleetRow:
    """One machine among many; used is the largest share of what it had that was used on average."""
    use, coverage = inspection.node_use[machine.archive], inspection.coverage[machine.archive]
    advice = inspection.machine_advice(machine.archive)
    return FleetRow(
        hostname=machine.hostname,
        archive=machine.archive,
        source=machine.source,
        instance_type=machine.instance_type,
        first=coverage.first,
        last=coverage.last,
        span_seconds=coverage.span_seconds,
        coverage=coverage.coverage,
        cpus=use.cpus or machine.cpus,
        cores=use.cores,
        memory_total_bytes=use.memory_total_bytes or machine.memory_bytes,
        memory_bytes=use.memory_bytes,
        gpus=machine.gpus,
        gpu_util=use.gpu_util,
        used_share=_used_share(use),
        jobs=inspection.job_counts.get(machine.archive, 0),
        problems=sum(1 for verdict in advice.verdicts if verdict.severity == "problem"),
        verdicts=[verdict.rule for verdict in advice.verdicts],
        size_p95=advice.size_p95,
    )


def _used_share(use: NodeUse) -> float | None:
    shares = [
        None if use.cores.mean is None or not use.cpus else use.cores.mean / use.cpus,
        None if use.gpu_util.mean is None else use.gpu_util.mean / 100,
    ]
    known = [share for share in shares if share is not None]
    return max(known, default=None)


def worst_used_first(rows: Sequence[FleetRow]) -> list[FleetRow]:
    """Least used first; what nobody knows comes last."""
    return sorted(rows, key=lambda row: (row.used_share is None, row.used_share or 0.0, row.hostname or ""))


def _peak_memory(row: Any) -> float | None:
    use = getattr(row, "memory_bytes", None)
    return use.peak if isinstance(use, Use) else getattr(row, "memory_peak_bytes", None)


def _start(row: Any) -> float:
    first = getattr(row, "started", None) or getattr(row, "first", None)
    return first.timestamp() if first is not None else 0.0


_KEYS: dict[str, Any] = {
    "cpu": lambda row: -(getattr(row, "cpu_seconds", None) or 0.0),
    "memory": lambda row: -(_peak_memory(row) or 0.0),
    "gpu": lambda row: -(getattr(row, "gpu_seconds", None) or 0.0),
    "runtime": lambda row: -(getattr(row, "runtime_seconds", None) or 0.0),
    "start": _start,
    "read": lambda row: -(getattr(row, "read_bytes", None) or 0.0),
    "write": lambda row: -(getattr(row, "write_bytes", None) or 0.0),
    "energy": lambda row: -(row.energy.joules or 0.0) if hasattr(row, "energy") else 0.0,
    "name": lambda row: str(
        getattr(row, "name", None) or getattr(row, "job", None) or getattr(row, "gpu", "")
    ),
}


def arranged(rows: list[Any], sort: str | None, top: int | None) -> list[Any]:
    """Sorted as asked for, and cut."""
    ordered = rows if sort is None else sorted(rows, key=_KEYS[sort])
    return ordered if top is None else ordered[:top]


def to_csv(rows: Sequence[Any], kind: type) -> str:
    """The rows as CSV with one column per figure; no cell begins like a formula."""
    names = list(flat_names(kind))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        flat = _flat(row)
        writer.writerow([_cell(flat.get(name)) for name in names])
    return out.getvalue()


_NESTED = {"Use": Use, "Energy": Energy, "Size": Size}


def flat_names(kind: type, prefix: str = "") -> list[str]:
    """The columns of CSV, one per figure."""
    names = []
    for field in msgspec.structs.fields(kind):
        inner = next((nested for nested in _NESTED.values() if _holds(field.type, nested)), None)
        names += flat_names(inner, f"{prefix}{field.name}_") if inner else [f"{prefix}{field.name}"]
    return names


def _holds(annotation: Any, kind: type) -> bool:
    return annotation is kind or kind in getattr(annotation, "__args__", ())


def _flat(row: Any, prefix: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for field in msgspec.structs.fields(row):
        value = getattr(row, field.name)
        if isinstance(value, tuple(_NESTED.values())):
            cells.update(_flat(value, f"{prefix}{field.name}_"))
        else:
            cells[f"{prefix}{field.name}"] = value
    return cells


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, datetime):
        return msgspec.to_builtins(value, builtin_types=())  # type: ignore[no-any-return]
    if isinstance(value, list):
        value = ";".join(map(str, value))
    elif isinstance(value, dict):
        value = ";".join(f"{name}={figure}" for name, figure in value.items())
    text = str(value).replace("\x00", "")
    # A spreadsheet runs what begins like this.
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
