"""Reads whatever is readable of an archive, in order, each record once; damage is collected, never raised."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive.format.frames import Damage, read_frames
from vmsonar_archive.format.journal import JournalEntry
from vmsonar_archive.format.layout import JOURNAL_FILE, SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.format.lines import BadLine, decode_sample, decode_stamp, decode_sysinfo
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.merge import Stamped, merge_segments
from vmsonar_archive.read.source import Source, open_source
from vmsonar_archive.records import Sample, SysInfo
from vmsonar_archive.system.errors import VmsonarError


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of an archive, as its name and the journal tell."""

    name: SegmentName
    size: int
    entry: JournalEntry | None
    #: A merge took it in, but the merged file is not there as it should be: a record may be in both.
    merged: bool = False

    @property
    def path(self) -> str:
        return self.name.path

    @property
    def day(self) -> date:
        return self.name.day

    @property
    def sha256(self) -> str | None:
        return self.entry.sha256 if self.entry else None

    @property
    def sealed(self) -> bool:
        return self.entry is not None

    @property
    def first_seq(self) -> int:
        """The lowest number it can hold."""
        known = self.entry.first_seq if self.entry else None
        return self.name.first_seq if known is None else min(known, self.name.first_seq)

    def reaches_over(self, seq: int) -> bool:
        """Whether a number lies between its first and its last, as far as they are known."""
        last = self.entry.last_seq if self.entry else None
        return self.first_seq <= seq and (last is None or seq <= last)

    def may_hold(self, since: datetime | None, until: datetime | None) -> bool:
        """Whether records of that time can be in it; True where the journal does not tell."""
        if self.entry is None or self.entry.first is None or self.entry.last is None:
            return True
        if self.entry.first > self.entry.last:
            # The clock was set back while it was written, and these are not its earliest and latest times.
            return True
        return (since is None or self.entry.last >= since) and (until is None or self.entry.first < until)


class Archive:
    """An archive open for reading, from a folder or a bundle."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.identity = source.identity()
        self.findings: list[Finding] = []
        self.ledger, _ = source.journal()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.source.close()

    def segments(self, kind: str) -> list[Segment]:
        """The segments that hold one kind of record, in the order of their records."""
        present = self.source.segments(self.ledger)
        if any(path not in present and SegmentName.parse(path) for path in self.ledger.current):
            # Merged or dropped since the journal was read, perhaps.
            self._refresh()
            present = self.source.segments(self.ledger)
        found = []
        for path, (size, entry) in present.items():
            name = SegmentName.parse(path)
            if name is not None and name.kind == kind:
                found.append(Segment(name, size, entry, path in self.ledger.gone))
        return sorted(found, key=lambda segment: segment.name)

    def samples(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[Sample]:
        """Every sample from since (inclusive) to until (exclusive), in the order in which they were taken."""
        for line in self._lines(SAMPLE, since, until):
            try:
                sample = decode_sample(line)
            except BadLine as error:
                self._note(Code.BAD_RECORD, self.source.name, str(error))
                continue
            if (since is None or sample.time >= since) and (until is None or sample.time < until):
                yield sample

    def sysinfos(self) -> Iterator[SysInfo]:
        """Every description of the machine, in the order in which they were taken."""
        for line in self._lines(SYSINFO, None, None):
            try:
                yield decode_sysinfo(line)
            except BadLine as error:
                self._note(Code.BAD_RECORD, self.source.name, str(error))

    def lines(self, segment: Segment) -> Iterator[bytes]:
        """The checked lines of one segment, without their newlines; also when it was merged in the meantime."""
        try:
            stream = self._open(segment)
        except FileNotFoundError as error:
            yield from self._lines_elsewhere(segment, error)
            return
        except (OSError, VmsonarError) as error:
            self._note(Code.CORRUPT, segment.path, f"cannot be read: {error}")
            return
        try:
            with stream:
                for found in read_frames(stream):
                    if found.damage is not None:
                        self._note_damage(segment, found.damage)
                    yield from found.lines
        except (OSError, VmsonarError) as error:
            self._note(Code.CORRUPT, segment.path, f"cannot be read: {error}")

    def _open(self, segment: Segment) -> BinaryIO:
        return self.source.open_current(segment.entry) if segment.entry else self.source.open(segment.path)

    def _lines_elsewhere(self, segment: Segment, error: OSError) -> Iterator[bytes]:
        """The lines of a segment that is no longer there: from what took it in, unless it was dropped."""
        self._refresh()
        if segment.path not in self.ledger.gone:
            self._note(Code.CORRUPT, segment.path, f"cannot be read: {error}")
            return
        for heir in self._heirs(segment):
            for stamp, line in self._stamped(heir):
                if segment.reaches_over(stamp.seq):
                    yield line

    def _heirs(self, segment: Segment) -> list[Segment]:
        """By the journal's word; after a second merge it no longer tells, and the numbers do."""
        found = [
            Segment(name, entry.bytes, entry)
            for entry in self.ledger.current.values()
            if (name := SegmentName.parse(entry.path)) and name.kind == segment.name.kind
        ]
        named = [heir for heir in found if self.ledger.gone.get(segment.path) == heir.path]
        return named or [heir for heir in found if heir.reaches_over(segment.first_seq)]

    def _refresh(self) -> None:
        try:
            self.ledger, _ = self.source.journal()
        except (OSError, VmsonarError) as error:
            self._note(Code.CORRUPT, JOURNAL_FILE, f"cannot be read: {error}")

    def _stamped(self, segment: Segment) -> Iterator[Stamped]:
        for line in self.lines(segment):
            try:
                yield decode_stamp(line), line
            except BadLine as error:
                self._note(Code.BAD_RECORD, segment.path, str(error))

    def _lines(self, kind: str, since: datetime | None, until: datetime | None) -> Iterator[bytes]:
        segments = [segment for segment in self.segments(kind) if segment.may_hold(since, until)]
        return merge_segments([(segment.first_seq, partial(self._stamped, segment)) for segment in segments])

    def _note_damage(self, segment: Segment, damage: Damage) -> None:
        torn = damage.torn and not segment.sealed
        code = Code.TORN_TAIL if torn else Code.CORRUPT
        self._note(code, segment.path, f"{damage.detail}, at byte {damage.offset}")

    def _note(self, code: Code, path: str, detail: str) -> None:
        finding = Finding.of(code, path, detail)
        if finding not in self.findings:
            self.findings.append(finding)


def open_archive(path: Path) -> Archive:
    """Opens an archive for reading: a folder, or a bundle."""
    source = open_source(path)
    try:
        return Archive(source)
    except BaseException:
        source.close()
        raise


def last_sample(root: Path, see: Callable[[bytes], None] = lambda _line: None) -> Sample | None:
    """The newest sample that can be read; None for an archive without one, or no archive.

    `see` is called with every line of its segment, which describes what the sample itself only names.
    """
    try:
        archive = open_archive(root)
    except (VmsonarError, OSError):
        return None
    with archive:
        for segment in reversed(archive.segments(SAMPLE)):
            line = None
            for line in archive.lines(segment):
                see(line)
            if line is not None:
                try:
                    return decode_sample(line)
                except BadLine:
                    continue
    return None
