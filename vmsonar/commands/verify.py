"""`vmsonar verify`: is it whole and unaltered? `vmsonar recover`: saves what is readable of what is not."""

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Annotated

from vmsonar_archive.format import layout
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.read.source import open_source
from vmsonar_archive.system.errors import Exit, UsageError
from vmsonar_archive.system.rights import published, work_as_owner
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.bundle import missing_between, range_of
from vmsonar_archive.verify.path import size_at, verify_path, verify_paths
from vmsonar_archive.verify.recover import recover, refuse_filled
from vmsonar_archive.verify.signature import Trust, read_trust
from vmsonar_archive.write.outputs import guard

from vmsonar.commands.options import argument, flag, option
from vmsonar.commands.output import print_findings, print_json, print_table, progress_bar, say

#: What a bundle can lack that is whole: that it comes from where it should.
_TRUST = {Code.UNSIGNED, Code.UNTRUSTED_SIGNER, Code.HEAD_DIFFERS}
_HASH = re.compile(r"[0-9a-f]{64}")


def verify_command(
    paths: Annotated[
        list[str], argument("PATH…", "Archive folders, bundles, and lakes (also s3://bucket/prefix).")
    ],
    quick: Annotated[bool, flag("--quick", "Structure, sizes and journal only.")] = False,
    deep: Annotated[bool, flag("--deep", "Also every record against the schema.")] = False,
    head: Annotated[str | None, option("HASH", "A journal head that left the machine earlier.")] = None,
    allowed_signers: Annotated[
        Path | None, option("FILE", "Demand a signature by a key in this file (ssh-keygen(1)).")
    ] = None,
    identity: Annotated[str | None, option("NAME", "The name in that file whose key it must be.")] = None,
    json: Annotated[bool, flag("--json", "Print the findings as JSON.")] = False,
) -> int:
    """Says whether archives, bundles and lakes are whole and unaltered: exit 0 if they are, 1 if not.

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
    trust = read_trust(allowed_signers, identity) if allowed_signers and identity is not None else None
    work_as_owner(paths)
    lakes = {path: _verify_lake(path, depth, trust) for path in paths if _is_lake(path)}
    others = [Path(path) for path in paths if path not in lakes]
    reports = lakes | (_verify_all(others, depth, head, trust) if others else {})
    if json:
        print_json(next(iter(reports.values())) if len(reports) == 1 else reports)
    else:
        _show(reports)
    return Exit.OK if all(report.ok for report in reports.values()) else Exit.NO


def _is_lake(path: str) -> bool:
    """Only a folder without archive.json is looked into for what a lake has."""
    if path.startswith("s3://"):
        return True
    folder = Path(path)
    if not folder.is_dir() or os.path.lexists(folder / layout.ARCHIVE_FILE):
        return False
    from vmsonar_inspect.tables.where import is_lake

    return is_lake(folder)


def _verify_lake(path: str, depth: Depth, trust: Trust | None) -> Report:
    from vmsonar_inspect.tables.lakes import verify_lake
    from vmsonar_inspect.tables.stores import lake_at

    lake = lake_at(path)
    with progress_bar(f"verifying {path}", sum(max(size, 0) for size in lake.sizes().values())) as progress:
        report = verify_lake(lake, depth is Depth.QUICK, progress)
    if trust is not None:
        report.add(Finding.of(Code.UNSIGNED, "", "is a lake: only a bundle can be signed"))
    return report


def _verify_all(paths: list[Path], depth: Depth, head: str | None, trust: Trust | None) -> dict[str, Report]:
    """One path uses both cores by itself; many are looked at side by side."""
    sizes = [size_at(path) for path in paths]
    title = f"verifying {paths[0]}" if len(paths) == 1 else f"verifying {len(paths)} archives"
    with progress_bar(title, sum(sizes)) as progress:
        if len(paths) == 1:
            return {str(paths[0]): verify_path(paths[0], depth, head, progress, trust)}
        reports: dict[str, Report] = {}
        processes = min(len(paths), os.cpu_count() or 1)
        for path, size, report in zip(
            paths, sizes, verify_paths(paths, depth, head, trust, processes), strict=True
        ):
            reports[str(path)] = report
            progress.advance(size)
    ranges = [covered for path in paths if (covered := range_of(path)) is not None]
    for name, finding in missing_between(ranges).items():
        reports[name].add(finding)
    return reports


def _verdict(report: Report) -> str:
    """One word or two: damage is something else than a signature or a head that is not the demanded one."""
    errors = {finding.code for finding in report.findings if finding.severity is Severity.ERROR}
    if not errors:
        unchecked = any(
            finding.code is Code.UNCHECKED_TABLES and not finding.path for finding in report.findings
        )
        return "NOT CHECKED" if unchecked else "whole"
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
            say(f"journal head of {path}: {report.head}")


def recover_command(
    path: Annotated[Path, argument("PATH", "A damaged archive folder or bundle.")],
    output: Annotated[Path, option("DIR", "Where the new archive goes; must be empty.", "--output", "-o")],
    json: Annotated[bool, flag("--json", "Print what was saved and what not as JSON.")] = False,
) -> int:
    """Writes a new, valid archive with every record that can still be read.

    Example: vmsonar recover /var/lib/vmsonar -o /tmp/saved
    """
    guard(output, [path])
    refuse_filled(output)
    work_as_owner([path], output=True)
    with published(output) as place, closing(open_source(path)) as source:
        result = recover(source, place)
    result.target = str(output)
    code = Exit.OK if result.records else Exit.NO
    if json:
        print_json(result)
        return code
    print_findings(result.findings, str(path), lost=True)
    say(f"{_many(result.records, 'record')} in {_many(result.files, 'file')} saved to {result.target}")
    return code


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
