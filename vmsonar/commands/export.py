"""`vmsonar export`: other tools' layouts. `vmsonar derive`: the Parquet tables of finished days, after midnight."""

import os
import shlex
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.rights import callers, published, work_as_owner, write_as_owner
from vmsonar_archive.write.outputs import guard

from vmsonar.commands.options import (
    ArchiveOption,
    ConfigOption,
    ForceOption,
    argument,
    flag,
    option,
    seconds_of,
)
from vmsonar.commands.output import print_json, say, tell_findings, writing_to
from vmsonar.config.file import archive_in_question, load_config
from vmsonar.config.quantities import show_size
from vmsonar.host.clock import Clock

if TYPE_CHECKING:
    from vmsonar_inspect.tables.where import Origin


def export_command(
    paths: Annotated[list[str], argument("PATH…", "Archives, bundles, folders of them, lakes.")],
    to: Annotated[
        Literal["sonar", "parquet", "csv", "openmetrics", "otlp-json"],
        typer.Option("--to", help="The layout.", show_default=False),
    ],
    output: Annotated[str, option("DIR", "A folder; for parquet also s3://bucket/prefix.", "-o", "--output")],
    step: Annotated[
        str, option("1min", "For openmetrics, otlp-json: the last sample of each; 0s means every sample.")
    ] = "0s",
    places: Annotated[
        int | None,
        option("N", "As many jobs have series at a time. [default: metrics.places]", min=0, max=10_000),
    ] = None,
    cluster: Annotated[str, option("NAME", "Name of the cluster in Sonar's records.")] = "vmsonar",
    tables: Annotated[str | None, option("NAMES", "Tables and views for csv, with commas between.")] = None,
    force: ForceOption = False,
    json: Annotated[bool, flag("--json", "Print what was written as JSON.")] = False,
) -> int:
    """Writes a Parquet lake, CSV files, the tree that Sonar's analysers read, or metrics with their times.

    Example: vmsonar export bundles/ --to parquet -o lake/
    """
    seconds = seconds_of(step, "--step")
    is_local = not output.startswith("s3://")
    if places is None and to in ("openmetrics", "otlp-json"):
        places = load_config(None).metrics.places
    if is_local:
        guard(Path(output), paths)
    work_as_owner(paths, output=True)
    if is_local and to == "parquet":
        _refuse_lake_out_of_reach(Path(output))
    with (
        writing_to(output),
        published(Path(output)) if is_local else nullcontext(output) as place,
        tempfile.TemporaryDirectory(prefix="vmsonar-") as scratch,
    ):
        if to == "parquet":
            told, findings = _parquet(paths, str(place), Path(scratch))
        elif to == "csv":
            told, findings = _csv(paths, Path(place), tables, force)
        elif places is not None and to != "sonar":
            told, findings = _history(paths, to, Path(place), seconds, places, Path(scratch), force)
        else:
            told, findings = _sonar(paths, Path(place), cluster, Path(scratch), force)
    if json:
        print_json(told)
    else:
        say(f"written to {output}: {', '.join(f'{name} {count}' for name, count in told.items())}")
    return tell_findings(findings)


def _refuse_lake_out_of_reach(lake: Path) -> None:
    """What a lake holds already is read with the archive owner's rights as well, or not at all."""
    with callers():
        is_filled = lake.is_dir() and any(lake.iterdir())
    if is_filled and not os.access(lake, os.R_OK | os.W_OK | os.X_OK):
        raise VmsonarError(
            f"{lake} is a lake that the archive's owner may not write: make a bundle first, and export that"
        )


def _parquet(paths: list[str], output: str, scratch: Path) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_inspect.export.lake import export_lake
    from vmsonar_inspect.tables.stores import lake_at
    from vmsonar_inspect.tables.where import find_origins

    done = export_lake(find_origins(paths, scratch), lake_at(output))
    return {"days": done.units, "files": done.files, "bytes": done.bytes}, done.findings


def _csv(
    paths: list[str], output: Path, names: str | None, force: bool
) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_archive.parquet.schema import TABLES
    from vmsonar_inspect.export.csv import export_csv
    from vmsonar_inspect.tables.database import open_tables
    from vmsonar_inspect.tables.views import VIEWS

    wanted = names.split(",") if names else list(TABLES)
    unknown = [name for name in wanted if name not in (*TABLES, *VIEWS)]
    if unknown:
        raise UsageError(f"no table or view {unknown[0]}: vmsonar sql --tables lists them")
    with open_tables(paths) as tables:
        written: dict[str, Any] = dict(export_csv(tables, wanted, output, force=force))
        return written, tables.findings


def _sonar(
    paths: list[str], output: Path, cluster: str, scratch: Path, force: bool
) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_inspect.export.sonar_tree import export_sonar

    origins = _with_records(paths, scratch, "Sonar's tree is")
    tree, findings = export_sonar(origins, output, cluster, force=force)
    return {"lines": tree.lines}, findings


def _history(
    paths: list[str], to: str, output: Path, step: float, places: int, scratch: Path, force: bool
) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_inspect.export.history import export_history

    origins = _with_records(paths, scratch, "they are")
    counts, findings = export_history(origins, output, to, step, places, now=Clock().now(), force=force)
    return dict(counts), findings


def _with_records(paths: list[str], scratch: Path, what: str) -> "list[Origin]":
    from vmsonar_inspect.tables.where import find_origins

    origins = [origin for origin in find_origins(paths, scratch) if not origin.is_lake]
    if not origins:
        raise UsageError(f"{what} made from archives and bundles, not from lakes: give one of these")
    return origins


def derive_command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    json: Annotated[bool, flag("--json", "Print what was made as JSON.")] = False,
) -> int:
    """Makes the Parquet tables of every finished day that has none; the recorder may go on meanwhile.

    Example: vmsonar derive --archive /var/lib/vmsonar
    """
    from vmsonar_archive.parquet.derive import derive_due
    from vmsonar_archive.parquet.schema import arrow

    root = archive_in_question(archive, config)
    if root.is_file():
        raise UsageError(f"{root} is not the folder of an archive: vmsonar export takes bundles")
    write_as_owner(root)
    os.nice(19)
    # One thread: the machine has other work to do.
    arrow().set_cpu_count(1)
    made: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for day, derived in derive_due(root):
        size = sum(path.stat().st_size for path in derived.files.values())
        made.append({"day": day.isoformat(), "rows": derived.rows, "bytes": size, "bad": derived.bad})
        if not json:
            print(f"{day}: {made[-1]['rows']} rows, {show_size(size)}")
        if derived.bad:
            said = f"{derived.bad} rows or records that no table can hold; the segments still have them"
            findings.append(Finding.of(Code.BAD_RECORD, f"{root}/{day:%Y/%m/%d}", said))
    if json:
        print_json(made)
    elif made:
        size = sum(one["bytes"] for one in made)
        days = f"{len(made)} day{'' if len(made) == 1 else 's'}"
        where = f"tables of {days}, {show_size(size)}: {root}"
        say(f"{where} (next: vmsonar inspect {shlex.quote(str(root))})")
    else:
        print("every finished day has its tables")
    return tell_findings(findings)
