"""Follows one kind of record through an archive that is being written, rolled over, merged, repaired and pruned."""

import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard
from vmsonar_archive.format import layout
from vmsonar_archive.format.frames import Lines, read_frames
from vmsonar_archive.format.journal import JournalEntry, Ledger
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.format.lines import MAX_LINE, BadLine, checked, decode_stamp
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system import files

# So little that what comes out of it stays small, whatever the size of the segment.
_CHUNK = 16 * 1024
_MAX_WINDOW = 8 * 1024 * 1024


class Damaged(ValueError):
    """The bytes are damaged; reading frame by frame may get at what follows."""


class LineStream:
    """Continues where it stopped; notices when another file takes the place of the one it reads."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        status = os.fstat(file.fileno())
        self._identity = (status.st_dev, status.st_ino)
        self._machine: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""

    def reads(self, path: str, status: os.stat_result) -> bool:
        """Whether this is the file that lies at the path now."""
        return path == self.path and (status.st_dev, status.st_ino) == self._identity

    def close(self) -> None:
        self._file.close()

    def frames(self) -> Iterator[Lines]:
        """The frames of the whole file, for a file in which lines cannot be read on."""
        self._file.seek(0)
        return read_frames(self._file)

    def next_lines(self) -> list[bytes] | None:
        """The lines of the next piece, which may be none; None at the end of what is written so far."""
        data = self._file.read(_CHUNK)
        if not data:
            return None
        text = self._decompress(data)
        *whole, self._rest = (self._rest + text).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise Damaged("a line is too long")
        try:
            return [checked(line) for line in whole]
        except BadLine as error:
            raise Damaged(str(error)) from None

    def _decompress(self, data: bytes) -> bytes:
        parts = []
        try:
            while data:
                if self._machine is None:
                    self._machine = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
                parts.append(self._machine.decompress(data))
                data = b""
                if self._machine.eof:
                    data = self._machine.unused_data
                    self._machine = None
        except zstandard.ZstdError as error:
            raise Damaged(str(error)) from None
        return b"".join(parts)


class LedgerView:
    """The journal as it is now; cheap to refresh."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begin()

    def _begin(self) -> None:
        self.ledger = Ledger()
        self._offset = 0
        self._inode = -1

    @property
    def version(self) -> tuple[int, int]:
        """Differs whenever the journal differs."""
        return self._inode, self._offset

    def refresh(self) -> None:
        """Takes in the whole lines that were added."""
        try:
            with files.open_inside(self._root, layout.JOURNAL_FILE) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._begin()
                    self._inode = status.st_ino
                if status.st_size > self._offset:
                    file.seek(self._offset)
                    *lines, rest = file.read(status.st_size - self._offset).split(b"\n")
                    for line in lines:
                        self.ledger.add(line)
                    self._offset = file.tell() - len(rest)
        except FileNotFoundError:
            self._begin()

    def lost_between(self, kind: str, after: int, before: int, present: dict[str, int]) -> int:
        """Records of a kind with numbers between the two that were in files which are no longer there."""
        missing = [entry for path, entry in self.ledger.current.items() if path not in present]
        return sum(
            self._records_after(entry, kind, after)
            for entry in (*self.ledger.dropped, *missing)
            if _kind(entry) == kind and (entry.last_seq or 0) > after and (entry.first_seq or 0) < before
        )

    def _records_after(self, entry: JournalEntry, kind: str, seq: int) -> int:
        """How many records of a file come after that number, which may lie inside it."""
        records, last = entry.records or 0, entry.last_seq or 0
        if (entry.first_seq or 0) > seq:
            return records
        # Both kinds share the numbers: those of the other kind are not this file's.
        others = [
            other for other in (*self.ledger.dropped, *self.ledger.current.values()) if _kind(other) != kind
        ]
        inside = [other for other in others if seq < (other.first_seq or 0) and (other.last_seq or 0) < last]
        return min(records, last - seq - sum(other.records or 0 for other in inside))

    def forget_before(self, seq: int) -> None:
        """Forgets dropped files that nobody will ask about any more."""
        self.ledger.dropped = [entry for entry in self.ledger.dropped if (entry.last_seq or 0) > seq]


