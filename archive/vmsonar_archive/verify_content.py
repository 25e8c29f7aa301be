"""Looks into every file of an archive: on two threads, or for a deep look in processes of their own."""

import itertools
from collections.abc import Callable
from datetime import datetime
from functools import partial

from vmsonar_archive.check import Checked, check_segment, gap_between
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.files import Refused
from vmsonar_archive.findings import Code, Finding, Report, Severity
from vmsonar_archive.journal import Entry
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.records import Stamp
from vmsonar_archive.source import Source, sha256_of
from vmsonar_archive.verify import no_progress

# Both hashing and decompression let go of the interpreter: two threads keep two cores busy.
_THREADS = 2
#: What was found of each file, given what the journal said of it then.
Known = dict[str, tuple[Entry | None, Checked]]


def check_content(
    report: Report,
    source: Source,
    present: dict[str, Entry | None],
    known: Known,
    *,
    deep: bool,
    progress: Callable[[int], None],
) -> None:
    """Looks into the files that are not known to be right, and tells what all of them hold."""
    new = {path: entry for path, entry in present.items() if not _is_known(known, path, entry)}
    for checked in _check_files(source, new, deep=deep, progress=progress):
        known[checked.path] = new[checked.path], checked
    results = [known[path][1] for path in present]
    for checked in results:
        for finding in checked.findings:
            report.add(finding)
    _summarise(report, results)


def _is_known(known: Known, path: str, entry: Entry | None) -> bool:
    """Whether a file was found right as the journal has it now."""
    before, checked = known.get(path, (None, None))
    return checked is not None and before == entry and not has_errors(checked)


def _check_files(
    source: Source, items: dict[str, Entry | None], *, deep: bool, progress: Callable[[int], None]
) -> list[Checked]:
    # Here, because a process that helps imports this module in turn.
    from concurrent.futures import ThreadPoolExecutor

    from vmsonar_archive.spread import can_spread, spread

    if deep and can_spread(items.values()):
        return spread(source.name, list(items.items()), progress)
    with ThreadPoolExecutor(_THREADS) as pool:
        check = partial(check_file, source, deep=deep, progress=progress)
        return list(pool.map(check, items.items()))


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
