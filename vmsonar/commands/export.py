"""`vmsonar export`: other tools' layouts."""

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from vmsonar_archive.errors import Exit, UsageError
from vmsonar_archive.findings import Finding, Severity

from vmsonar.commands.output import print_json, tell_findings, writing_to


class Layout(StrEnum):
    """Whose layout is written."""

    sonar = "sonar"
    parquet = "parquet"
    csv = "csv"


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…", help="Archives, bundles, folders of them, lakes.", show_default=False
        ),
    ],
    to: Annotated[Layout, typer.Option("--to", help="The layout.", show_default=False)],
    output: Annotated[
        str,
        typer.Option("-o", "--output", help="A folder; for parquet also s3://bucket/prefix.", metavar="DIR"),
    ],
    cluster: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the cluster in Sonar's records.")
    ] = "vmsonar",
    tables: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Tables and views for csv, with commas between.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> int:
    """Writes a Parquet lake, CSV files, or the tree that Sonar's analysers read.

    Example: vmsonar export bundles/ --to parquet -o lake/
    """
    with writing_to(output), tempfile.TemporaryDirectory(prefix="vmsonar-") as scratch:
        if to is Layout.parquet:
            told, findings = _parquet(paths, output, Path(scratch))
        elif to is Layout.csv:
            told, findings = _csv(paths, Path(output), tables)
        else:
            told, findings = _sonar(paths, Path(output), cluster, Path(scratch))
    if json:
        print_json(told)
    else:
        print(f"written to {output}: {', '.join(f'{name} {count}' for name, count in told.items())}")
    tell_findings(findings)
    return Exit.NO if any(finding.severity is Severity.ERROR for finding in findings) else Exit.OK


def _parquet(paths: list[str], output: str, scratch: Path) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_inspect.export.lake import export_lake
    from vmsonar_inspect.export.target import target_at
    from vmsonar_inspect.origins import find_origins

    done = export_lake(find_origins(paths, scratch), target_at(output))
    return {"days": done.units, "files": done.files, "bytes": done.bytes}, done.findings


def _csv(paths: list[str], output: Path, names: str | None) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_archive.parquet.schema import TABLES
    from vmsonar_inspect.export.csv_files import export_csv
    from vmsonar_inspect.tables import open_tables
    from vmsonar_inspect.views import VIEWS

    wanted = names.split(",") if names else list(TABLES)
    unknown = [name for name in wanted if name not in (*TABLES, *VIEWS)]
    if unknown:
        raise UsageError(f"no table or view {unknown[0]}: vmsonar sql --tables lists them")
    with open_tables(paths) as tables:
        written: dict[str, Any] = dict(export_csv(tables, wanted, output))
        return written, tables.findings


def _sonar(
    paths: list[str], output: Path, cluster: str, scratch: Path
) -> tuple[dict[str, Any], list[Finding]]:
    from vmsonar_inspect.export.sonar_tree import export_sonar
    from vmsonar_inspect.origins import find_origins

    origins = [origin for origin in find_origins(paths, scratch) if not origin.is_lake]
    if not origins:
        raise UsageError("Sonar's tree is made from archives and bundles: give one of these")
    tree, findings = export_sonar(origins, output, cluster)
    return {"lines": tree.lines}, findings