def _kind(entry: JournalEntry) -> str | None:
    name = SegmentName.parse(entry.path)
    return name.kind if name else None


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the archive."""

    kind: str
    stamp: Stamp
    line: bytes
    #: True for what was sent before: it is only learnt from.
    passed: bool = False
    #: Records between the one before and this one that the archive no longer holds, or cannot be read.
    dropped_before: int = 0
    unreadable_before: int = 0
    #: Everything up to this number came before it.
    up_to: int = 0


class _Moved(Exception):
    """The files changed while we read them: look again."""


class Tail:
    """The written records of one kind that were not taken yet."""

    def __init__(self, root: Path, kind: str, journal: LedgerView, taken: Taken | None = None) -> None:
        self.kind = kind
        self._taken = Taken(up_to=taken.up_to, runs=dict(taken.runs)) if taken else Taken()
        #: The highest number that was met.
        self.position = self._taken.highest
        self._up_to = 0
        #: Segments that were read to their end, and what they were then.
        self._done: dict[str, tuple[int | None, int | None]] = {}
        self.journal = journal
        self._source = FolderSource(root)
        self._stream: LineStream | None = None
        #: How many lines of the segment at hand were read, to tell how many could not be.
        self._lines_read = 0
        self._unreadable = 0
        self._learning = self.position > 0

    def close(self) -> None:
        self._drop_stream()
        self._source.close()

    def read(self) -> Iterator[Record]:
        """What is new in the next segment that has something new; nothing when all is read."""
        while True:
            try:
                yield from self._round()
            except _Moved:
                continue
            return

    def _round(self) -> Iterator[Record]:
        self.journal.refresh()
        version = self.journal.version
        names = self.names()
        begun = bisect_right(names, self._taken.up_to, key=lambda name: name.first_seq)
        for name in names[max(0, begun - 1) :]:
            if name.first_seq > self.position + 1:
                self._check_unmoved(version)
            state = self._state(name.path)
            if self._done.get(name.path) == state:
                continue
            self._up_to = self._vouched(names, name)
            found = False
            for record in self._segment(name, version):
                found = found or not record.passed
                yield record
            self._done[name.path] = state
            if found:
                break
        else:
            self._done = {name.path: self._done[name.path] for name in names if name.path in self._done}
        self._learning = False

    def _state(self, path: str) -> tuple[int | None, int | None]:
        """Differs when a segment may hold more than before: by the journal, or by its length."""
        entry = self.journal.ledger.current.get(path)
        if entry is not None:
            return entry.records, entry.last_seq
        with suppress(FileNotFoundError):
            return None, self._stat(path).st_size
        return None, None

    def _vouched(self, names: list[SegmentName], name: SegmentName) -> int:
        """Up to where all was read when a segment's turn comes: no further than the journal goes, and no open file."""
        ledger = self.journal.ledger
        opened = (one.first_seq for one in names if one.path not in ledger.current)
        return min(name.first_seq, ledger.last_seq + 1, *opened) - 1

    def _check_unmoved(self, version: tuple[int, int]) -> None:
        """What seems to be missing may just have been merged into a file that was listed before."""
        self.journal.refresh()
        if self.journal.version != version:
            raise _Moved

    def names(self) -> list[SegmentName]:
        """The segments of this kind in the order of their records."""
        gone = self.journal.ledger.gone
        found = (SegmentName.parse(path) for path in self._source.sizes() if path not in gone)
        return sorted(name for name in found if name is not None and name.kind == self.kind)

    def names_up_to(self, seq: float = math.inf) -> list[SegmentName]:
        """The segments that begin with this number or a smaller one."""
        self.journal.refresh()
        return [name for name in self.names() if name.first_seq <= seq]

    def stamps(self, name: SegmentName) -> Iterator[Stamp]:
        """The stamps of everything readable in one segment."""
        try:
            for lines in self._pieces(name.path, self.journal.ledger.current.get(name.path)):
                for line in lines:
                    with suppress(BadLine):
                        yield decode_stamp(line)
        except FileNotFoundError:
            return
        finally:
            self._drop_stream()

    def _segment(self, name: SegmentName, version: tuple[int, int]) -> Iterator[Record]:
        entry = self.journal.ledger.current.get(name.path)
        if entry is not None and (entry.last_seq or 0) <= self._taken.up_to and not self._learning:
            return
        try:
            for lines in self._pieces(name.path, entry):
                yield from self._new(lines)
        except FileNotFoundError:
            self._check_unmoved(version)
        except GeneratorExit:
            # Lines were read that nobody got: the next one begins with the file anew.
            self._drop_stream()
            raise
        if entry is not None:
            # A sealed segment is done, whether or not all of it could be read.
            self._unreadable += max(0, (entry.records or 0) - self._lines_read)
            self.position = max(self.position, entry.last_seq or 0)
            self._drop_stream()

    def _pieces(self, path: str, entry: JournalEntry | None) -> Iterator[list[bytes]]:
        """The lines of a segment piece by piece; where it is damaged, those that can still be got at."""
        stream = self._continue(path, entry)
        try:
            while (lines := stream.next_lines()) is not None:
                yield lines
        except Damaged:
            self._lines_read = 0
            try:
                for found in stream.frames():
                    yield found.lines
            finally:
                self._drop_stream()

    def _continue(self, path: str, entry: JournalEntry | None) -> LineStream:
        with suppress(FileNotFoundError):
            if self._stream is not None and self._stream.reads(path, self._stat(path)):
                return self._stream
        self._drop_stream()
        self._lines_read = 0
        file = self._source.open_current(entry) if entry is not None else self._source.open(path)
        self._stream = LineStream(path, file)
        return self._stream

    def _stat(self, path: str) -> os.stat_result:
        return os.stat(path, dir_fd=self._source.folder, follow_symlinks=False)

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _new(self, lines: list[bytes]) -> Iterator[Record]:
        for line in lines:
            try:
                stamp = decode_stamp(line)
            except BadLine:
                continue
            self._lines_read += 1
            if not self._taken.has(stamp):
                yield self._next(stamp, line)
            elif self._learning:
                yield Record(self.kind, stamp, line, passed=True)

    def _next(self, stamp: Stamp, line: bytes) -> Record:
        dropped = 0
        if stamp.seq > self.position + 1:
            dropped = self.journal.lost_between(self.kind, self.position, stamp.seq, self._source.sizes())
        record = Record(self.kind, stamp, line, False, dropped, self._unreadable, self._up_to)
        self._unreadable = 0
        self._taken.add(stamp.run, stamp.seq, self._up_to)
        self.position = max(self.position, stamp.seq)
        return record
