"""The journal: one line per sealed, derived or dropped file, each with the hash of the line before.

A line is written before the file it speaks of takes its place (rename) or goes (unlink), so that at any moment
the journal tells which of two versions is the right one.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.format.lines import checksum_holds, finish
from vmsonar_archive.records.ids import Sha256
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError
from vmsonar_archive.system.files import fsync_folder, held, open_beneath, open_own, open_root, write_all

#: What the first line names as its predecessor.
GENESIS = "0" * 64

#: Operations after which the path holds a file.
SEAL, RECOMPRESS, MERGE, DERIVE = "seal", "recompress", "merge", "derive"
#: Operation after which the file is gone.
DROP = "drop"

_GONE_KEPT = 10_000
# Neither archive.json nor the namespace comes near this.
_MAX_SMALL = 1024 * 1024
# Longer last lines, of merges of very many files, are read with all the others.
_TAIL = 64 * 1024
# Two hashes and two words.
_MAX_WORDS = 1000


class ContentFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a file's content; the last five only of segments."""

    bytes: int
    sha256: str
    records: int | None = None
    first: datetime | None = None
    last: datetime | None = None
    first_seq: int | None = None
    last_seq: int | None = None

    def content(self) -> dict[str, Any]:
        """These fields, to make another Struct with them."""
        return {field: getattr(self, field) for field in ContentFacts.__struct_fields__}


class SegmentFacts(ContentFacts, frozen=True, kw_only=True):
    """What is known of a segment once it is closed."""

    path: str
    records: int
    damaged: bool = False


@dataclass
class Tally:
    """Counts the records that go into a file and remembers the lowest and highest times and numbers.

    Not those of the first and the last record: the clock can be set back in between.
    """

    records: int = 0
    first: datetime | None = None
    last: datetime | None = None
    first_seq: int | None = None
    last_seq: int | None = None

    def add(self, time: datetime, seq: int) -> None:
        self.records += 1
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)
        self.first_seq = seq if self.first_seq is None else min(self.first_seq, seq)
        self.last_seq = seq if self.last_seq is None else max(self.last_seq, seq)

    def facts(self, path: str, size: int, sha256: str, damaged: bool = False) -> SegmentFacts:
        """The facts of the file, which has this size and hash."""
        return SegmentFacts(path=path, bytes=size, sha256=sha256, damaged=damaged, **vars(self))


class _EntryHead(ContentFacts, frozen=True):
    """What a line begins with: msgspec puts fields that are not keyword-only before those of ContentFacts."""

    op: str
    path: str
    time: datetime


class JournalEntry(_EntryHead, frozen=True, kw_only=True):
    """One line of the journal."""

    #: Files that this one takes in; they go away (merge), or stay (derive).
    sources: list[str] = msgspec.field(default_factory=list)
    #: Why a file was dropped: max_bytes, max_days or min_free.
    reason: str | None = None
    #: Sealed although parts of it cannot be read.
    damaged: bool = False
    #: SHA-256 of archive.json and of the namespace, so that a change of theirs shows.
    identity: Sha256 | None = None
    namespace: Sha256 | None = None
    prev: str = GENESIS

    @classmethod
    def of(cls, op: str, facts: SegmentFacts, time: datetime, sources: Sequence[str] = ()) -> "JournalEntry":
        """The line about a segment."""
        content = facts.content()
        return cls(op, facts.path, time, sources=list(sources), damaged=facts.damaged, **content)


def line_of(entry: JournalEntry, prev: str) -> bytes:
    """The line after the one of that hash, without its newline; its last member is its own checksum."""
    return finish(msgspec.json.encode(msgspec.structs.replace(entry, prev=prev))[:-1])[:-1]


def line_hash(line: bytes) -> str:
    """The hash that the next line carries: SHA-256 of the line without its newline."""
    return hashlib.sha256(line).hexdigest()


