"""Checks one segment from its first byte to its last: hash, frame checksums, record checksums, order, gaps."""

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from io import RawIOBase
from typing import BinaryIO, cast

from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.frames import Damage, Scanned, scan_frames
from vmsonar_archive.journal import Entry
from vmsonar_archive.layout import SAMPLE, SegmentName
from vmsonar_archive.lines import BadLine, Text, decode_sample, decode_stamp, decode_sysinfo
from vmsonar_archive.records import Stamp

# A pause is a gap when it is this many times as long as usual, and at least so many seconds.
_GAP_FACTOR = 3
_GAP_SECONDS = 3.0


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

    def find(self, code: Code, detail: str) -> None:
        self.findings.append(Finding.of(code, self.path, detail))


class _Hashing(RawIOBase):
    """Hashes what is read through it, so that a file is read once."""

    def __init__(self, stream: BinaryIO, progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        self.size += len(data)
        self._progress(len(data))
        return data


class _Records:
    """Takes in the records of a segment, one by one."""

    def __init__(self, checked: Checked, kind: str, *, deep: bool) -> None:
        self._checked = checked
        decode: Callable[[Text], object] = decode_sample if kind == SAMPLE else decode_sysinfo
        self._decode = decode if deep else None
        #: Where in time each one lies.
        self.moments: list[tuple[str, int, datetime]] = []

    def take(self, line: memoryview) -> None:
        checked = self._checked
        try:
            stamp = decode_stamp(line)
            if self._decode is not None:
                self._decode(line)
        except BadLine as error:
            checked.find(Code.BAD_RECORD, f"record {checked.records + 1}: {error}")
            return
        if checked.last is not None and stamp.seq <= checked.last.seq:
            checked.find(Code.REPEATED, f"record {stamp.seq} follows record {checked.last.seq}")
        checked.records += 1
        checked.first = checked.first or stamp
        checked.last = stamp
        self.moments.append((stamp.boot, stamp.boottime, stamp.time))


def check_segment(
    stream: BinaryIO, path: str, entry: Entry | None, *, deep: bool, progress: Callable[[int], None]
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
        return checked
    if entry is not None:
        _compare(checked, hashing, entry)
    checked.samples = checked.records if kind == SAMPLE else 0
    if kind == SAMPLE:
        _find_gaps(checked, records.moments)
    return checked


def _check_frame(checked: Checked, found: Scanned, *, sealed: bool) -> None:
    if found.damage is not None:
        checked.findings.append(damage_finding(checked.path, found.damage, sealed))
    elif sealed and not found.frame.complete:
        checked.find(Code.CORRUPT, "its last frame is not closed")


def damage_finding(path: str, damage: Damage, sealed: bool) -> Finding:
    """A torn end is normal in a file that is being written; in a sealed one it is damage."""
    code = Code.TORN_TAIL if damage.torn and not sealed else Code.CORRUPT
    return Finding.of(code, path, f"{damage.detail}, in the frame at byte {damage.offset}")


def _compare(checked: Checked, hashing: _Hashing, entry: Entry) -> None:
    if hashing.size != entry.bytes:
        checked.find(Code.CORRUPT, f"has {hashing.size} bytes, the journal says {entry.bytes}")
    elif hashing.sha256.hexdigest() != entry.sha256:
        checked.find(Code.CORRUPT, "its SHA-256 differs from the journal's")
    elif checked.records != entry.records:
        checked.find(Code.CORRUPT, f"has {checked.records} records, the journal says {entry.records}")


def _find_gaps(checked: Checked, boottimes: list[tuple[str, int, datetime]]) -> None:
    pairs = list(itertools.pairwise(boottimes))
    distances = [(after[1] - before[1]) / 1e9 for before, after in pairs if before[0] == after[0]]
    if len(distances) < 2:
        return
    # Here, because a quick look does not need it.
    from statistics import median

    checked.interval = median(distances)
    for before, after in pairs:
        finding = gap_between(checked.path, before, after, checked.interval)
        if finding is not None:
            checked.findings.append(finding)


def gap_between(
    path: str, before: tuple[str, int, datetime], after: tuple[str, int, datetime], interval: float | None
) -> Finding | None:
    """A note when nothing was recorded for longer than usual between two samples."""
    same_boot = before[0] == after[0]
    # Only within one boot is there a clock that never steps.
    seconds = (after[1] - before[1]) / 1e9 if same_boot else (after[2] - before[2]).total_seconds()
    if seconds <= max(_GAP_FACTOR * (interval or 0.0), _GAP_SECONDS):
        return None
    span = f"{before[2]:%Y-%m-%dT%H:%M:%SZ} to {after[2]:%Y-%m-%dT%H:%M:%SZ}"
    return Finding.of(Code.SAMPLING_GAP, path, f"no samples for {seconds:.0f} s, {span}")
