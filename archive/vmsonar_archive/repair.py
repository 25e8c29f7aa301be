"""What a new writer does first: finish what a crash interrupted, throwing nothing readable away."""

import hashlib
import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from vmsonar_archive import files, layout
from vmsonar_archive.frames import LIVE_LEVEL
from vmsonar_archive.journal import SEAL, Entry, Journal
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.rewrite import examine, rewrite
from vmsonar_archive.segment import Sealed


class Repair:
    """Brings the files of an archive in line with its journal; the writer lock is held."""

    def __init__(
        self,
        root: Path,
        journal: Journal,
        now: Callable[[], datetime],
        fault: Callable[[str], None],
        is_ours: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """What is_ours names is left alone: a running writer, or its child, is still at it."""
        self._root = root
        self._journal = journal
        self._now = now
        self._fault = fault
        self._is_ours = is_ours
        #: No record has a higher number than this, although some may be unreadable.
        self.highest_seq = journal.ledger.last_seq

    def run(self) -> bool:
        """Finishes renames and removals, then seals every segment that is neither journalled nor being written.

        False when the disk refused some of it: it is to be run again.
        """
        root = files.open_root(self._root)
        try:
            paths = [path for path, size in files.list_tree(root) if size >= 0]
        finally:
            os.close(root)
        steps = [partial(self._tidy_up, path) for path in paths]
        steps += [partial(self._seal, name) for name in sorted(filter(None, map(SegmentName.parse, paths)))]
        return False not in [_succeeds(step) for step in steps]

    def _tidy_up(self, path: str) -> None:
        if self._is_ours(path):
            return
        if layout.is_temporary(path):
            self._settle(path)
        elif path in self._journal.ledger.gone and self._is_replaced(path):
            (self._root / path).unlink()

    def _is_replaced(self, path: str) -> bool:
        """Whether a file that should be gone may go: it was dropped, or what took it in is whole."""
        target = self._journal.ledger.gone[path]
        entry = self._journal.ledger.current.get(target) if target is not None else None
        return entry is None or sha256_of(self._root / entry.path) == entry.sha256

    def _settle(self, path: str) -> None:
        """Puts a temporary file in its place if the journal already says so; otherwise it is in the way."""
        if SegmentName.parse(layout.final(path)) is None:
            return  # somebody else's, who derives tables
        temporary = self._root / path
        entry = self._journal.ledger.current.get(layout.final(path))
        if entry is not None and sha256_of(temporary) == entry.sha256:
            temporary.rename(self._root / entry.path)
            files.fsync_folder(temporary.parent)
        else:
            temporary.unlink()

    def _seal(self, name: SegmentName) -> None:
        path = self._root / name.path
        known = self._journal.ledger
        if (
            name.path in known.current
            or name.path in known.gone
            or self._is_ours(name.path)
            or not path.exists()
        ):
            return
        self._count(name.first_seq)
        with path.open("rb") as source:
            found, torn = examine(source, name.path)
            if found.records == 0 and not found.damaged:
                path.unlink()
                return
            if torn and not found.damaged:
                source.seek(0)
                temporary = self._root / layout.temporary(name.path)
                temporary.unlink(missing_ok=True)
                found = rewrite([source], temporary, name.path, LIVE_LEVEL)
        # A record that cannot be read any more had a number too, and took at least a byte.
        self._count(name.first_seq + found.bytes if found.damaged else found.last_seq or 0)
        if torn and not found.damaged:
            self._fault("repair.before_journal")
            self._journal.append(entry_of(SEAL, found, self._now()))
            self._fault("repair.before_rename")
            temporary.rename(path)
            files.fsync_folder(path.parent)
        else:
            self._journal.append(entry_of(SEAL, found, self._now()))

    def _count(self, seq: int) -> None:
        self.highest_seq = max(self.highest_seq, seq)


def _succeeds(step: Callable[[], None]) -> bool:
    try:
        step()
    except OSError:
        return False
    return True


def entry_of(operation: str, sealed: Sealed, now: datetime, sources: list[str] | None = None) -> Entry:
    """The journal's line about a segment."""
    known = {field: getattr(sealed, field) for field in sealed.__dataclass_fields__}
    return msgspec.convert({"op": operation, "time": now, "sources": sources or [], **known}, Entry)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