def _parsed(line: bytes) -> JournalEntry | None:
    """What a line says; None where it is no line of a journal, or names what no file of an archive is called."""
    try:
        entry = msgspec.json.decode(line, type=JournalEntry)
    except NOT_JSON:
        return None
    words = (entry.op, entry.sha256, entry.prev, entry.reason or "")
    short = sum(map(len, words)) <= _MAX_WORDS
    return entry if short and all(map(layout.is_archived, (entry.path, *entry.sources))) else None


def _is_unchanged(line: bytes, entry: JournalEntry) -> bool:
    """A line of an earlier version has neither a checksum nor what came with it."""
    holds = checksum_holds(line)
    return entry.identity is None if holds is None else holds


def _sha256_at(root: Path, name: str) -> str | None:
    """The hash of a small file of the archive; None where it cannot be read."""
    with held(open_root(root)) as folder:
        try:
            with open_beneath(folder, name) as file:
                return hashlib.sha256(file.read(_MAX_SMALL)).hexdigest()
        except (OSError, VmsonarError):
            return None


class Ledger:
    """The state that the lines of a journal add up to."""

    def __init__(self, watched: str | None = None) -> None:
        """`watched` is a head that was published earlier, which must occur among the lines."""
        self._watched = watched
        self.met_watched = watched is None or watched == GENESIS
        self.head = GENESIS
        self.lines = 0
        self.current: dict[str, JournalEntry] = {}
        self.dropped: list[JournalEntry] = []
        #: Files that went lately: each with the file that took it in, or None when it was dropped.
        self.gone: OrderedDict[str, str | None] = OrderedDict()
        self.last_seq = 0
        #: Number of the first line that does not follow from the one before; None when the chain holds.
        self.broken_at: int | None = None
        self.broken_how = ""
        #: SHA-256 of archive.json and of the namespace, by the first line that has them.
        self.identity: str | None = None
        self.namespace: str | None = None

    def add(self, line: bytes) -> bool:
        """Takes in one line without its newline; False when it is not a line of a journal."""
        entry = _parsed(line)
        if entry is None or not _is_unchanged(line, entry):
            # It may name another file than was meant: nothing is removed or believed by its word.
            wrong = "is not a line of a journal" if entry is None else "was changed: its checksum differs"
            self.break_here(wrong)
            self.lines += 1
            return False
        if entry.prev != self.head:
            self.break_here("does not follow from the line before it")
        self.identity = self.identity or entry.identity
        self.namespace = self.namespace or entry.namespace
        if (entry.identity or self.identity) != self.identity:
            self.break_here("was written for another archive.json than the lines before it")
        self.lines += 1
        self.head = line_hash(line)
        self.met_watched = self.met_watched or self.head == self._watched
        self._apply(entry)
        return True

    def break_here(self, how: str) -> None:
        """Records that the next line is wrong; only the first such line counts."""
        if self.broken_at is None:
            self.broken_at, self.broken_how = self.lines + 1, how

    def _apply(self, entry: JournalEntry) -> None:
        self.last_seq = max(self.last_seq, entry.last_seq or 0)
        if entry.op == DROP:
            self.dropped.append(entry)
            self._forget(entry.path, None)
            return
        if entry.op == MERGE:
            for source in entry.sources:
                self._forget(source, entry.path)
        # What it took in is told by `gone`: a hostile line names tens of thousands.
        self.current[entry.path] = msgspec.structs.replace(entry, sources=[]) if entry.sources else entry
        self.gone.pop(entry.path, None)

    def _forget(self, path: str, into: str | None) -> None:
        self.current.pop(path, None)
        self.gone[path] = into
        # Only a file that a crash left behind is looked up here, and the next start removes it.
        if len(self.gone) > _GONE_KEPT:
            self.gone.popitem(last=False)

    @classmethod
    def after(cls, checked: bytes, paths: Iterable[str] = ()) -> "Ledger":
        """The state after lines that were checked before: where the chain goes on, and no other files than these."""
        ledger = cls()
        last = checked[checked.rfind(b"\n", 0, -1) + 1 : -1]
        ledger.head, ledger.lines = line_hash(last), checked.count(b"\n")
        if (entry := _parsed(last)) is not None:
            ledger.identity, ledger.namespace = entry.identity, entry.namespace
        for path in paths:
            place = checked.rfind(b'"path":"%b"' % path.encode())
            line = (
                checked[checked.rfind(b"\n", 0, place) + 1 : checked.find(b"\n", place)]
                if place >= 0
                else b""
            )
            if (entry := _parsed(line)) is not None and entry.op != DROP:
                ledger.current[path] = msgspec.structs.replace(entry, sources=[])
        return ledger

    @classmethod
    def of(cls, lines: Iterable[bytes], watched: str | None = None) -> "Ledger":
        ledger = cls(watched)
        for line in lines:
            ledger.add(line)
        return ledger


