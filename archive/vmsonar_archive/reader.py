"""Reads whatever is readable of an archive, in order, each record once; damage is collected, never raised."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.frames import Damage, read_frames
from vmsonar_archive.journal import Entry
from vmsonar_archive.layout import SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.lines import BadLine, decode_sample, decode_stamp, decode_sysinfo
from vmsonar_archive.opening import open_source
from vmsonar_archive.records import Sample, SysInfo
from vmsonar_archive.source import Source


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of an archive, as its name and the journal tell."""

    name: SegmentName
    size: int
    entry: Entry | None

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

    def may_hold(self, since: datetime | None, until: datetime | None) -> bool:
        """Whether records of that time can be in it; True where the journal does not tell."""
        if self.entry is None or self.entry.first is None or self.entry.last is None:
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
        found = []
        for path, (size, entry) in self.source.segments(self.ledger).items():
            name = SegmentName.parse(path)
            if name is not None and name.kind == kind:
                found.append(Segment(name, size, entry))
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
        """The checked lines of one segment, without their newlines."""
        try:
            with self._open(segment) as stream:
                for found in read_frames(stream):
                    if found.damage is not None:
                        self._note_damage(segment, found.damage)
                    yield from found.lines
        except (OSError, VmsonarError) as error:
            self._note(Code.CORRUPT, segment.path, f"cannot be read: {error}")

    def _open(self, segment: Segment) -> BinaryIO:
        return self.source.open_current(segment.entry) if segment.entry else self.source.open(segment.path)

    def _lines(self, kind: str, since: datetime | None, until: datetime | None) -> Iterator[bytes]:
        last_seq = 0
        for segment in self.segments(kind):
            if not segment.may_hold(since, until):
                continue
            for line in self.lines(segment):
                try:
                    seq = decode_stamp(line).seq
                except BadLine as error:
                    self._note(Code.BAD_RECORD, segment.path, str(error))
                    continue
                # Segments are in order and so are their lines: what is not larger was read before.
                if seq > last_seq:
                    last_seq = seq
                    yield line

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
