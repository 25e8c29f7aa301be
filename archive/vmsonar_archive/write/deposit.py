"""Files whole segments that another archive's writer made: how records from elsewhere come into an archive of ours.

Invariants:
- A file is written and synced beside its place, then journalled, then renamed, as every other way in does it: what a
  crash leaves is finished or removed by the next one.
- One process at a time adds to an archive; the others wait.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from vmsonar_archive.format import identity, layout
from vmsonar_archive.format.journal import DROP, SEAL, ContentFacts, Journal, JournalEntry, JournalMark
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import FormatError, Locked, VmsonarError
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.repair import Repair
from vmsonar_archive.write.upkeep import Upkeep

# Somebody else files a bundle of a month meanwhile.
LOCK_SECONDS = 120.0
_LOOK_SECONDS = 0.02
# What is kept how long is decided over all archives, by whoever keeps them.
_NO_LIMIT = Budget(max_bytes=2**60, min_free=0)


class OtherArchive(FormatError):
    """It has the same id, but is of another machine or time."""


class Deposit:
    """An archive that this process alone adds to, until close()."""

    def __init__(
        self,
        root: Path,
        archive_json: bytes,
        now: Callable[[], datetime],
        fault: Callable[[str], None] = lambda _point: None,
        patience: float = LOCK_SECONDS,
        known: JournalMark | None = None,
    ) -> None:
        """Begins the archive where there is none; it stays the archive that its archive.json names.

        With `known`, how the journal was left after a commit, an archive that is as it was is only added to.
        """
        self.root = root
        self._now = now
        self._fault = fault
        self._waiting: list[JournalEntry] = []
        files.make_folders(root, root)
        with ExitStack() as undo:
            self._lock = _locked(root, patience)
            undo.callback(self._lock.close)
            _identify(root, archive_json)
            self.journal = Journal(root, fault, known)
            undo.callback(self.journal.close)
            if not self.journal.is_resumed and not Repair(self.journal, now, ()).run():
                raise VmsonarError(
                    f"{root} cannot be brought in order: see what the disk says, then try again"
                )
            undo.pop_all()

    def __enter__(self) -> "Deposit":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, path: str, known: ContentFacts, content: Iterable[bytes], operation: str = SEAL) -> None:
        """Writes a file beside its place; it is of the archive once commit() has returned."""
        place = self._free(path)
        temporary = files.beneath(self.root, layout.temporary(place))
        files.make_folders(self.root, temporary.parent)
        temporary.unlink(missing_ok=True)  # of one that was killed
        with files.create(temporary, lambda _folder: None) as file:

            def kept() -> Iterable[bytes]:
                for chunk in content:
                    files.write_all(file.fileno(), chunk)
                    yield chunk

            if files.sha256_of_chunks(kept()) != (known.bytes, known.sha256):
                raise FormatError(f"{path} changed while it was read")
            os.fsync(file.fileno())
        self._waiting.append(JournalEntry(operation, place, self._now(), **known.content()))

    def commit(self) -> None:
        """Makes everything that was added part of the archive, durably."""
        if not self._waiting:
            return
        self._fault("deposit.before_journal")
        folders = {(self.root / entry.path).parent for entry in self._waiting}
        for folder in folders:
            files.fsync_folder(folder)
        self.journal.append(*self._waiting)
        self._fault("deposit.before_rename")
        for entry in self._waiting:
            (self.root / layout.temporary(entry.path)).rename(self.root / entry.path)
        for folder in folders:
            files.fsync_folder(folder)
        self._waiting.clear()

    def has(self, path: str) -> bool:
        """Whether there is a file of that name, or will be."""
        return any(entry.path == path for entry in self._waiting) or os.path.lexists(self.root / path)

    def tidy(self) -> None:
        """Merges what came of finished hours in many pieces, and compresses it better."""
        Upkeep(self.journal, self._now, set(), _NO_LIMIT, self._lock).do_all()

    def drop(self, entries: Iterable[JournalEntry], reason: str) -> None:
        """Removes files, with journal lines that say so before they go."""
        gone = list(entries)
        now = self._now()
        lines = [msgspec.structs.replace(one, op=DROP, time=now, reason=reason, sources=[]) for one in gone]
        if not lines:
            return
        try:
            self.journal.append(*lines)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._lock.use_reserve()
            self.journal.append(*lines)
        for entry in gone:
            path = self.root / entry.path
            path.unlink(missing_ok=True)
            with suppress(OSError):  # a folder that is not empty stays
                os.removedirs(path.parent)

    def close(self) -> None:
        """Lets go; what was not committed is removed."""
        for entry in self._waiting:
            (self.root / layout.temporary(entry.path)).unlink(missing_ok=True)
        self.journal.close()
        self._lock.close()

    def _free(self, path: str) -> str:
        """The path, or one a second later: a power cut makes two runs give the same number."""
        name = SegmentName.parse(path)
        while name is not None and self.has(path):
            clock = datetime.strptime(path.rpartition("/")[2].split("-")[1], "%H%M%S")  # noqa: DTZ007
            later = datetime.combine(name.day, clock.time()) + timedelta(seconds=1)
            name = SegmentName.of(name.kind, later, name.first_seq)
            path = name.path
        return path


def _locked(root: Path, patience: float) -> WriterLock:
    end = time.monotonic() + patience
    while True:
        try:
            return WriterLock(root)
        except Locked:
            if time.monotonic() > end:
                raise
            time.sleep(_LOOK_SECONDS)


def _identify(root: Path, archive_json: bytes) -> None:
    path = root / layout.ARCHIVE_FILE
    if not path.exists():
        files.write_whole(path, archive_json)
        return
    known = identity.read_identity(root)
    # Not byte by byte: a later version may write the same otherwise.
    if known != identity.parse_identity(archive_json, layout.ARCHIVE_FILE):
        raise OtherArchive(f"says that it is archive {known.archive}, but of another machine or time")
