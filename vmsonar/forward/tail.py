"""Follows one kind of record through an archive that is being written, rolled over, merged, repaired and pruned.

Invariants:
- Records come in the order of their numbers, each once; where we are is a number, never a place in a file.
- Only what the journal does not list is followed byte by byte; whatever happens to a file afterwards (sealing,
  recompression, merging, repair) leaves its records their numbers, so that reading goes on by number.
- A file that is gone when we come to it ends the round; the journal, which is written first, then tells why.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive import files, layout
from vmsonar_archive.frames import read_frames
from vmsonar_archive.journal import Entry
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.lines import BadLine, decode_stamp
from vmsonar_archive.records import Stamp

from vmsonar.forward.ledger_view import LedgerView
from vmsonar.forward.line_stream import Damaged, LineStream


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


class _Moved(Exception):
    """The files changed under us: look again."""


class Tail:
    """The records of one kind after a given one, as far as they are written."""

    def __init__(self, root: Path, kind: str, journal: LedgerView, after: int = 0) -> None:
        self.kind = kind
        self.position = after
        self._journal = journal
        self._root = files.open_root(root)
        self._stream: LineStream | None = None
        #: How many lines of the segment at hand were read, to tell how many could not be.
        self._lines_read = 0
        self._unreadable = 0
        self._learning = after > 0

    def close(self) -> None:
        self._drop_stream()
        os.close(self._root)

    def read(self) -> Iterator[Record]:
        """What is new in the next segment that has something new; nothing when all is read."""
        while True:
            try:
                yield from self._round()
            except _Moved:
                continue
            return

    def _round(self) -> Iterator[Record]:
        self._journal.refresh()
        version = self._journal.version
        for name in self._candidates():
            if name.first_seq > self.position + 1:
                self._check_unmoved(version)
            before = self.position
            yield from self._segment(name, version)
            if self.position > before:
                return

    def _check_unmoved(self, version: tuple[int, int]) -> None:
        """What seems to be missing may just have been merged into a file that was listed before."""
        self._journal.refresh()
        if self._journal.version != version:
            raise _Moved

    def paths(self) -> dict[str, int]:
        """Every file of the archive with its size."""
        return dict(files.list_tree(self._root))

    def names(self) -> list[SegmentName]:
        """The segments of this kind in the order of their records."""
        gone = self._journal.ledger.gone
        found = (SegmentName.parse(path) for path in self.paths() if path not in gone)
        return sorted(name for name in found if name is not None and name.kind == self.kind)

    def _candidates(self) -> list[SegmentName]:
        names = self.names()
        return names[max(0, _count_up_to(names, self.position) - 1) :]

    def names_up_to(self, seq: int) -> list[SegmentName]:
        """The segments that begin with this number or a smaller one."""
        self._journal.refresh()
        names = self.names()
        return names[: _count_up_to(names, seq)]

    def stamps(self, name: SegmentName) -> Iterator[Stamp]:
        """The stamps of everything readable in one segment."""
        try:
            for lines in self._pieces(name.path, self._journal.ledger.current.get(name.path)):
                for line in lines:
                    with suppress(BadLine):
                        yield decode_stamp(line)
        except FileNotFoundError:
            return
        finally:
            self._drop_stream()

    def _segment(self, name: SegmentName, version: tuple[int, int]) -> Iterator[Record]:
        entry = self._journal.ledger.current.get(name.path)
        if entry is not None and (entry.last_seq or 0) <= self.position and not self._learning:
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
            self._settle(entry)
            self._drop_stream()
        self._learning = False

    def _pieces(self, path: str, entry: Entry | None) -> Iterator[list[bytes]]:
        """The lines of a segment piece by piece; where it is damaged, those that can still be got at."""
        stream = self._continue(path, entry)
        try:
            while (lines := stream.next_lines()) is not None:
                yield lines
        except Damaged:
            place = stream.place
            self._drop_stream()
            self._lines_read = 0
            with files.open_beneath(self._root, place) as file:
                for found in read_frames(file):
                    yield found.lines

    def _continue(self, path: str, entry: Entry | None) -> LineStream:
        if self._stream is not None and self._is_in_place(self._stream, path):
            return self._stream
        self._drop_stream()
        self._lines_read = 0
        self._stream = self._open(path, entry)
        return self._stream

    def _open(self, path: str, entry: Entry | None) -> LineStream:
        """The file that the journal speaks of: its next version, where that has not taken its place yet."""
        if entry is not None:
            for place in (path, layout.temporary(path)):
                with suppress(FileNotFoundError):
                    stream = LineStream(path, place, files.open_beneath(self._root, place))
                    if stream.size == entry.bytes:
                        return stream
                    stream.close()
        # It may have taken its place just now; or it is damaged.
        return LineStream(path, path, files.open_beneath(self._root, path))

    def _is_in_place(self, stream: LineStream, path: str) -> bool:
        try:
            return stream.reads(path, os.stat(path, dir_fd=self._root, follow_symlinks=False))
        except FileNotFoundError:
            return False

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
            if stamp.seq > self.position:
                yield self._next(stamp, line)
            elif self._learning:
                yield Record(self.kind, stamp, line, passed=True)

    def _next(self, stamp: Stamp, line: bytes) -> Record:
        dropped = 0
        if stamp.seq > self.position + 1:
            dropped = self._journal.lost_between(self.kind, self.position, stamp.seq, self.paths())
        record = Record(self.kind, stamp, line, False, dropped, self._unreadable)
        self._unreadable = 0
        self.position = stamp.seq
        return record

    def _settle(self, entry: Entry) -> None:
        """A sealed segment is done, whether or not all of it could be read."""
        self._unreadable += max(0, (entry.records or 0) - self._lines_read)
        self.position = max(self.position, entry.last_seq or 0)


def _count_up_to(names: list[SegmentName], seq: int) -> int:
    return bisect_right(names, seq, key=lambda name: name.first_seq)
