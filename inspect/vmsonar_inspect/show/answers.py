"""The answers of every view as data: the same rows for tables, JSON and CSV."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from msgspec.structs import asdict
from vmsonar_archive.records.fields import about, fields_of
from vmsonar_archive.system.moments import covered_words, span_words
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import model, units
from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.network import LinkUse, ShareUse
from vmsonar_inspect.facts.queries import grouped
from vmsonar_inspect.facts.unit_use import UnitUse
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened
from vmsonar_inspect.show.order import arranged
from vmsonar_inspect.tables.database import Tables, open_tables
from vmsonar_inspect.tables.results import write_csv
from vmsonar_inspect.tables.where import TimeFrame

#: Steps of the timeline.
_STEPS = 48


class Summary(model.AnswerPart):
    """One machine on the first screen."""

    machine: model.Machine
    coverage: model.Coverage
    use: model.NodeUse
    energy: Annotated[model.EnergyUse, model.ENERGY]
    jobs: list[model.JobUse]
    containers: list[model.ContainerUse]
    gpus: list[model.GpuUse]
    wrong: Annotated[list[model.Happening], about("events that mean trouble")]
    ends: Annotated[
        list[model.MachineEnd], about("of each boot; the last may be just where the record stops")
    ]
    filesystems: Annotated[list[model.FilesystemUse], about("those that can be written")]
    shares: Annotated[list[ShareUse], about("network file systems")]
    gaps: list[model.Gap]
    advice: list[model.Advice]
    verdicts: Annotated[
        list[model.Verdict], about("of the machine and its jobs, one for each cause, the costliest first")
    ]


class FleetRow(model.AnswerPart):
    """One machine among many."""

    hostname: Annotated[str | None, model.TEXT, titled("machine")]
    archive: Annotated[str, model.ARCHIVE]
    source: Annotated[str, about("path of the archive or bundle")]
    instance_type: Annotated[str | None, model.TEXT, titled("size", missing="")]
    first: Annotated[datetime | None, model.TIME, titled("from")]
    last: Annotated[datetime | None, model.TIME]
    span_seconds: Annotated[float, model.SECONDS, titled("for")]
    coverage: Annotated[float | None, model.SHARE, titled("seen")]
    cpus: Annotated[int | None, model.COUNT]
    cores: Annotated[model.Use, model.CORES, titled("cores")]
    memory_total_bytes: Annotated[int | None, model.BYTES]
    memory_bytes: Annotated[model.Use, model.BYTES, titled("memory")]
    gpus: Annotated[int, model.COUNT]
    gpu_util: Annotated[model.Use, model.PERCENT, titled("GPU", only_with="gpus")]
    used_share: Annotated[
        float | None, model.SHARE, titled("used"), about("mean of cores or GPUs, the larger")
    ]
    jobs: Annotated[int, model.COUNT, titled("jobs")]
    problems: Annotated[int, model.COUNT]
    verdicts: Annotated[list[str], about("names of the rules, of the machine and of its jobs")]
    size_p95: Annotated[model.Size | None, titled("would do")]
    size_is_lower_bound: Annotated[bool, about("the machine was full, or more was used than is known")] = (
        False
    )
    machine_id: str | None = None
    instance_id: str | None = None
    verdict_words: Annotated[list[str], model.TEXT, titled("verdicts"), about("their titles, each once")] = (
        msgspec.field(default_factory=list)
    )


class Document(model.AnswerPart):
    """What --json prints."""

    answer: Annotated[int, about("version of these answers")]
    view: Annotated[str, about("machines for a summary of many, job for --job")]
    since: datetime | None
    until: datetime | None
    rows: list[Any]
    nothing: Annotated[
        str | None, about("why there are no rows, where the filters left none; the exit code is then 1")
    ] = None


ROW_TYPES: dict[str, type] = {
    "summary": FleetRow,
    "jobs": model.JobUse,
    "containers": model.ContainerUse,
    "units": UnitUse,
    "gpus": model.GpuUse,
    "shares": ShareUse,
    "links": LinkUse,
    "users": model.GroupUse,
    "sessions": model.GroupUse,
    "programs": model.GroupUse,
    "timeline": model.Moment,
    "events": model.Happening,
    "advice": model.Verdict,
    "gaps": model.Gap,
}


def rows_of(inspection: Inspection, view: str, zone: tzinfo, job: str | None = None) -> list[Any]:
    """The rows of a view, of all machines; events also of one job."""
    archives = list(inspection.sources)
    ways: dict[str, Callable[[], Sequence[Any]]] = {
        "jobs": lambda: inspection.jobs,
        "containers": lambda: inspection.containers,
        "units": lambda: inspection.units,
        "gpus": lambda: inspection.gpus,
        "shares": lambda: inspection.shares,
        "links": lambda: inspection.links,
        "users": lambda: inspection.users(zone),
        "sessions": lambda: inspection.sessions(zone),
        "programs": lambda: inspection.programs(zone),
        "timeline": lambda: [at for archive in archives for at in inspection.timeline(archive, _STEPS)],
        "events": lambda: inspection.chosen_events(job),
        "advice": lambda: [advice for archive in archives for advice in inspection.advice(archive)],
        "gaps": lambda: [gap for _, gap in inspection.gaps],
    }
    return list(ways[view]())


def document(inspection: Inspection, view: str, rows: Sequence[Any], nothing: str | None = None) -> Document:
    """What --json prints."""
    frame = inspection.settings.frame
    since, until = (None if time is None else time.astimezone(UTC) for time in (frame.since, frame.until))
    return Document(
        answer=model.ANSWER, view=view, since=since, until=until, rows=list(rows), nothing=nothing
    )


def json_rows(
    inspection: Inspection, view: str, zone: tzinfo, sort: str | None, top: int | None, job: str | None = None
) -> tuple[str, list[Any]]:
    """The rows of --json, and the name of their view."""
    if view != "summary":
        return view, arranged(rows_of(inspection, view, zone, job), sort, top)
    if len(inspection.sources) > 1:
        return "machines", fleet_rows(inspection)[:top]
    return view, [summary_of(inspection, archive, top) for archive in inspection.sources]


def csv_rows(
    inspection: Inspection, view: str, zone: tzinfo, sort: str | None, top: int | None, job: str | None = None
) -> list[Any]:
    """What --csv lists: machines for the summary, verdicts for the advice."""
    if view == "summary":
        return fleet_rows(inspection)[:top]
    if view == "advice":
        return [verdict for advice in rows_of(inspection, view, zone) for verdict in advice.verdicts][:top]
    return arranged(rows_of(inspection, view, zone, job), sort, top)


def fleet_rows(inspection: Inspection) -> list[FleetRow]:
    """Every machine, least used first, unknown last."""
    rows = [_fleet_row(inspection, archive) for archive in inspection.sources]
    return sorted(rows, key=lambda row: (row.used_share is None, row.used_share or 0.0, row.hostname or ""))


def by_machine(rows: Sequence[FleetRow]) -> list[list[FleetRow]]:
    """The archives of each machine, the latest first; clones of one image differ in their instance."""
    latest = sorted(rows, key=lambda row: (row.last is not None, row.last), reverse=True)
    return [*grouped(latest, _machine).values()]


def _machine(row: FleetRow) -> tuple[str | None, ...]:
    return (row.machine_id, row.instance_id) if row.machine_id or row.instance_id else (row.archive,)


def names_of(rows: Sequence[FleetRow], zone: tzinfo) -> dict[str, str]:
    """What each archive is called: by its host, of several archives of one host also by when they began."""
    hosts = {row.archive: plain(row.hostname or row.archive[:8]) for row in rows}
    several = {host for host, count in Counter(hosts.values()).items() if count > 1}
    return {
        row.archive: f"{host} {units.short_clock(row.first, zone)}" if host in several else host
        for row in rows
        for host in (hosts[row.archive],)
    }


def summary_of(inspection: Inspection, archive: str, top: int | None = None) -> Summary:
    """The first screen of one machine as data."""
    return Summary(
        machine=inspection.machines[archive],
        coverage=inspection.coverage[archive],
        use=inspection.node_use[archive],
        energy=inspection.splits[archive].whole(),
        jobs=[job for job in inspection.jobs if job.archive == archive][:top],
        containers=[container for container in inspection.containers if container.archive == archive][:top],
        gpus=[gpu for gpu in inspection.gpus if gpu.archive == archive],
        wrong=inspection.wrong(archive),
        ends=inspection.machine_ends.get(archive, []),
        filesystems=inspection.filesystems.get(archive, []),
        shares=[share for share in inspection.shares if share.archive == archive],
        gaps=[gap for owner, gap in inspection.gaps if owner in (archive, "")],
        advice=inspection.advice(archive),
        verdicts=inspection.verdicts(archive),
    )


def _fleet_row(inspection: Inspection, archive: str) -> FleetRow:
    """One machine among many; used is the largest share of what it had that was used on average."""
    machine, use = inspection.machines[archive], inspection.node_use[archive]
    advice, verdicts = inspection.advice(archive)[0], inspection.verdicts(archive)
    shares = (ratio(use.cores.mean, use.cpus), ratio(use.gpu_util.mean, 100))
    told = asdict(machine) | asdict(inspection.coverage[archive]) | asdict(use)
    same = {name: told[name] for name in FleetRow.__struct_fields__ if name in told}
    more = {
        "cpus": use.cpus or machine.cpus,
        "memory_total_bytes": use.memory_total_bytes or machine.memory_bytes,
        "used_share": max((share for share in shares if share is not None), default=None),
        "jobs": inspection.job_counts.get(archive, 0),
        "problems": sum(verdict.severity is model.Severity.PROBLEM for verdict in verdicts),
        "verdicts": [verdict.rule for verdict in verdicts],
        "verdict_words": list(dict.fromkeys(verdict.title for verdict in verdicts)),
        "size_p95": advice.size_p95,
        "size_is_lower_bound": advice.size_is_lower_bound,
    }
    return FleetRow(**(same | more))


def to_csv(sink: IO[str], rows: Sequence[Any], kind: type) -> None:
    """Writes the rows as CSV with one column per figure."""
    names = flat_names(kind)
    write_csv(sink, names, ([flat.get(name) for name in names] for flat in map(_flat, rows)))


_NESTED = (model.Use, model.Energy, model.Size, model.Ending)


def flat_names(kind: type, prefix: str = "") -> list[str]:
    """The columns of CSV, one per figure."""
    names = []
    for field in fields_of(kind):
        name = f"{prefix}{field.name}"
        names += flat_names(field.type, f"{name}_") if field.type in _NESTED else [name]
    return names


def _flat(row: Any, prefix: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in asdict(row).items():
        nested = isinstance(value, _NESTED)
        cells |= _flat(value, f"{prefix}{name}_") if nested else {f"{prefix}{name}": value}
    return cells


_JOB_VIEWS = ("summary", "jobs", "users", "sessions", "programs", "advice")
_NAMED = 5


def why_nothing(inspection: Inspection, view: str, paths: Sequence[Path | str]) -> str | None:
    """Why the filters left a view empty; None when rows are left, or there are no filters."""
    wish = inspection.settings
    span = span_words(wish.frame.since, wish.frame.until)
    if not any(coverage.samples for coverage in inspection.coverage.values()):
        return None if wish.frame.is_whole else f"no samples {span}: {_there(paths)}"
    asked = asked_for(wish)
    if asked and view in _JOB_VIEWS and not inspection.jobs:
        return f"no jobs{asked} {span}".rstrip() + f": {_there(paths)}"
    if wish.user is not None and view == "containers" and not inspection.containers:
        return f"no containers of user {wish.user} {span}".rstrip() + f": {_there(paths)}"
    if wish.kinds and view == "events" and not inspection.chosen_events():
        return f"no events of kind {', '.join(sorted(wish.kinds))} {span}".rstrip() + f": {_there(paths)}"
    return None


def why_no_samples(tables: Tables, frame: TimeFrame, paths: Sequence[Path | str]) -> str | None:
    """Why tables that are cut to a time are empty; None when they are not."""
    if frame.is_whole or tables.sql("SELECT 1 FROM samples LIMIT 1").fetchone() is not None:
        return None
    return f"no samples {span_words(frame.since, frame.until)}: {covered_words(*covered(paths))}"


def covered(paths: Sequence[Path | str]) -> tuple[datetime | None, datetime | None]:
    """The times of the first and the last sample."""
    with open_tables(paths) as whole:
        times = whole.sql("SELECT MIN(time), MAX(time) FROM samples").fetchone()
    first, last = (None if time is None else time.replace(tzinfo=UTC) for time in times)
    return first, last


def asked_for(wish: InspectionSettings) -> str:
    """The filters on jobs, in words; nothing where there are none."""
    asked = f" of user {wish.user}" if wish.user is not None else ""
    asked += f" whose command matches {wish.command.pattern}" if wish.command is not None else ""
    runtime = units.duration(wish.min_runtime)
    return asked + (f" that ran for {runtime} or longer" if wish.min_runtime is not None else "")


def _there(paths: Sequence[Path | str]) -> str:
    with opened(paths, InspectionSettings(), deep=False, quiet=True) as whole:
        covered = list(whole.coverage.values())
        first = min((each.first for each in covered if each.first is not None), default=None)
        last = max((each.last for each in covered if each.last is not None), default=None)
        jobs = Counter(job.user or "unknown" for job in whole.jobs)
    if not jobs:
        return covered_words(first, last)
    names = ", ".join(user for user, _ in jobs.most_common(_NAMED)) + (", …" if len(jobs) > _NAMED else "")
    return f"{covered_words(first, last)} with {units.plural(jobs.total(), 'job')} of {names}"
