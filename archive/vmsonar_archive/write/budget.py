"""How much an archive may take of a disk, and which files go first."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import JournalEntry

_DEFAULT_BYTES = 2 * 1024**3
_DEFAULT_SHARE = 0.05
# A segment is at most this share of the budget, so that dropping the oldest one drops little.
_SEGMENT_SHARE = 16


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of an archive; None takes the default, or no limit where there is none."""

    max_bytes: int | None = None
    max_days: int | None = None
    min_free: int = 512 * 1024**2

    def limit(self, root: Path) -> int:
        """The number of bytes the archive may take."""
        if self.max_bytes is not None:
            return self.max_bytes
        status = os.statvfs(root)
        return min(_DEFAULT_BYTES, int(status.f_blocks * status.f_frsize * _DEFAULT_SHARE))

    def segment_limit(self, root: Path) -> int:
        """The size at which a segment ends before its hour does."""
        return max(self.limit(root) // _SEGMENT_SHARE, 64 * 1024)

    def working_limit(self, root: Path) -> int:
        """What finished files and the live ones may take: there must be room for one that is written anew."""
        return max(self.limit(root) - self.segment_limit(root), 0)


def free_bytes(root: Path) -> int:
    """What an ordinary user can still write to the file system."""
    status = os.statvfs(root)
    return status.f_bavail * status.f_frsize


def oldest_first(current: dict[str, JournalEntry]) -> list[JournalEntry]:
    """The order in which files go: by day, records before the tables derived from them, then by number."""
    return sorted(current.values(), key=_age)


def _age(entry: JournalEntry) -> tuple[str, bool, int]:
    folder = entry.path.rpartition("/")[0]
    return folder, layout.is_parquet(entry.path), entry.first_seq or 0


def to_drop(
    candidates: list[JournalEntry], used: int, limit: int, missing: int, first_day: date | None
) -> Iterator[tuple[JournalEntry, str]]:
    """The files that must go, with the reason, until the limits hold."""
    if missing > sum(entry.bytes for entry in candidates):
        missing = 0  # dropping everything would not be enough: then nothing is dropped, and nothing written
    for entry in candidates:
        day = layout.day_of(entry.path.rpartition("/")[0])
        if used > limit:
            reason = "max_bytes"
        elif missing > 0:
            reason = "min_free"
        elif first_day is not None and day is not None and day < first_day:
            reason = "max_days"
        else:
            return
        yield entry, reason
        used -= entry.bytes
        missing -= entry.bytes


def first_kept_day(budget: Budget, today: date) -> date | None:
    """The day before which files go; None where none is that old."""
    if budget.max_days is None or budget.max_days >= (today - date.min).days:
        return None
    return today - timedelta(days=budget.max_days)
