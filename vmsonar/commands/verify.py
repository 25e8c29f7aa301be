"""`vmsonar verify`: is it whole and unaltered?"""

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.bundle.signature import Trust, read_trust
from vmsonar_archive.bundle.together import missing_between, span_of
from vmsonar_archive.errors import Exit, UsageError
from vmsonar_archive.findings import Code, Report, Severity
from vmsonar_archive.verify import Depth
from vmsonar_archive.verify_path import size_at, verify_path, verify_paths

from vmsonar.commands.output import print_findings, print_json, print_table, progress_bar

#: What a bundle can lack that is whole: that it comes from where it should.
_TRUST = {Code.UNSIGNED, Code.UNTRUSTED_SIGNER, Code.HEAD_DIFFERS}
_HASH = re.compile(r"[0-9a-f]{64}")


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="Archive folders and bundles.", show_default=False, readable=False
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Structure, sizes and journal only.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also every record against the schema.")] = False,
    head: Annotated[
        str | None, typer.Option(help="A journal head that left the machine earlier.", metavar="HASH")
    ] = None,
    allowed_signers: Annotated[
        Path | None,
        typer.Option(
            help="Demand a signature by a key in this file (ssh-keygen(1)).", metavar="FILE", readable=False
        ),
    ] = None,
    identity: Annotated[
        str | None, typer.Option(help="The name in that file whose key it must be.", metavar="NAME")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> int:
    """Says whether archives and bundles are whole and unaltered: exit 0 if they are, 1 if not.

    Example: vmsonar verify /var/lib/vmsonar
    """
    if quick and deep:
        raise UsageError("--quick and --deep exclude each other: give one of them")
    depth = Depth.QUICK if quick else Depth.DEEP if deep else Depth.FULL
    if (allowed_signers is None) != (identity is None):
        raise UsageError("--allowed-signers and --identity belong together: give both")
    if head is not None and not _HASH.fullmatch(head):
        raise UsageError(
            f"--head: {head!r} is not a journal head: give the 64 hex digits that status printed"
        )
    trust = read_trust(allowed_signers, identity) if allowed_signers and identity else None
    reports = _verify_all(paths, depth, head, trust)
    if json:
        print_json(next(iter(reports.values())) if len(reports) == 1 else reports)
    else:
        _show(reports)
    return Exit.OK if all(report.ok for report in reports.values()) else Exit.NO


def _verify_all(paths: list[Path], depth: Depth, head: str | None, trust: Trust | None) -> dict[str, Report]:
    """One path uses both cores by itself; many are looked at side by side."""
    sizes = [size_at(path) for path in paths]
    title = f"verifying {paths[0]}" if len(paths) == 1 else f"verifying {len(paths)} archives"
    with progress_bar(title, sum(sizes)) as advance:
        if len(paths) == 1:
            return {str(paths[0]): verify_path(paths[0], depth, head, advance, trust)}
        reports: dict[str, Report] = {}
        processes = min(len(paths), os.cpu_count() or 1)
        for path, size, report in zip(
            paths, sizes, verify_paths(paths, depth, head, trust, processes), strict=True
        ):
            reports[str(path)] = report
            advance(size)
    spans = [span for path in paths if (span := span_of(path)) is not None]
    for name, finding in missing_between(spans).items():
        reports[name].add(finding)
    return reports


def _verdict(report: Report) -> str:
    """One word or two: damage is something else than a signature or a head that is not the demanded one."""
    errors = {finding.code for finding in report.findings if finding.severity is Severity.ERROR}
    if not errors:
        return "whole"
    return "NOT TRUSTED" if errors <= _TRUST else "DAMAGED"


def _show(reports: dict[str, Report]) -> None:
    for path, report in reports.items():
        print_findings(report.findings, path)
    rows = [
        (
            path,
            _verdict(report),
            str(report.samples),
            str(report.files),
            str(sum(finding.severity is Severity.ERROR for finding in report.findings)),
            f"{report.first:%Y-%m-%d %H:%M:%S}" if report.first else "\N{EN DASH}",
            f"{report.last:%Y-%m-%d %H:%M:%S}" if report.last else "\N{EN DASH}",
        )
        for path, report in reports.items()
    ]
    print_table(("archive", "is", "samples", "files", "errors", "first (UTC)", "last (UTC)"), rows)
    for path, report in reports.items():
        if report.head:
            print(f"journal head of {path}: {report.head}")
