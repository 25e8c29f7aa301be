"""Checks the content of every file, segments from their first byte to their last: on two threads or in processes."""

import hashlib
import itertools
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from vmsonar_archive.format.frames import Damage, scan_frames
from vmsonar_archive.format.journal import JournalEntry
from vmsonar_archive.format.layout import SAMPLE, SegmentName
from vmsonar_archive.format.lines import BadLine, Text, decode_sample, decode_stamp, decode_sysinfo
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.read.source import Source, open_source
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet
from vmsonar_archive.system.children import is_helper, side_by_side
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import Refused, sha256_of
from vmsonar_archive.system.progress import Progress

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A pause is a gap when it is this many times as long as usual, and at least so many seconds.
_GAP_FACTOR = 3
_GAP_SECONDS = 3.0
# An hour of a sample every 10 ms has 360,000; it bounds what a hostile segment can make us hold.
_MAX_RECORDS = 600_000
# The runs and holes of one segment; a daemon that is started every second has 3,600.
_MAX_SPANS = 4_000
# Both are UUIDs.
_MAX_IDS = 200
# What is told of one file, of each kind, and of all files together.
_MAX_OF_A_KIND = 100
_MAX_FINDINGS = 20_000
# Both hashing and decompression let go of the interpreter: two threads keep two cores busy.
_THREADS = 2
# Below this a process takes longer to start than it saves.
_WORTH_BYTES = 4 * 1024 * 1024
# Enough pieces that no process is left with a long last one.
_PIECES = 8

#: Files with what the journal says of them; None for a segment that is still being written.
_Items = list[tuple[str, JournalEntry | None]]
#: What was found of each file, given what the journal said of it then.
CheckedFiles = dict[str, tuple[JournalEntry | None, "Checked"]]


@dataclass(slots=True)
class Checked:
    """What one file turned out to be."""

    path: str
    samples: int = 0
    records: int = 0
    first: Stamp | None = None
    last: Stamp | None = None
    #: Exactly which records it holds, unless they are of more runs than any machine starts.
    held: RecordSet = field(default_factory=lambda: RecordSet(max_spans=_MAX_SPANS))
    #: The usual distance of its samples in seconds; None when there are too few to tell.
    interval: float | None = None
    findings: list[Finding] = field(default_factory=list)
    #: How many there were of each kind.
    counts: dict[Code, int] = field(default_factory=dict)

    @property
    def has_errors(self) -> bool:
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def find(self, code: Code, detail: str) -> None:
        self.add(Finding.of(code, self.path, detail))

    def add(self, finding: Finding) -> None:
        """Keeps only the first of each kind: a hostile file has millions."""
        count = self.counts[finding.code] = self.counts.get(finding.code, 0) + 1
        if count <= _MAX_OF_A_KIND:
            self.findings.append(finding)

    def add_omitted(self) -> None:
        """Adds how many findings of each kind were left out."""
        for code, count in self.counts.items():
            if count > _MAX_OF_A_KIND:
                more = f"and {count - _MAX_OF_A_KIND} more of these"
                self.findings.append(Finding.of(code, self.path, more))


def check_content(
    report: Report,
    source: Source,
    present: dict[str, JournalEntry | None],
    known: CheckedFiles,
    *,
    deep: bool,
    progress: Progress,
) -> None:
    """Checks the files that are not known to be right as the journal has them now, and summarises all of them."""
    new = []
    for path, entry in present.items():
        before, checked = known.get(path, (None, None))
        if checked is None or checked.has_errors or before != entry:
            new.append((path, entry))
    for (path, entry), checked in zip(new, _check_files(source, new, deep, progress), strict=True):
        known[path] = entry, checked
    results = [known[path][1] for path in present]
    for checked in results:
        for finding in checked.findings:
            report.add(finding)
    _summarise(report, results)


def _check_files(source: Source, items: _Items, deep: bool, progress: Progress) -> list[Checked]:
    size = sum(entry.bytes for _, entry in items if entry is not None)
    if deep and size > _WORTH_BYTES and (os.cpu_count() or 1) > 1 and not is_helper():
        return _check_in_processes(source.name, items, progress)
    held = 0

    def check(item: tuple[str, JournalEntry | None]) -> Checked:
        nonlocal held
        checked = _check_file(source, *item, deep, progress)
        held += len(checked.findings)
        if held > _MAX_FINDINGS:
            # This is enough to see what is wrong; of the rest, one of each kind will do.
            firsts = {finding.code: finding for finding in reversed(checked.findings)}
            checked.findings = list(firsts.values())
        return checked

    # Here, because a process that helps imports this module in turn.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(check, items))


