"""Checks the content of every file against the journal: on two threads or, deeply, in processes of its own."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from vmsonar_archive.format.journal import JournalEntry
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.read.source import Source, open_source
from vmsonar_archive.system.children import is_helper, side_by_side
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import Refused, sha256_of
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.segment import Checked, check_segment, gap_between

# Both hashing and decompression let go of the interpreter: two threads keep two cores busy.
_THREADS = 2


# What is kept of findings inside files, all together.
_MAX_FINDINGS = 20_000


# Below this a process takes longer to start than it saves.
_WORTH_BYTES = 4 * 1024 * 1024


# Enough pieces that no process is left with a long last one.
_PIECES = 8


_Items = list[tuple[str, JournalEntry | None]]


#: What was found of each file, given what the journal said of it then.
CheckedFiles = dict[str, tuple[JournalEntry | None, Checked]]


def check_content(
    report: Report,
    source: Source,
    present: dict[str, JournalEntry | None],
    known: CheckedFiles,
    *,
    deep: bool,
    progress: Progress,
) -> None:
    """Checks the files that are not known to be right, and summarises all of them."""
    new = {path: entry for path, entry in present.items() if not _is_known(known, path, entry)}
    for checked in _check_files(source, new, deep=deep, progress=progress):
        known[checked.path] = new[checked.path], checked
    results = [known[path][1] for path in present]
    for checked in results:
        for finding in checked.findings:
            report.add(finding)
    _summarise(report, results)


def _is_known(known: CheckedFiles, path: str, entry: JournalEntry | None) -> bool:
    """Whether a file was found right as the journal has it now."""
    before, checked = known.get(path, (None, None))
    return checked is not None and before == entry and not has_errors(checked)


def _check_files(
    source: Source, items: dict[str, JournalEntry | None], *, deep: bool, progress: Progress
) -> list[Checked]:
    # Here, because a process that helps imports this module in turn.
    from concurrent.futures import ThreadPoolExecutor

    if deep and is_worth_processes(items.values()):
        return check_in_processes(source.name, list(items.items()), progress)
    held = 0

    def check(item: tuple[str, JournalEntry | None]) -> Checked:
        nonlocal held
        checked = check_file(source, item, deep=deep, progress=progress)
        held += len(checked.findings)
        if held > _MAX_FINDINGS:
            # This is enough to see what is wrong; of the rest, one of each kind will do.
            checked.findings = list(
                {finding.code: finding for finding in reversed(checked.findings)}.values()
            )
        return checked

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(check, items.items()))


def check_file(
    source: Source, item: tuple[str, JournalEntry | None], *, deep: bool, progress: Progress
) -> Checked:
    """What one file turns out to be, given what the journal says of it."""
    path, entry = item
    if SegmentName.parse(path) is None:
        return _check_other(source, path, entry, progress)
    checked = _check_segment(source, path, entry, deep, progress)
    if entry is None or not has_errors(checked):
        return checked
    stream = source.open_journalled(entry, in_place=True)
    if stream is None:
        return checked
    with stream:
        checked = check_segment(stream, path, entry, deep=deep, progress=Progress())
    checked.find(Code.PENDING, "was just being replaced by the version that the journal speaks of")
    return checked


def has_errors(checked: Checked) -> bool:
    """Whether the answer for this file is no."""
    return any(finding.severity is Severity.ERROR for finding in checked.findings)


def _check_segment(
    source: Source, path: str, entry: JournalEntry | None, deep: bool, progress: Progress
) -> Checked:
    try:
        with source.open(path) as stream:
            return check_segment(stream, path, entry, deep=deep, progress=progress)
    except Refused as error:
        return Checked(path, findings=[Finding.of(Code.REFUSED, path, str(error))])
    except OSError as error:
        return Checked(path, findings=[Finding.of(Code.CORRUPT, path, f"cannot be read: {error.strerror}")])


def _check_other(source: Source, path: str, entry: JournalEntry | None, progress: Progress) -> Checked:
    """A derived table: its bytes are what the journal says."""
    try:
        with source.open(path) as stream:
            found = sha256_of(stream)
    except (OSError, VmsonarError) as error:
        return Checked(path, findings=[Finding.of(Code.CORRUPT, path, f"cannot be read: {error}")])
    checked = Checked(path)
    if entry is not None:
        progress.advance(entry.bytes)
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
        gap = gap_between(after.path, before.last, after.first, before.interval or after.interval)
        if gap is not None:
            report.add(gap)


def is_worth_processes(entries: Iterable[JournalEntry | None]) -> bool:
    """Whether the files are large enough for processes of their own; never in a helper."""
    size = sum(entry.bytes for entry in entries if entry is not None)
    return size > _WORTH_BYTES and (os.cpu_count() or 1) > 1 and not is_helper()


def check_in_processes(name: str, items: _Items, progress: Progress) -> list[Checked]:
    """Checks files deeply in several processes; the results are in the order of the items."""
    processes = os.cpu_count() or 1
    step = max(1, len(items) // (processes * _PIECES))
    pieces = [items[begin : begin + step] for begin in range(0, len(items), step)]
    results: list[Checked] = []
    checked = side_by_side(_check_pieces, [(name, piece) for piece in pieces], processes)
    for piece, found in zip(pieces, checked, strict=True):
        progress.advance(sum(entry.bytes for _, entry in piece if entry is not None))
        results += found
    return results


def _check_pieces(name: str, items: _Items) -> list[Checked]:
    source = open_source(Path(name))
    try:
        return [check_file(source, item, deep=True, progress=Progress()) for item in items]
    finally:
        source.close()
