"""The records of an archive in the order in which they are sent: descriptions of the machine before its samples."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.identity import ArchiveIdentity, read_identity
from vmsonar_archive.layout import RECORD_KINDS, SAMPLE, SYSINFO

from vmsonar.forward.cursor import Cursor, Mark
from vmsonar.forward.ledger_view import LedgerView
from vmsonar.forward.locate import locate
from vmsonar.forward.tail import Record, Tail


class AnotherArchive(VmsonarError):
    """Another archive lies in the folder now: its machine was cloned, or somebody began anew."""


@dataclass(slots=True)
class Start:
    """Where one kind is read from, and up to where the cursor already stands."""

    after: int
    floor: int


class Feed:
    """Both tails of one archive; `floor` tells for each kind what was acknowledged before this feed began."""

    def __init__(
        self,
        root: Path,
        identity: ArchiveIdentity,
        cursor: Cursor,
        warn: Callable[[str], None],
        since: datetime | None = None,
        resume: dict[str, int] | None = None,
    ) -> None:
        """`since` begins earlier than the cursor; `resume` tells what of it is done already."""
        self.identity = identity
        self.journal = LedgerView(root)
        self.floor: dict[str, int] = {}
        self._root = root
        self._tails: dict[str, Tail] = {}
        for kind in RECORD_KINDS:
            start = self._start(kind, cursor.mark(kind), since, warn)
            self.floor[kind] = start.floor
            after = max(start.after, (resume or {}).get(kind, 0))
            self._tails[kind] = Tail(root, kind, self.journal, after)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def records(self) -> Iterator[Record | None]:
        """Every record as it comes; None whenever all that is written has been given."""
        while True:
            found = False
            for kind in (SYSINFO, SAMPLE):
                for record in self._tails[kind].read():
                    found = True
                    yield record
            if not found:
                self._check_identity()
                yield None

    @property
    def last_seen(self) -> int:
        """The highest number that the archive is known to have given."""
        newest = max((tail.position for tail in self._tails.values()), default=0)
        return max(newest, self.journal.ledger.last_seq)

    def forget(self, cursor: Cursor) -> None:
        self.journal.forget_before(min(cursor.sample.seq, cursor.sysinfo.seq))

    def _check_identity(self) -> None:
        if read_identity(self._root).archive != self.identity.archive:
            raise AnotherArchive(f"another archive lies in {self._root} now")

    def _start(self, kind: str, mark: Mark, since: datetime | None, warn: Callable[[str], None]) -> Start:
        tail = Tail(self._root, kind, self.journal)
        try:
            floor = locate(tail, mark)
            if floor is None:
                warn(
                    f"the archive does not hold {kind} {mark.seq} that was sent last: all it holds is sent again"
                )
                floor = 0
            after = floor
            if since is not None:
                replayed = before(tail, self.journal, since)
                # Without a cursor nothing was promised, so that sending may begin there.
                after = min(floor, replayed) if mark.run else replayed
            return Start(after, floor)
        finally:
            tail.close()


def before(tail: Tail, journal: LedgerView, since: datetime) -> int:
    """The number of the last record before that time; 0 when there is none."""
    found = 0
    for name in tail.names_up_to(2**63):
        entry = journal.ledger.current.get(name.path)
        if entry is not None and entry.last is not None and entry.last < since:
            found = entry.last_seq or found
            continue
        # Times may step back, so that only the first record at or after it decides.
        for stamp in tail.stamps(name):
            if stamp.time >= since:
                return found
            found = stamp.seq
    return found


def first_cursor(root: Path, identity: ArchiveIdentity) -> Cursor:
    """Where sending begins on an archive of which nothing was sent: what was dropped before is not counted."""
    journal = LedgerView(root)
    marks = {}
    for kind in RECORD_KINDS:
        tail = Tail(root, kind, journal)
        try:
            names = tail.names_up_to(2**63)
        finally:
            tail.close()
        marks[kind] = Mark(seq=names[0].first_seq - 1 if names else journal.ledger.last_seq)
    return Cursor(archive=identity.archive, sample=marks[SAMPLE], sysinfo=marks[SYSINFO])
