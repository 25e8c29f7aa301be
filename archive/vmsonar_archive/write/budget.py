"""How much an archive may take of a disk, and which files go first."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
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

    def to_drop(
        self, root: Path, files: Iterable[JournalEntry], used: int, today: date
    ) -> Iterator[tuple[JournalEntry, str]]:
        """The files that must go, the oldest first and each with the reason, until the limits hold."""
        candidates = sorted(files, key=_age)
        limit, missing = self.working_limit(root), self.min_free - free_bytes(root)
        if missing > sum(entry.bytes for entry in candidates):
            missing = (
                0  # dropping everything would not be enough: then nothing is dropped, and nothing written
            )
        for entry in candidates:
            day = layout.day_of(entry.path.rpartition("/")[0]) or today
            if used > limit:
                reason = "max_bytes"
            elif missing > 0:
                reason = "min_free"
            elif self.max_days is not None and (today - day).days > self.max_days:
                reason = "max_days"
            else:
                return
            yield entry, reason
            used -= entry.bytes
            missing -= entry.bytes


def free_bytes(root: Path) -> int:
    """What an ordinary user can still write to the file system."""
    status = os.statvfs(root)
    return status.f_bavail * status.f_frsize


def _age(entry: JournalEntry) -> tuple[str, bool, int]:
    """The order in which files go: by day, records before the tables derived from them, then by number."""
    folder = entry.path.rpartition("/")[0]
    return folder, layout.is_parquet(entry.path), entry.first_seq or 0
