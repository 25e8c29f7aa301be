"""Reads whatever is readable of an archive, in order, each record once; damage is collected, never raised."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.format.journal import JournalEntry
from vmsonar_archive.format.layout import JOURNAL_FILE, SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.format.lines import BadLine, decode_sample, decode_stamp, decode_sysinfo
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.source import Source, open_source
from vmsonar_archive.records import Sample, Stamp, SysInfo
from vmsonar_archive.records.sets import MAX_SPANS, RecordSet
from vmsonar_archive.system.errors import VmsonarError

T = TypeVar("T")
Stamped = tuple[Stamp, bytes]
#: The lowest number that a segment can hold, and what opens it.
Waiting = tuple[int, Callable[[], Iterator[Stamped]]]

# Each one open costs a frame in memory; with more of them the order suffers, but nothing is lost.
_MAX_OPEN = 8


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
        for sample in self._records(SAMPLE, decode_sample, since, until):
            if (since is None or sample.time >= since) and (until is None or sample.time < until):
                yield sample

    def stamps(self) -> Iterator[Stamp]:
        """The id and time of every sample, in the same order, at a fraction of the price."""
        return self._records(SAMPLE, decode_stamp)

    def sysinfos(self) -> Iterator[SysInfo]:
        """Every description of the machine, in the order in which they were taken."""
        return self._records(SYSINFO, decode_sysinfo)

    def _records(
        self,
        kind: str,
        decode: Callable[[bytes], T],
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[T]:
        """The records of all segments that may hold one of that time."""
        segments = [segment for segment in self.segments(kind) if segment.may_hold(since, until)]
        waiting = [(segment.first_seq, partial(self._stamped, segment)) for segment in segments]
        for line in merge_segments(waiting):
            try:
                record = decode(line)
            except BadLine as error:
                self._note(Code.BAD_RECORD, self.source.name, str(error))
            else:
                yield record

    def lines(self, segment: Segment) -> Iterator[bytes]:
        """The checked lines of one segment, without their newlines; also when it was merged in the meantime."""
        entry, source = segment.entry, self.source
        try:
            with source.open_current(entry) if entry else source.open(segment.path) as stream:
                for found in read_frames(stream):
                    if damage := found.damage:
                        code = Code.TORN_TAIL if damage.torn and not segment.sealed else Code.CORRUPT
                        self._note(code, segment.path, f"{damage.detail}, at byte {damage.offset}")
                    yield from found.lines
        except FileNotFoundError as error:
            yield from self._lines_elsewhere(segment, error)
        except (OSError, VmsonarError) as error:
            self._note(Code.CORRUPT, segment.path, f"cannot be read: {error}")

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

    def _note(self, code: Code, path: str, detail: str) -> None:
        finding = Finding.of(code, path, detail)
        if finding not in self.findings:
            self.findings.append(finding)


def merge_segments(segments: Sequence[Waiting]) -> Iterator[bytes]:
    """The lines of all segments by their numbers; a segment is opened when its turn comes, usually alone."""
    waiting = sorted(segments, key=lambda segment: segment[0], reverse=True)
    heap: list[tuple[int, int, Stamped, Iterator[Stamped]]] = []
    seen = RecordSet(max_spans=MAX_SPANS)
    while waiting or heap:
        while waiting and (not heap or (len(heap) < _MAX_OPEN and waiting[-1][0] <= heap[0][0])):
            _, opened = waiting.pop()
            stream = opened()
            if (found := next(stream, None)) is not None:
                # The second figure is unique, so that what follows it is never compared.
                heapq.heappush(heap, (found[0].seq, -len(waiting), found, stream))
        if not heap:
            return
        _, order, (stamp, line), stream = heap[0]
        if seen.add(stamp):
            yield line
        if (found := next(stream, None)) is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (found[0].seq, order, found, stream))


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
