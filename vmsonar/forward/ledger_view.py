"""The journal of an archive that somebody else writes, read on from where it ended last time."""

import os
from pathlib import Path

from vmsonar_archive import layout
from vmsonar_archive.journal import Entry, Ledger
from vmsonar_archive.layout import SegmentName


class LedgerView:
    """What the journal says now; cheap to refresh."""

    def __init__(self, root: Path) -> None:
        self._path = root / layout.JOURNAL_FILE
        self._begin()

    def _begin(self) -> None:
        self.ledger = Ledger()
        self._offset = 0
        self._inode = -1

    @property
    def head(self) -> str:
        return self.ledger.head

    @property
    def version(self) -> tuple[int, int]:
        """Differs whenever the journal differs."""
        return self._inode, self._offset

    def refresh(self) -> None:
        """Takes in the whole lines that were added."""
        try:
            with self._path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._begin()
                    self._inode = status.st_ino
                if status.st_size > self._offset:
                    file.seek(self._offset)
                    self._take(file.read(status.st_size - self._offset))
        except FileNotFoundError:
            self._begin()

    def _take(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        for line in data[:end].split(b"\n")[:-1]:
            self.ledger.add(line)
        self._offset += end

    def lost_between(self, kind: str, after: int, before: int, present: dict[str, int]) -> int:
        """Records of a kind with numbers between the two that were in files which are no longer there."""
        missing = [entry for path, entry in self.ledger.current.items() if path not in present]
        return sum(
            self._records_after(entry, kind, after)
            for entry in (*self.ledger.dropped, *missing)
            if _kind(entry) == kind and (entry.last_seq or 0) > after and (entry.first_seq or 0) < before
        )

    def _records_after(self, entry: Entry, kind: str, seq: int) -> int:
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
        """Lets go of the dropped files that nobody will ask about any more."""
        self.ledger.dropped = [entry for entry in self.ledger.dropped if (entry.last_seq or 0) > seq]


def _kind(entry: Entry) -> str | None:
    name = SegmentName.parse(entry.path)
    return name.kind if name else None
