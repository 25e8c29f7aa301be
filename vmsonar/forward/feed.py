"""The records of an archive in the order in which they are sent, from where the cursor stands."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

from vmsonar_archive.format.identity import ArchiveIdentity, read_identity
from vmsonar_archive.format.layout import RECORD_KINDS, SAMPLE, SYSINFO
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.forward.state import Cursor, Mark
from vmsonar.forward.tail import LedgerView, Record, Tail


def locate(tail: Tail, mark: Mark) -> int | None:
    """The number after which everything is unsent; None when the archive cannot have come after the mark."""
    if not mark.run:
        return mark.seq
    names = tail.names_up_to(mark.seq)
    if not names:
        return mark.seq
    for name in reversed(names):
        found = [stamp.seq for stamp in tail.stamps(name) if stamp.run == mark.run and stamp.seq <= mark.seq]
        if found:
            # The records after it, whatever their numbers, were written later.
            return found[-1]
    return None


def taken_by(tail: Tail, mark: Mark) -> Taken:
    """What a mark proves by itself, as earlier versions left it: its own run, and what came before that began."""
    if not mark.run:
        return Taken(up_to=mark.seq)
    first = mark.seq + 1
    for name in reversed(tail.names_up_to(mark.seq)):
        own = [stamp.seq for stamp in tail.stamps(name) if stamp.run == mark.run]
        if not own and first <= mark.seq:
            break
        first = min([first, *own])
    return Taken(up_to=first - 1, runs={mark.run: mark.seq})


class AnotherArchive(VmsonarError):
    """The folder holds another archive now: the machine was cloned, or somebody started over."""


class Feed:
    """Both tails of one archive, each starting at the cursor."""

    def __init__(
        self,
        root: Path,
        identity: ArchiveIdentity,
        cursor: Cursor,
        warn: Callable[[str], None],
        since: datetime | None = None,
        resume: dict[str, int] | None = None,
    ) -> None:
        """`since` starts earlier than the cursor; `resume` is how much of that is done already."""
        self.identity = identity
        self.journal = LedgerView(root)
        self.journal.refresh()
        self._root = root
        self._tails: dict[str, Tail] = {}
        for kind in RECORD_KINDS:
            with closing(Tail(root, kind, self.journal)) as tail:
                taken = cursor.taken[kind] = _believed(tail, cursor, warn)
                if since is not None:
                    replayed, resumed = before(tail, since), (resume or {}).get(kind, 0)
                    taken = _reduced(taken, replayed, resumed, is_promised=bool(cursor.mark(kind).run))
            self._tails[kind] = Tail(root, kind, self.journal, taken)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def records(self) -> Iterator[Record | None]:
        """Yields every record as it comes, and None whenever there is nothing new."""
        while True:
            found = False
            for kind in (SYSINFO, SAMPLE):
                for record in self._tails[kind].read():
                    found = True
                    yield record
            if not found:
                if read_identity(self._root).archive != self.identity.archive:
                    raise AnotherArchive(f"another archive lies in {self._root} now")
                yield None

    @property
    def last_seen(self) -> int:
        """The highest record number seen in the archive."""
        return max(self.journal.ledger.last_seq, *(tail.position for tail in self._tails.values()))


def _believed(tail: Tail, cursor: Cursor, warn: Callable[[str], None]) -> Taken:
    """What the cursor has, compared with the archive: nothing where the archive cannot be a continuation."""
    mark = cursor.mark(tail.kind)
    found = locate(tail, mark)
    if found is None:
        warn(
            f"the archive does not hold {tail.kind} {mark.seq} that was sent last: all it holds is sent again"
        )
        return Taken()
    known = cursor.taken.get(tail.kind) or taken_by(tail, mark)
    return Taken(up_to=min(known.up_to, found), runs=known.runs)


def _reduced(taken: Taken, replayed: int, resumed: int, *, is_promised: bool) -> Taken:
    """The records to skip where an earlier time was asked for: only those before it."""
    if not is_promised:
        # Without a cursor nothing was promised, so that sending may begin there.
        return Taken(up_to=replayed)
    if replayed >= taken.highest:
        return taken
    # What was sent before that time is not sent again, however it is known.
    runs = {run: min(seq, max(replayed, resumed)) for run, seq in taken.runs.items()}
    return Taken(up_to=max(min(taken.up_to, replayed), resumed), runs=runs)


def before(tail: Tail, since: datetime) -> int:
    """The number of the last record before that time; 0 when there is none."""
    found = 0
    for name in tail.names_up_to():
        entry = tail.journal.ledger.current.get(name.path)
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
    """The start of an archive of which nothing was sent; records dropped before do not count as lost."""
    journal = LedgerView(root)
    marks = {}
    for kind in RECORD_KINDS:
        with closing(Tail(root, kind, journal)) as tail:
            names = tail.names_up_to()
        marks[kind] = Mark(seq=names[0].first_seq - 1 if names else journal.ledger.last_seq)
    return Cursor(archive=identity.archive, sample=marks[SAMPLE], sysinfo=marks[SYSINFO])
