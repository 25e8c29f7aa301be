"""Is this archive whole and unaltered? Answers with findings; reads everything it is given as hostile."""

import itertools
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial

from vmsonar_archive import layout
from vmsonar_archive.check import Checked, check_segment, gap_between
from vmsonar_archive.errors import FormatError, VmsonarError
from vmsonar_archive.files import Refused
from vmsonar_archive.findings import Code, Finding, Report, Severity
from vmsonar_archive.journal import Entry, Ledger
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.records import Stamp
from vmsonar_archive.source import Source, sha256_of

# Both hashing and decompression let go of the interpreter: two threads keep two cores busy.
_THREADS = 2
# How often to look again at what a writer changed in the meantime.
_ROUNDS = 5
# What was found of each file, given what the journal said of it then.
_Known = dict[str, tuple[Entry | None, Checked]]
_OWN_FILES = {
    layout.ARCHIVE_FILE,
    layout.JOURNAL_FILE,
    layout.LOCK_FILE,
    layout.NAMESPACE_FILE,
    layout.UPLOADS_FILE,
}


class Depth(StrEnum):
    """How closely to look."""

    QUICK = "quick"
    FULL = "full"
    DEEP = "deep"


def no_progress(_bytes: int) -> None:
    """For callers that show none."""


def verify(
    source: Source,
    depth: Depth = Depth.FULL,
    head: str | None = None,
    progress: Callable[[int], None] = no_progress,
) -> Report:
    """Checks an archive: its identity, its journal, and every file against what the journal says."""
    report = Report(findings=[])
    try:
        source.identity()
    except FormatError as error:
        newer = "written in format" in str(error)
        report.add(Finding.of(Code.NEWER_FORMAT if newer else Code.CORRUPT, layout.ARCHIVE_FILE, str(error)))
        return report
    known: _Known = {}
    for round_ in range(_ROUNDS):
        (ledger, torn), sizes = source.journal(head), source.sizes()
        report = Report(findings=[])
        _check_journal(report, ledger, torn, head)
        present = _check_presence(report, source, ledger, sizes)
        report.files = len(present)
        if depth is Depth.QUICK:
            _summarise_journal(report, ledger)
        else:
            quiet = no_progress if round_ else progress
            _check_content(report, source, present, known, deep=depth is Depth.DEEP, progress=quiet)
        if report.ok or not _has_changed(source, ledger, sizes):
            break
    if depth is Depth.DEEP and any(layout.is_parquet(path) for path in present):
        _check_tables(report, source)
    report.findings.sort(key=lambda finding: (finding.severity is not Severity.ERROR, finding.path))
    return report


def _has_changed(source: Source, ledger: Ledger, sizes: dict[str, int]) -> bool:
    """Whether a writer replaced, merged or dropped files while we looked."""
    return source.journal()[0].head != ledger.head or source.sizes().keys() != sizes.keys()


def _check_journal(report: Report, ledger: Ledger, torn: bool, head: str | None) -> None:
    report.head = ledger.head
    if ledger.broken_at is not None:
        detail = f"line {ledger.broken_at} does not follow from the line before it"
        report.add(Finding.of(Code.CHAIN_BROKEN, layout.JOURNAL_FILE, detail))
    if torn:
        report.add(Finding.of(Code.TORN_TAIL, layout.JOURNAL_FILE, "its last line is not whole"))
    if not ledger.met_watched:
        detail = f"{head} is not the hash of any of its lines: history was changed or dropped since"
        report.add(Finding.of(Code.HEAD_DIFFERS, layout.JOURNAL_FILE, detail))
    for entry in ledger.dropped:
        detail = f"{entry.records or 0} records dropped to keep {entry.reason}"
        report.add(Finding.of(Code.DROPPED, entry.path, detail))


def _check_presence(
    report: Report, source: Source, ledger: Ledger, sizes: dict[str, int]
) -> dict[str, Entry | None]:
    """The files to look into, each with what the journal says of it."""
    present: dict[str, Entry | None] = {}
    for path, entry in ledger.current.items():
        if path not in sizes:
            report.add(Finding.of(Code.MISSING, path, "the journal lists it, but it is not there"))
        elif sizes[path] != entry.bytes and not source.has_right(entry):
            detail = f"has {sizes[path]} bytes, the journal says {entry.bytes}"
            report.add(Finding.of(Code.CORRUPT, path, detail))
            present[path] = entry
        else:
            present[path] = entry
        if entry.damaged:
            detail = "parts of it could not be read when it was sealed"
            report.add(Finding.of(Code.CORRUPT, path, detail))
    for path, size in sizes.items():
        if path not in ledger.current and path not in _OWN_FILES:
            _check_unlisted(report, ledger, path, size, present)
    return present


def _check_unlisted(
    report: Report, ledger: Ledger, path: str, size: int, present: dict[str, Entry | None]
) -> None:
    if size < 0:
        report.add(Finding.of(Code.REFUSED, path, "is not a regular file"))
    elif path in ledger.gone or layout.is_temporary(path):
        report.add(Finding.of(Code.PENDING, path, "left over from work that the next start finishes"))
    elif SegmentName.parse(path) is not None:
        report.add(Finding.of(Code.UNSEALED, path, "is being written, or was when the machine stopped"))
        present[path] = None
    else:
        detail = "is no part of the archive: the journal does not list it"
        report.add(Finding.of(Code.UNLISTED, path, detail, Severity.WARNING))


