"""The journal: one line per sealed, derived or dropped file, each with the hash of the line before.

A line is written before the file it speaks of takes its place (rename) or goes (unlink), so that at any moment
the journal tells which of two versions is the right one.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from vmsonar_archive import layout
from vmsonar_archive.errors import NOT_JSON
from vmsonar_archive.files import fsync_folder, write_all
from vmsonar_archive.layout import SegmentName

#: What the first line names as its predecessor.
GENESIS = "0" * 64

#: Operations after which the path holds a file.
SEAL, RECOMPRESS, MERGE, DERIVE = "seal", "recompress", "merge", "derive"
_GONE_KEPT = 10_000

#: Operation after which the file is gone.
DROP = "drop"


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the journal."""

    op: str
    path: str
    time: datetime
    bytes: int
    sha256: str
    records: int | None = None
    first: datetime | None = None
    last: datetime | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    #: Files that this one takes in; they go away (merge), or stay (derive).
    sources: list[str] = []
    #: Why a file was dropped: max_bytes, max_days or min_free.
    reason: str | None = None
    #: Sealed although parts of it cannot be read.
    damaged: bool = False
    prev: str = GENESIS


def _is_ours(path: str) -> bool:
    """Journals may come from anywhere, and paths in them are removed and renamed."""
    return SegmentName.parse(path) is not None or layout.is_parquet(path)


def line_hash(line: bytes) -> str:
    """The hash that the next line carries: SHA-256 of the line without its newline."""
    return hashlib.sha256(line).hexdigest()


class Ledger:
    """What the lines of a journal amount to."""

    def __init__(self, watched: str | None = None) -> None:
        """A head that was published earlier can be watched for: it must turn up on the way."""
        self._watched = watched
        self.met_watched = watched is None or watched == GENESIS
        self.head = GENESIS
        self.lines = 0
        self.current: dict[str, Entry] = {}
        self.dropped: list[Entry] = []
        #: Files that went lately: each with the file that took it in, or None when it was dropped.
        self.gone: dict[str, str | None] = {}
        self.last_seq = 0
        #: Number of the first line that does not follow from the one before; None when the chain holds.
        self.broken_at: int | None = None

    def add(self, line: bytes) -> bool:
        """Takes in one line without its newline; False when it is not a line of a journal."""
        try:
            entry = msgspec.json.decode(line, type=Entry)
            if not all(map(_is_ours, (entry.path, *entry.sources))):
                raise msgspec.ValidationError("a path that no file of an archive has")
        except NOT_JSON:
            self.broken_at = self.broken_at or self.lines + 1
            self.lines += 1
            return False
        if entry.prev != self.head:
            self.broken_at = self.broken_at or self.lines + 1
        self.lines += 1
        self.head = line_hash(line)
        self.met_watched = self.met_watched or self.head == self._watched
        self._apply(entry)
        return True

    def _apply(self, entry: Entry) -> None:
        self.last_seq = max(self.last_seq, entry.last_seq or 0)
        if entry.op == DROP:
            self.dropped.append(entry)
            self._forget(entry.path, None)
            return
        if entry.op == MERGE:
            for source in entry.sources:
                self._forget(source, entry.path)
        self.current[entry.path] = entry
        self.gone.pop(entry.path, None)

    def _forget(self, path: str, into: str | None) -> None:
        self.current.pop(path, None)
        self.gone[path] = into
        # Only a file that a crash left behind is looked up here, and the next start removes it.
        if len(self.gone) > _GONE_KEPT:
            del self.gone[next(iter(self.gone))]

    @classmethod
    def of(cls, lines: Iterable[bytes], watched: str | None = None) -> "Ledger":
        ledger = cls(watched)
        for line in lines:
            ledger.add(line)
        return ledger


class Journal:
    """The journal of an archive whose writer lock we hold."""

    def __init__(self, root: Path, fault: Callable[[str], None]) -> None:
        self._fault = fault
        path = root / layout.JOURNAL_FILE
        fresh = not path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, layout.FILE_MODE)
        if fresh:
            fsync_folder(root)
        self.ledger = Ledger.of(self._read_whole_lines())

    def _read_whole_lines(self) -> list[bytes]:
        """The lines that end in a newline; a torn last one is cut off."""
        size = os.fstat(self._descriptor).st_size
        content = os.pread(self._descriptor, size, 0)
        whole = content.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(self._descriptor, whole)
        self._size = whole
        return content[:whole].split(b"\n")[:-1]

    def append(self, entry: Entry) -> None:
        """Adds one line, durably; on failure the journal is as it was."""
        line = msgspec.json.encode(msgspec.structs.replace(entry, prev=self.ledger.head))
        data = line + b"\n"
        self._fault("journal.before")
        if os.fstat(self._descriptor).st_size != self._size:
            # An earlier failure could not be undone at the time.
            os.ftruncate(self._descriptor, self._size)
        try:
            write_all(self._descriptor, data)
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)
        self.ledger.add(line)
        self._fault("journal.after")

    def close(self) -> None:
        os.close(self._descriptor)
