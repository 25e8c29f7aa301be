"""What a new writer does first: finish what a crash interrupted, throwing nothing readable away."""

import hashlib
import os
from collections.abc import Callable
from datetime import datetime
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
        self, root: Path, journal: Journal, now: Callable[[], datetime], fault: Callable[[str], None]
    ) -> None:
        self._root = root
        self._journal = journal
        self._now = now
        self._fault = fault

    def run(self, live: frozenset[str] = frozenset()) -> None:
        """Finishes renames and removals, then seals every segment that is neither journalled nor live."""
        root = files.open_root(self._root)
        try:
            paths = [path for path, size in files.list_tree(root) if size >= 0]
        finally:
            os.close(root)
        for path in paths:
            if layout.is_temporary(path):
                self._settle(path)
            elif path in self._journal.ledger.gone:
                (self._root / path).unlink()
        for name in sorted(filter(None, map(SegmentName.parse, paths))):
            if name.path not in live and name.path not in self._journal.ledger.current:
                self._seal(name)

    def _settle(self, path: str) -> None:
        """Puts a temporary file in its place if the journal already says so; otherwise it is in the way."""
        temporary = self._root / path
        entry = self._journal.ledger.current.get(layout.final(path))
        if entry is not None and _sha256(temporary) == entry.sha256:
            temporary.rename(self._root / entry.path)
            files.fsync_folder(temporary.parent)
        else:
            temporary.unlink()

    def _seal(self, name: SegmentName) -> None:
        path = self._root / name.path
        if not path.exists():
            return
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
        if torn and not found.damaged:
            self._fault("repair.before_journal")
            self._journal.append(entry_of(SEAL, found, self._now()))
            self._fault("repair.before_rename")
            temporary.rename(path)
            files.fsync_folder(path.parent)
        else:
            self._journal.append(entry_of(SEAL, found, self._now()))


def entry_of(operation: str, sealed: Sealed, now: datetime, sources: list[str] | None = None) -> Entry:
    """The journal's line about a segment."""
    known = {field: getattr(sealed, field) for field in sealed.__dataclass_fields__}
    return msgspec.convert({"op": operation, "time": now, "sources": sources or [], **known}, Entry)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
