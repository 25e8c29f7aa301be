"""Checks one segment from its first byte to its last: hash, frame checksums, record checksums, order, gaps."""

import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import RawIOBase
from typing import BinaryIO, cast

from vmsonar_archive.format.frames import Damage, Scanned, scan_frames
from vmsonar_archive.format.journal import JournalEntry
from vmsonar_archive.format.layout import SAMPLE, SegmentName
from vmsonar_archive.format.lines import BadLine, Text, decode_sample, decode_stamp, decode_sysinfo
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.records import Stamp
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.progress import Progress

# A pause is a gap when it is this many times as long as usual, and at least so many seconds.
_GAP_FACTOR = 3
_GAP_SECONDS = 3.0
# An hour of a sample every 10 ms has 360,000; it bounds what a hostile segment can make us hold.
_MAX_RECORDS = 600_000
# Both are UUIDs.
_MAX_IDS = 200
# What is told of one file, of each kind.
_MAX_FINDINGS = 100


@dataclass(slots=True)
class Checked:
    """What one segment turned out to be."""

    path: str
    samples: int = 0
    records: int = 0
    first: Stamp | None = None
    last: Stamp | None = None
    #: The usual distance of its samples in seconds; None when there are too few to tell.
    interval: float | None = None
    findings: list[Finding] = field(default_factory=list)
    #: How many there were of each kind.
    counts: dict[Code, int] = field(default_factory=dict)

    def find(self, code: Code, detail: str) -> None:
        self.add(Finding.of(code, self.path, detail))

    def add(self, finding: Finding) -> None:
        """Keeps only the first of each kind: a hostile file has millions."""
        count = self.counts[finding.code] = self.counts.get(finding.code, 0) + 1
        if count <= _MAX_FINDINGS:
            self.findings.append(finding)

    def add_omitted(self) -> None:
        """Adds how many findings of each kind were left out."""
        for code, count in self.counts.items():
            if count > _MAX_FINDINGS:
                more = f"and {count - _MAX_FINDINGS} more of these"
                self.findings.append(Finding.of(code, self.path, more))


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


class Moments:
    """Where in time the samples of a segment lie, in a few bytes each."""

    def __init__(self) -> None:
        self._boot = ""
        #: Of each sample whether it is of the same boot as the one before.
        self._same = bytearray()
        self._boottimes = array("d")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, stamp: Stamp) -> None:
        self._same.append(stamp.boot == self._boot)
        self._boot = stamp.boot
        self._boottimes.append(stamp.boottime / 1e9)
        self._times.append(stamp.time.timestamp())

    def distances(self) -> Iterator[tuple[int, float, bool]]:
        """Of every sample but the first: its number, seconds since the one before, and whether the boot is the same.

        Only within one boot is there a clock that never steps.
        """
        for number in range(1, len(self)):
            clock = self._boottimes if self._same[number] else self._times
            yield number, clock[number] - clock[number - 1], bool(self._same[number])

    def span(self, number: int) -> str:
        """From the sample before to this one, for people."""
        return _span(_moment(self._times[number - 1]), _moment(self._times[number]))


class _Records:
    """Takes in the records of a segment, one by one."""

    def __init__(self, checked: Checked, kind: str, *, deep: bool) -> None:
        self._checked = checked
        decode: Callable[[Text], object] = decode_sample if kind == SAMPLE else decode_sysinfo
        self._decode = decode if deep else None
        #: Where in time each one lies.
        self.moments = Moments()

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
    try:
        for found in scan_frames(cast(BinaryIO, hashing), records.take):
            _check_frame(checked, found, sealed=entry is not None)
        while hashing.read(1024 * 1024):
            pass
    except (OSError, VmsonarError) as error:
        checked.find(Code.CORRUPT, f"cannot be read: {error}")
        checked.add_omitted()
        return checked
    if entry is not None:
        _compare(checked, hashing, entry)
    checked.samples = checked.records if kind == SAMPLE else 0
    if kind == SAMPLE:
        _find_gaps(checked, records.moments)
    checked.add_omitted()
    return checked


def _check_frame(checked: Checked, found: Scanned, *, sealed: bool) -> None:
    if found.damage is not None:
        checked.add(damage_finding(checked.path, found.damage, sealed))
    elif sealed and not found.frame.complete:
        checked.find(Code.CORRUPT, "its last frame is not closed")


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


def _find_gaps(checked: Checked, moments: Moments) -> None:
    distances = array("d", (seconds for _, seconds, same_boot in moments.distances() if same_boot))
    if len(distances) < 2:
        return
    # Here, because a quick look does not need it.
    from statistics import median

    checked.interval = median(distances)
    for number, seconds, _ in moments.distances():
        if is_gap(seconds, checked.interval):
            checked.add(gap(checked.path, seconds, moments.span(number)))


def is_gap(seconds: float, interval: float | None) -> bool:
    """Whether nothing was recorded for longer than usual."""
    return seconds > max(_GAP_FACTOR * (interval or 0.0), _GAP_SECONDS)


def gap(path: str, seconds: float, span: str) -> Finding:
    return Finding.of(Code.SAMPLING_GAP, path, f"no samples for {seconds:.0f} s, {span}")


def gap_between(path: str, before: Stamp, after: Stamp, interval: float | None) -> Finding | None:
    """A note when nothing was recorded for longer than usual between the samples of two segments."""
    same_boot = before.boot == after.boot
    seconds = (
        (after.boottime - before.boottime) / 1e9 if same_boot else (after.time - before.time).total_seconds()
    )
    return gap(path, seconds, _span(before.time, after.time)) if is_gap(seconds, interval) else None


def _moment(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _span(begin: datetime, end: datetime) -> str:
    return f"{begin:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"
