"""`vmsonar verify`: is it whole and unaltered?"""

from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.errors import Exit, UsageError
from vmsonar_archive.findings import Report, Severity
from vmsonar_archive.source import FolderSource
from vmsonar_archive.verify import Depth, verify

from vmsonar.commands.output import print_json, print_table, progress_bar


def command(
    paths: Annotated[list[Path], typer.Argument(help="Archive folders.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Structure, sizes and journal only.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also every record against the schema.")] = False,
    head: Annotated[
        str | None, typer.Option(help="A journal head that left the machine earlier.", metavar="HASH")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> int:
    """Says whether archives are whole and unaltered: exit 0 if they are, 1 if not.

    Example: vmsonar verify /var/lib/vmsonar
    """
    if quick and deep:
        raise UsageError("--quick and --deep exclude each other: give one of them")
    depth = Depth.QUICK if quick else Depth.DEEP if deep else Depth.FULL
    reports = {str(path): _verify(path, depth, head) for path in paths}
    if json:
        print_json(next(iter(reports.values())) if len(reports) == 1 else reports)
    else:
        _show(reports)
    return Exit.OK if all(report.ok for report in reports.values()) else Exit.NO


def _verify(path: Path, depth: Depth, head: str | None) -> Report:
    source = FolderSource(path)
    try:
        with progress_bar(f"verifying {path}", sum(source.sizes().values())) as advance:
            return verify(source, depth, head, advance)
    finally:
        source.close()


def _show(reports: dict[str, Report]) -> None:
    for path, report in reports.items():
        for finding in report.findings:
            where = f"{path}/{finding.path}"
            print(f"{finding.severity.value}: {finding.code.value}: {where}: {finding.detail}")
    rows = [
        (
            path,
            "whole" if report.ok else "DAMAGED",
            str(report.samples),
            str(report.files),
            str(sum(finding.severity is Severity.ERROR for finding in report.findings)),
            f"{report.first:%Y-%m-%d %H:%M:%S}" if report.first else "-",
            f"{report.last:%Y-%m-%d %H:%M:%S}" if report.last else "-",
        )
        for path, report in reports.items()
    ]
    print_table(("archive", "is", "samples", "files", "errors", "first (UTC)", "last (UTC)"), rows)
    for path, report in reports.items():
        print(f"journal head of {path}: {report.head}")