def _check_in_processes(name: str, items: _Items, progress: Progress) -> list[Checked]:
    """Checks files deeply in several processes; the results are in the order of the items."""
    processes = os.cpu_count() or 1
    step = max(1, len(items) // (processes * _PIECES))
    pieces = [items[begin : begin + step] for begin in range(0, len(items), step)]
    results: list[Checked] = []
    checked = side_by_side(_check_piece, [(name, piece) for piece in pieces], processes)
    for piece, found in zip(pieces, checked, strict=True):
        progress.advance(sum(entry.bytes for _, entry in piece if entry is not None))
        results += found
    return results


def _check_piece(name: str, items: _Items) -> list[Checked]:
    with closing(open_source(Path(name))) as source:
        return [_check_file(source, path, entry, True, Progress()) for path, entry in items]


def _check_file(
    source: Source, path: str, entry: JournalEntry | None, deep: bool, progress: Progress
) -> Checked:
    """What one file turns out to be, given what the journal says of it."""
    if SegmentName.parse(path) is None:
        return _check_table(source, path, entry, progress)
    checked = Checked(path)
    try:
        with source.open(path) as stream:
            checked = check_segment(stream, path, entry, deep=deep, progress=progress)
    except Refused as error:
        checked.find(Code.REFUSED, str(error))
    except OSError as error:
        checked.find(Code.CORRUPT, f"cannot be read: {error.strerror}")
    if entry is None or not checked.has_errors:
        return checked
    replacement = source.open_journalled(entry, in_place=True)
    if replacement is None:
        return checked
    with replacement:
        checked = check_segment(replacement, path, entry, deep=deep, progress=Progress())
    checked.find(Code.PENDING, "was just being replaced by the version that the journal speaks of")
    return checked


def _check_table(source: Source, path: str, entry: JournalEntry | None, progress: Progress) -> Checked:
    """A derived table: its bytes are what the journal says."""
    checked = Checked(path)
    try:
        with source.open(path) as stream:
            found = sha256_of(stream)
    except (OSError, VmsonarError) as error:
        checked.find(Code.CORRUPT, f"cannot be read: {error}")
        return checked
    if entry is not None:
        progress.advance(entry.bytes)
        if found != entry.sha256:
            checked.find(Code.CORRUPT, "its SHA-256 differs from the journal's")
    return checked


def _summarise(report: Report, results: list[Checked]) -> None:
    samples = [
        (checked.first, checked.last, checked)
        for checked in results
        if checked.samples and checked.first and checked.last
    ]
    samples.sort(key=lambda one: one[0].seq)
    report.samples = sum(checked.samples for _, _, checked in samples)
    report.first = min((first.time for first, _, _ in samples), default=None)
    report.last = max((last.time for _, last, _ in samples), default=None)
    for (_, last, before), (first, _, after) in itertools.pairwise(samples):
        if first.seq <= last.seq:
            detail = f"its records from {first.seq} on overlap with {before.path}, up to {last.seq}"
            report.add(Finding.of(Code.REPEATED, after.path, detail))
        same_boot = first.boot == last.boot
        seconds = (
            (first.boottime - last.boottime) / 1e9 if same_boot else (first.time - last.time).total_seconds()
        )
        if _is_gap(seconds, before.interval or after.interval):
            report.add(_gap(after.path, seconds, last.time, first.time))


class _Hashing(RawIOBase):
    """Hashes what is read through it, so that a file is read once."""

    def __init__(self, stream: BinaryIO, progress: Progress) -> None:
        self._stream = stream
        self._progress = progress
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        self.size += len(data)
        self._progress.advance(len(data))
        return data


class _Moments:
    """Where in time the samples of a segment lie, in a few bytes each."""

    def __init__(self) -> None:
        self._boot = ""
        #: Of each sample whether it is of the same boot as the one before.
        self._same = bytearray()
        self._boottimes = array("d")
        self._times = array("d")

    def add(self, stamp: Stamp) -> None:
        self._same.append(stamp.boot == self._boot)
        self._boot = stamp.boot
        self._boottimes.append(stamp.boottime / 1e9)
        self._times.append(stamp.time.timestamp())

    def distances(self) -> Iterator[tuple[int, float, bool]]:
        """Of every sample but the first: its number, seconds since the one before, and whether the boot is the same.

        Only within one boot is there a clock that never steps.
        """
        for number in range(1, len(self._times)):
            clock = self._boottimes if self._same[number] else self._times
            yield number, clock[number] - clock[number - 1], bool(self._same[number])

    def time(self, number: int) -> datetime:
        return _EPOCH + timedelta(seconds=self._times[number])


class _Records:
    """Takes in the records of a segment, one by one."""

    def __init__(self, checked: Checked, kind: str, *, deep: bool) -> None:
        self._checked = checked
        decode: Callable[[Text], object] = decode_sample if kind == SAMPLE else decode_sysinfo
        self._decode = decode if deep else None
        #: Where in time each one lies.
        self.moments = _Moments()

    def take(self, line: memoryview) -> None:
        checked = self._checked
        try:
            stamp = decode_stamp(line)
            if len(stamp.run) + len(stamp.boot) > _MAX_IDS:
                raise BadLine(f"its run and boot are longer than {_MAX_IDS} characters")
            if self._decode is not None:
                self._decode(line)
        except BadLine as error:
            checked.find(Code.BAD_RECORD, f"record {checked.records + 1}: {error}")
            return
        if checked.last is not None and stamp.seq <= checked.last.seq:
            checked.find(Code.REPEATED, f"record {stamp.seq} follows record {checked.last.seq}")
        checked.held.add(stamp)
        checked.records += 1
        if checked.records > _MAX_RECORDS:
            raise VmsonarError(f"it has more than {_MAX_RECORDS} records")
        checked.first = checked.first or stamp
        checked.last = stamp
        self.moments.add(stamp)


def check_segment(
    stream: BinaryIO, path: str, entry: JournalEntry | None, *, deep: bool, progress: Progress
) -> Checked:
    """Reads a whole segment; what the journal says of it is None for one that is still being written."""
    checked = Checked(path)
    name = SegmentName.parse(path)
    kind = name.kind if name else SAMPLE
    hashing = _Hashing(stream, progress)
    records = _Records(checked, kind, deep=deep)
    sealed = entry is not None
    try:
        for found in scan_frames(cast(BinaryIO, hashing), records.take):
            if found.damage is not None:
                checked.add(damage_finding(path, found.damage, sealed))
            elif sealed and not found.frame.complete:
                checked.find(Code.CORRUPT, "its last frame is not closed")
        while hashing.read(1024 * 1024):
            pass
    except (OSError, VmsonarError) as error:
        checked.find(Code.CORRUPT, f"cannot be read: {error}")
    else:
        if entry is not None:
            _compare(checked, hashing, entry)
        if kind == SAMPLE:
            checked.samples = checked.records
            _find_gaps(checked, records.moments)
    checked.add_omitted()
    return checked


def damage_finding(path: str, damage: Damage, sealed: bool) -> Finding:
    """A torn end is normal in a file that is being written; in a sealed one it is damage."""
    code = Code.TORN_TAIL if damage.torn and not sealed else Code.CORRUPT
    return Finding.of(code, path, f"{damage.detail}, in the frame at byte {damage.offset}")


def _compare(checked: Checked, hashing: _Hashing, entry: JournalEntry) -> None:
    if hashing.size != entry.bytes:
        checked.find(Code.CORRUPT, f"has {hashing.size} bytes, the journal says {entry.bytes}")
    elif hashing.sha256.hexdigest() != entry.sha256:
        checked.find(Code.CORRUPT, "its SHA-256 differs from the journal's")
    elif checked.records != entry.records:
        checked.find(Code.CORRUPT, f"has {checked.records} records, the journal says {entry.records}")


def _find_gaps(checked: Checked, moments: _Moments) -> None:
    distances = array("d", (seconds for _, seconds, same_boot in moments.distances() if same_boot))
    if len(distances) < 2:
        return
    # Here, because a quick look does not need it.
    from statistics import median

    checked.interval = median(distances)
    for number, seconds, _ in moments.distances():
        if _is_gap(seconds, checked.interval):
            checked.add(_gap(checked.path, seconds, moments.time(number - 1), moments.time(number)))


def _is_gap(seconds: float, interval: float | None) -> bool:
    """Whether nothing was recorded for longer than usual."""
    return seconds > max(_GAP_FACTOR * (interval or 0.0), _GAP_SECONDS)


def _gap(path: str, seconds: float, begin: datetime, end: datetime) -> Finding:
    span = f"{begin:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"
    return Finding.of(Code.SAMPLING_GAP, path, f"no samples for {seconds:.0f} s, {span}")
