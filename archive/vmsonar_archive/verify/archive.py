"""Is this archive whole and unaltered? Answers with findings; reads everything as hostile."""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import JournalEntry, Ledger
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.read.source import Source
from vmsonar_archive.system.errors import FormatError, NewerFormat
from vmsonar_archive.system.progress import Progress

if TYPE_CHECKING:
    from vmsonar_archive.verify.content import CheckedFiles

# How often to look again at what a writer changed in the meantime.
_ROUNDS = 5


class Depth(StrEnum):
    """How closely to look."""

    QUICK = "quick"
    FULL = "full"
    DEEP = "deep"


def verify(
    source: Source,
    depth: Depth = Depth.FULL,
    head: str | None = None,
    progress: Progress | None = None,
    known: "CheckedFiles | None" = None,
) -> Report:
    """Checks an archive: its identity, its journal, and every file against what the journal says.

    `known` collects what was found out about each file, for a caller that goes on to file or to read them.
    """
    report = Report()
    try:
        source.identity()
    except FormatError as error:
        newer = isinstance(error, NewerFormat)
        report.add(Finding.of(Code.NEWER_FORMAT if newer else Code.CORRUPT, layout.ARCHIVE_FILE, str(error)))
        return report
    known = {} if known is None else known
    for round_ in range(_ROUNDS):
        (ledger, torn), sizes = source.journal(head), source.sizes()
        present = _present(ledger, sizes)
        report = Report(head=ledger.head, files=len(present))
        for finding in (
            *_check_journal(ledger, torn, head),
            *source.misfits(ledger),
            *_check_presence(source, ledger, sizes, present),
        ):
            report.add(finding)
        if depth is Depth.QUICK:
            _summarise_journal(report, ledger)
        else:
            shown = progress if progress and not round_ else Progress()
            # Here, because a quick look needs none of what reads records.
            from vmsonar_archive.verify.content import check_content

            check_content(report, source, present, known, deep=depth is Depth.DEEP, progress=shown)
        if report.ok or not _has_changed(source, ledger, sizes):
            break
    if depth is Depth.DEEP and any(layout.is_parquet(path) for path in present):
        # Here, because it loads what an ordinary look does not need.
        from vmsonar_archive.parquet.compare import compare_tables

        for finding in compare_tables(source):
            report.add(finding)
    report.findings.sort(key=errors_first)
    return report


def errors_first(finding: Finding) -> tuple[bool, str]:
    """The order in which findings are told."""
    return finding.severity is not Severity.ERROR, finding.path


def _has_changed(source: Source, ledger: Ledger, sizes: dict[str, int]) -> bool:
    """Whether a writer replaced, merged or dropped files while we looked."""
    return source.journal()[0].head != ledger.head or source.sizes().keys() != sizes.keys()


def _check_journal(ledger: Ledger, torn: bool, head: str | None) -> Iterator[Finding]:
    if ledger.broken_at is not None:
        detail = f"line {ledger.broken_at} {ledger.broken_how}"
        yield Finding.of(Code.CHAIN_BROKEN, layout.JOURNAL_FILE, detail)
    if torn:
        yield Finding.of(Code.TORN_TAIL, layout.JOURNAL_FILE, "its last line is not whole")
    if not ledger.met_watched:
        detail = f"{head} is not the hash of any of its lines: history was changed or dropped since"
        yield Finding.of(Code.HEAD_DIFFERS, layout.JOURNAL_FILE, detail)
    for entry in ledger.dropped:
        detail = f"{entry.records or 0} records dropped to keep {entry.reason}"
        yield Finding.of(Code.DROPPED, entry.path, detail)


def _present(ledger: Ledger, sizes: dict[str, int]) -> dict[str, JournalEntry | None]:
    """The files to look into, each with what the journal says of it; None for segments that are being written."""
    unlisted = (path for path, size in sizes.items() if size >= 0 and path not in ledger.current)
    live = {path: None for path in unlisted if path not in ledger.gone and SegmentName.parse(path)}
    return {path: entry for path, entry in ledger.current.items() if path in sizes} | live


def _check_presence(
    source: Source, ledger: Ledger, sizes: dict[str, int], present: dict[str, JournalEntry | None]
) -> Iterator[Finding]:
    for path, entry in ledger.current.items():
        if path not in sizes:
            yield Finding.of(Code.MISSING, path, "the journal lists it, but it is not there")
        elif sizes[path] != entry.bytes and not source.has_journalled(entry):
            detail = f"has {sizes[path]} bytes, the journal says {entry.bytes}"
            yield Finding.of(Code.CORRUPT, path, detail)
        if entry.damaged:
            yield Finding.of(Code.CORRUPT, path, "parts of it could not be read when it was sealed")
    for path, size in sizes.items():
        if path in ledger.current or path in layout.OWN_FILES:
            continue
        if size < 0:
            yield Finding.of(Code.REFUSED, path, "is not a regular file")
        elif path in ledger.gone or layout.is_temporary(path):
            yield Finding.of(Code.PENDING, path, "left over from work that the next start finishes")
        elif path in present:
            yield Finding.of(Code.UNSEALED, path, "is being written, or was when the machine stopped")
        else:
            detail = "is no part of the archive: the journal does not list it"
            yield Finding.of(Code.UNLISTED, path, detail, Severity.WARNING)


def _summarise_journal(report: Report, ledger: Ledger) -> None:
    entries = [
        entry
        for entry in ledger.current.values()
        if (name := SegmentName.parse(entry.path)) and name.kind == layout.SAMPLE
    ]
    report.samples = sum(entry.records or 0 for entry in entries)
    report.first = min((entry.first for entry in entries if entry.first), default=None)
    report.last = max((entry.last for entry in entries if entry.last), default=None)