def _summarise_journal(report: Report, ledger: Ledger) -> None:
    entries = [
        entry
        for entry in ledger.current.values()
        if (name := SegmentName.parse(entry.path)) and name.kind == layout.SAMPLE
    ]
    report.samples = sum(entry.records or 0 for entry in entries)
    report.first = min((entry.first for entry in entries if entry.first), default=None)
    report.last = max((entry.last for entry in entries if entry.last), default=None)


def _check_content(
    report: Report,
    source: Source,
    present: dict[str, Entry | None],
    known: _Known,
    *,
    deep: bool,
    progress: Callable[[int], None],
) -> None:
    new = {path: entry for path, entry in present.items() if not _is_known(known, path, entry)}
    for checked in _check_files(source, new, deep=deep, progress=progress):
        known[checked.path] = new[checked.path], checked
    results = [known[path][1] for path in present]
    for checked in results:
        for finding in checked.findings:
            report.add(finding)
    _summarise(report, results)


def _is_known(known: _Known, path: str, entry: Entry | None) -> bool:
    """Whether a file was found right as the journal has it now."""
    before, checked = known.get(path, (None, None))
    return checked is not None and before == entry and not has_errors(checked)


def _check_files(
    source: Source, items: dict[str, Entry | None], *, deep: bool, progress: Callable[[int], None]
) -> list[Checked]:
    # Here, because a quick look needs neither, and a process that helps imports this module in turn.
    from concurrent.futures import ThreadPoolExecutor

    from vmsonar_archive.spread import can_spread, spread

    if deep and can_spread(items.values()):
        return spread(source.name, list(items.items()), progress)
    with ThreadPoolExecutor(_THREADS) as pool:
        check = partial(check_file, source, deep=deep, progress=progress)
        return list(pool.map(check, items.items()))


def _check_tables(report: Report, source: Source) -> None:
    # Here, because it loads what an ordinary look does not need.
    from vmsonar_archive.parquet.compare import compare_tables

    for finding in compare_tables(source):
        report.add(finding)


def check_file(
    source: Source, item: tuple[str, Entry | None], *, deep: bool, progress: Callable[[int], None]
) -> Checked:
    """What one file turns out to be, given what the journal says of it."""
    path, entry = item
    if SegmentName.parse(path) is None:
        return _check_other(source, path, entry, progress)
    checked = _check_segment(source, path, entry, deep, progress)
    if entry is None or not has_errors(checked):
        return checked
    stream = source.open_right(entry, in_place=True)
    if stream is None:
        return checked
    with stream:
        checked = check_segment(stream, path, entry, deep=deep, progress=no_progress)
    checked.find(Code.PENDING, "was just being replaced by the version that the journal speaks of")
    return checked


def has_errors(checked: Checked) -> bool:
    """Whether the answer for this file is no."""
    return any(finding.severity is Severity.ERROR for finding in checked.findings)


def _check_segment(
    source: Source, path: str, entry: Entry | None, deep: bool, progress: Callable[[int], None]
) -> Checked:
    try:
        with source.open(path) as stream:
            return check_segment(stream, path, entry, deep=deep, progress=progress)
    except Refused as error:
        return Checked(path, findings=[Finding.of(Code.REFUSED, path, str(error))])
    except OSError as error:
        return Checked(path, findings=[Finding.of(Code.CORRUPT, path, f"cannot be read: {error.strerror}")])


def _check_other(source: Source, path: str, entry: Entry | None, progress: Callable[[int], None]) -> Checked:
    """A derived table: its bytes are what the journal says."""
    try:
        with source.open(path) as stream:
            found = sha256_of(stream)
    except (OSError, VmsonarError) as error:
        return Checked(path, findings=[Finding.of(Code.CORRUPT, path, f"cannot be read: {error}")])
    checked = Checked(path)
    if entry is not None:
        progress(entry.bytes)
        if found != entry.sha256:
            checked.find(Code.CORRUPT, "its SHA-256 differs from the journal's")
    return checked


def _summarise(report: Report, results: list[Checked]) -> None:
    samples = [checked for checked in results if checked.samples and checked.first and checked.last]
    samples.sort(key=lambda checked: checked.first.seq if checked.first else 0)
    report.samples = sum(checked.samples for checked in samples)
    report.first = min((checked.first.time for checked in samples if checked.first), default=None)
    report.last = max((checked.last.time for checked in samples if checked.last), default=None)
    for before, after in itertools.pairwise(samples):
        assert before.last is not None
        assert after.first is not None
        if after.first.seq <= before.last.seq:
            detail = (
                f"its records from {after.first.seq} on overlap with {before.path}, up to {before.last.seq}"
            )
            report.add(Finding.of(Code.REPEATED, after.path, detail))
        gap = gap_between(
            after.path, _moment(before.last), _moment(after.first), before.interval or after.interval
        )
        if gap is not None:
            report.add(gap)


def _moment(stamp: Stamp) -> tuple[str, int, datetime]:
    return stamp.boot, stamp.boottime, stamp.time
