"""Finishes what a crash interrupted, before a new writer appends; nothing readable is thrown away."""

from collections.abc import Callable, Container
from datetime import datetime
from functools import partial
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.format.frames import LIVE_LEVEL
from vmsonar_archive.format.journal import SEAL, ContentFacts, Journal, JournalEntry, SegmentFacts
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.source import is_journalled
from vmsonar_archive.system import files
from vmsonar_archive.write.rewrite import examine, rewrite


class Repair:
    """Brings the files of an archive in line with its journal; the writer lock is held."""

    def __init__(self, journal: Journal, now: Callable[[], datetime], own: Container[str]) -> None:
        """`own` files are left alone: a running writer, or its child, still works on them."""
        self._root = journal.root
        self._journal = journal
        self._now = now
        self._own = own
        self._known_seq = journal.ledger.last_seq
        self._unread_bytes = 0

    @property
    def highest_seq(self) -> int:
        """No record has a higher number than this, whether or not it could be read and sealed.

        Numbers above the known ones can only be in files that could not be read, and a record takes at least a byte.
        """
        return self._known_seq + self._unread_bytes

    def run(self) -> bool:
        """Finishes renames and removals, then seals every segment that is neither journalled nor being written.

        False when the disk refused some of it: it is to be run again. Raises OSError when it cannot even be told
        which files there are, because then nobody knows which numbers were given.
        """
        with files.held(files.open_root(self._root)) as root:
            sizes = {path: size for path, size in files.list_tree(root) if size >= 0}
        names = sorted(filter(None, map(SegmentName.parse, sizes)))
        self._known_seq = max(self._known_seq, *(name.first_seq for name in names), 0)
        steps = [partial(self._tidy_up, path) for path in sizes]
        steps += [partial(self._seal, name, sizes[name.path]) for name in names]
        return False not in [_succeeds(step) for step in steps]

    def _tidy_up(self, path: str) -> None:
        if path in self._own:
            return
        if layout.is_temporary(path):
            self._settle(path)
        elif path in self._journal.ledger.gone and self._is_replaced(path):
            (self._root / path).unlink()

    def _is_replaced(self, path: str) -> bool:
        """Whether a file that should be gone may go: it was dropped, or what took it in is whole."""
        target = self._journal.ledger.gone[path]
        entry = self._journal.ledger.current.get(target) if target is not None else None
        return entry is None or is_journalled_at(self._root, entry.path, entry)

    def _settle(self, path: str) -> None:
        """Puts a temporary file in its place if the journal already says so; otherwise it is in the way."""
        if SegmentName.parse(layout.final(path)) is None:
            return  # somebody else's, who derives tables
        temporary = self._root / path
        entry = self._journal.ledger.current.get(layout.final(path))
        if entry is not None and is_journalled_at(self._root, path, entry):
            files.rename_durably(temporary, self._root / entry.path)
        else:
            temporary.unlink()

    def _seal(self, name: SegmentName, size: int) -> None:
        path = self._root / name.path
        ledger = self._journal.ledger
        if any(name.path in known for known in (ledger.current, ledger.gone, self._own)) or not path.exists():
            return
        found, torn = self._examine(name, size)
        if found.records == 0 and not found.damaged:
            path.unlink()
        elif torn and not found.damaged:
            temporary = self._root / layout.temporary(name.path)
            temporary.unlink(missing_ok=True)
            with files.open_inside(self._root, name.path) as source:
                found = rewrite([source], temporary, name.path, LIVE_LEVEL)
            self._journal.fault("repair.before_journal")
            self._journal.append(JournalEntry.of(SEAL, found, self._now()))
            self._journal.fault("repair.before_rename")
            files.rename_durably(temporary, path)
        else:
            self._journal.append(JournalEntry.of(SEAL, found, self._now()))

    def _examine(self, name: SegmentName, size: int) -> tuple[SegmentFacts, bool]:
        """What is in a segment, and whether it lacks its end; its numbers count whatever comes of sealing it."""
        try:
            with files.open_inside(self._root, name.path) as source:
                found, torn = examine(source, name.path)
        except (OSError, files.Refused):
            self._unread_bytes += size
            raise
        self._known_seq = max(self._known_seq, found.last_seq or 0)
        self._unread_bytes += found.bytes if found.damaged else 0
        return found, torn


def _succeeds(step: Callable[[], None]) -> bool:
    try:
        step()
    except (OSError, files.Refused):
        return False
    return True


def is_journalled_at(root: Path, path: str, facts: ContentFacts) -> bool:
    """Whether the file at a path is the one that the journal speaks of, or will."""
    with files.open_inside(root, path) as file:
        return is_journalled(file, facts)
