"""What could not be written: samples, why, since when and how many; and rows for which a line has no room."""

import errno
from bisect import bisect_right
from collections.abc import Mapping
from datetime import datetime
from itertools import accumulate
from pathlib import Path

from vmsonar_archive.format.lines import HARMLESS, encode_row, share_of_line
from vmsonar_archive.records import GapRow
from vmsonar_archive.system.errors import VmsonarError

_REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EROFS: "read_only",
    errno.ENOENT: "vanished",
    errno.ESTALE: "vanished",
    errno.ENODEV: "vanished",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EFBIG: "too_large",
}

_REMEDIES = {
    "disk_full": "free some space or lower min_free",
    "read_only": "remount the file system for writing",
    "vanished": "bring the folder back",
    "permission": "let the service user write there",
    "too_large": "leave out what fills it (filters in the configuration)",
    "io_error": "look at the kernel's log",
}


# What a sample may fill of a line: the rest is for its stamp, and for the rows that say what was left out.
_FULL = 0.99
_ROWS_AT_ONCE = 128


class AppendFailed(VmsonarError):
    """A record could not be written; the writer continues, and a later sample records the loss."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def reason_of(error: OSError) -> str:
    """A stable word for an error of the disk."""
    return _REASONS.get(error.errno or 0, "io_error")


class LostSamples:
    """Counts lost samples until one can be written that reports them."""

    def __init__(self) -> None:
        self.total = 0
        self._pending = 0
        self._doubtful = False
        self._since: datetime | None = None
        self._reason = ""

    def add(self, kind: str, time: datetime, error: OSError, root: Path) -> AppendFailed:
        """Counts one loss; returns the error to raise."""
        self._reason = reason_of(error)
        self.total += 1
        self._pending += 1
        self._since = self._since or time
        said = f"cannot write a {kind} to {root}: {error.strerror or error}; {_REMEDIES[self._reason]}"
        return AppendFailed(self._reason, said)

    def add_earlier(self, count: int, since: datetime, reason: str) -> None:
        """Counts what was lost before the writer was open."""
        self.total += count
        self._pending += count
        self._since, self._reason = since, reason

    def doubt(self, time: datetime) -> None:
        """Notes a failed sync: how much it cost shows only after a power cut."""
        self._reason = "io_error"
        self._doubtful = True
        self._since = self._since or time

    def row(self) -> GapRow | None:
        """The row for the next sample, if anything was lost or may be."""
        if not self._pending and not self._doubtful:
            return None
        return GapRow(
            collector="archive",
            reason=self._reason,
            since=self._since,
            lost=self._pending or None,
            detail="the disk did not keep all that was written" if self._doubtful else None,
        )

    def reported(self) -> None:
        """Resets the count once the row is written."""
        self._pending = 0
        self._doubtful = False
        self._since = None


def fitting(rows: Mapping[str, list[bytes]]) -> Mapping[str, list[bytes]]:
    """The rows that a reader takes as one line; without the largest of the kind that fills it, and a gap row says so.

    Nobody could read a longer line, and without this the next sample would be as long.
    """
    if sum(sum(map(len, encoded)) for encoded in rows.values()) < HARMLESS:
        return rows
    together = (
        b",".join(encoded[at : at + _ROWS_AT_ONCE])
        for encoded in rows.values()
        for at in range(0, len(encoded), _ROWS_AT_ONCE)
    )
    if share_of_line(together) <= _FULL:
        return rows
    shares = {kind: {row: share_of_line((row,)) for row in encoded} for kind, encoded in rows.items()}
    filled = {kind: sum(shares[kind][row] for row in encoded) for kind, encoded in rows.items()}
    kept, left_out = dict(rows), []
    for fullest in sorted(filled, key=lambda kind: -filled[kind]):
        if sum(filled.values()) <= _FULL:
            break
        aim = _FULL - (sum(filled.values()) - filled.pop(fullest))
        kept[fullest] = _smallest(rows[fullest], shares[fullest], aim)
        filled[fullest] = sum(shares[fullest][row] for row in kept[fullest])
        left_out.append(
            f"{len(rows[fullest]) - len(kept[fullest])} of {len(rows[fullest])} rows of {fullest}"
        )
    detail = f"left out, since no line could hold them: {', '.join(left_out)}"
    gap = encode_row(GapRow(collector="archive", reason="too_large", detail=detail))
    return {**kept, "gap": [*kept.get("gap", ()), gap]}


def _smallest(encoded: list[bytes], shares: Mapping[bytes, float], aim: float) -> list[bytes]:
    """As many rows as fill no more than that, the smallest of them, in their order."""
    places = sorted(range(len(encoded)), key=lambda place: shares[encoded[place]])
    sums = list(accumulate(shares[encoded[place]] for place in places))
    return [encoded[place] for place in sorted(places[: bisect_right(sums, aim)])]