class JournalMark(msgspec.Struct, frozen=True, array_like=True):
    """How far a journal was checked: its bytes and lines then, and the hash of the last line."""

    size: int
    lines: int
    head: str


class Journal:
    """The journal of an archive whose writer lock we hold."""

    def __init__(
        self, root: Path, fault: Callable[[str], None] = lambda _point: None, known: JournalMark | None = None
    ) -> None:
        """`fault` is called with the name of every point at which a test may want to end us.

        What was checked up to its present end is not read again: the chain goes on from its last line, and the ledger
        then lacks the files of before (`is_resumed`).
        """
        self.root = root
        self.fault = fault
        path = root / layout.JOURNAL_FILE
        fresh = not os.path.lexists(path)
        self._descriptor = open_own(path, os.O_RDWR | os.O_APPEND)
        try:
            if fresh:
                fsync_folder(root)
            resumed = None if known is None else self._resumed(known)
            self.is_resumed = resumed is not None
            self.ledger = resumed or Ledger.of(self._read_whole_lines())
        except BaseException:
            self.close()
            raise
        # Fixed by the first line: a file that was changed since must not be vouched for.
        self._identity = self.ledger.identity or _sha256_at(root, layout.ARCHIVE_FILE)
        self._namespace = self.ledger.namespace or _sha256_at(root, layout.NAMESPACE_FILE)

    @property
    def mark(self) -> JournalMark:
        """How far it was checked, for the next who opens it."""
        return JournalMark(self._size, self.ledger.lines, self.ledger.head)

    def _resumed(self, known: JournalMark) -> Ledger | None:
        """What is known of a journal that ends as it did; None for another, which is to be read."""
        if not known.size or os.fstat(self._descriptor).st_size != known.size:
            return None
        tail = os.pread(self._descriptor, _TAIL, max(0, known.size - _TAIL))
        line = tail[:-1].rpartition(b"\n")[2]
        if not tail.endswith(b"\n") or line_hash(line) != known.head:
            return None
        ledger = Ledger.after(line + b"\n")
        ledger.lines, self._size = known.lines, known.size
        return ledger

    def _read_whole_lines(self) -> list[bytes]:
        """The lines that end in a newline; a torn last one is cut off."""
        with open(self._descriptor, "rb", closefd=False) as file:
            content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # What the disk refuses now is done before the next line.
            with suppress(OSError):
                os.ftruncate(self._descriptor, whole)
        self._size = whole
        return content[:whole].split(b"\n")[:-1]

    def append(self, *entries: JournalEntry) -> None:
        """Adds lines, durably; on failure the journal is as it was."""
        lines: list[bytes] = []
        head = self.ledger.head
        for entry in entries:
            told = msgspec.structs.replace(entry, identity=self._identity, namespace=self._namespace)
            lines.append(line_of(told, head))
            head = line_hash(lines[-1])
        data = b"".join(line + b"\n" for line in lines)
        self.fault("journal.before")
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
        for line in lines:
            self.ledger.add(line)
        self.fault("journal.after")

    def close(self) -> None:
        os.close(self._descriptor)
