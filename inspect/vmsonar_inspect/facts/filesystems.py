"""File systems: how full each became and how fast, and the times at which it had no room or could not be written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import FilesystemUse
from vmsonar_inspect.facts.queries import Queries, Record, grouped, struct_of

#: Before a file system is full, this long at least is what filled it recorded: a row is written every minute.
FILLING = timedelta(seconds=120)
#: Full is what has at most this many bytes available and at most a thousandth, or hardly enough for one write; the
#: rules say the same.
FULL_BYTES = 16 * 2**20
_TOO_FEW = 2**16
_LEAST_SIZE = 2**20
FULL_INODES = 100
#: How long, in seconds, and how well a straight line must fit what is in use for a steady rise.
_STEADY, _FITS = 1800, 0.9
#: Engines name layers and volumes by these; people know them by their first digits.
_LONG_ID = r"\b[0-9a-f]{64}\b"

_FULL = (
    f"bytes_available <= {FULL_BYTES} AND bytes_total >= {_LEAST_SIZE}"
    f" AND (bytes_available <= bytes_total / 1000 OR bytes_available <= {_TOO_FEW})"
)
_NO_INODES = f"inodes_available <= {FULL_INODES} AND inodes_available <= inodes_total / 1000"
_DEVICE = "archive, boot, device_major, device_minor"

# Times in a row in which a condition held, or did not.
_SPELLS = """
    WITH marked AS (
        SELECT {device}, time, seq, mount_point, fs_type, {least} AS least, {lacks} AS lacks,
            GREATEST(LAG({least}) OVER (PARTITION BY {device} ORDER BY seq), MAX({least}) OVER (
                PARTITION BY {device} ORDER BY time RANGE BETWEEN {filling} PRECEDING AND CURRENT ROW
            )) - {least} AS fell
        FROM filesystem WHERE {known}
    ),
    changed AS (
        SELECT marked.*, CASE WHEN lacks = LAG(lacks) OVER w THEN 0 ELSE 1 END AS is_new
        FROM marked WINDOW w AS (PARTITION BY {device} ORDER BY seq)
    ),
    numbered AS (
        SELECT changed.*, SUM(is_new) OVER (PARTITION BY {device} ORDER BY seq) AS spell FROM changed
    )
    SELECT {device}, spell, BOOL_AND(lacks) AS lacks, MIN(time) AS since, MIN(least) AS least,
        arg_min(fell, seq) AS fell, arg_max(mount_point, seq) AS mount_point, arg_max(fs_type, seq) AS fs_type
    FROM numbered GROUP BY {device}, spell ORDER BY {device}, spell"""

_CAN_WRITE = "read_only IS NOT TRUE"
_HAS_SIZE = f"bytes_available IS NOT NULL AND bytes_total > 0 AND {_CAN_WRITE}"
_HAS_INODES = f"inodes_available IS NOT NULL AND inodes_total > 0 AND {_CAN_WRITE}"
_KINDS = {
    "disk_full": (_FULL, "bytes_available", _HAS_SIZE),
    "no_inodes": (_NO_INODES, "inodes_available", _HAS_INODES),
    "read_only": ("read_only", "CAST(NULL AS BIGINT)", "read_only IS NOT NULL"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shortage:
    """A time in which a file system had no room, or could not be written."""

    kind: str
    place: str
    least: float | None
    since: datetime
    #: The first row that shows it otherwise.
    until: datetime | None
    #: By how much its free bytes fell until then, in the minutes before.
    fell: float | None = None
    #: Its device numbers.
    device: tuple[int, int] = (0, 0)

    def words(self, is_new: bool = True) -> str:
        if self.kind == "read_only":
            return f"{self.place} {'turned' if is_new else 'was'} read-only"
        if self.kind == "no_inodes":
            return f"{self.place} had {units.count(self.least)} inodes free"
        return f"{self.place} had {'0 bytes' if not self.least else units.size(self.least)} free"

    def holds(self, moment: datetime, slack: timedelta) -> bool:
        """Whether it was so at a moment, or shortly before: who fails for want of room often makes some."""
        return self.since - slack <= moment and (self.until is None or moment <= self.until + slack)


def query_shortages(queries: Queries) -> dict[str, list[Shortage]]:
    """The shortages of each archive."""
    found = [
        (row, shortage)
        for kind, (lacks, least, known) in _KINDS.items()
        for row, shortage in _spells(
            kind,
            queries.rows(
                _SPELLS.format(
                    device=_DEVICE,
                    lacks=lacks,
                    least=least,
                    known=known,
                    filling=f"INTERVAL {FILLING.seconds} SECONDS",
                )
            ),
        )
    ]
    # A full disk fills every overlay on it: it is named before them.
    found.sort(key=lambda each: each[0]["fs_type"] == "overlay")
    by_archive = grouped(found, lambda each: each[0]["archive"])
    return {archive: [shortage for _, shortage in rows] for archive, rows in by_archive.items()}


def _spells(kind: str, rows: list[Record]) -> Iterator[tuple[Record, Shortage]]:
    device = itemgetter(*_DEVICE.split(", "))
    for own in grouped(rows, device).values():
        for place, row in enumerate(own):
            # What was read-only from the first is meant to be.
            if row["lacks"] and (place or kind != "read_only"):
                until = own[place + 1]["since"] if place + 1 < len(own) else None
                place_name = re.sub(_LONG_ID, lambda found: found[0][:12], place_of(row))
                yield (
                    row,
                    Shortage(
                        kind, place_name, row["least"], row["since"], until, row["fell"], device(row)[2:]
                    ),
                )


def place_of(row: Record) -> str:
    """What people call a file system; without paths, by its type and device."""
    return (
        row["mount_point"] or f"{row['fs_type'] or 'file system'} {row['device_major']}:{row['device_minor']}"
    )


# A rise is steady when a straight line fits it. It may have begun late: of the whole time, its last half, quarter and
# so on the longest counts that a line fits, if the file system was never as full before: what is emptied again each day
# is not filling.
_USE = f"""
    WITH room AS (
        SELECT *, epoch(time) AS second, MIN(bytes_available) OVER (
            PARTITION BY {_DEVICE} ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS least_before
        FROM filesystem WHERE {_HAS_SIZE}
    ),
    uses AS (
        SELECT {_DEVICE}, MIN(time) AS first, MAX(time) AS last, COUNT(*) AS samples,
            MAX(second) - MIN(second) AS seconds,
            arg_max(mount_point, seq) AS mount_point, arg_max(fs_type, seq) AS fs_type, arg_max(device, seq) AS device,
            arg_max(bytes_total, seq) AS total_bytes, arg_min(bytes_available, seq) AS first_free_bytes,
            arg_max(bytes_available, seq) AS free_bytes, MIN(bytes_available) AS least_free_bytes,
            arg_max(inodes_total, seq) AS inodes_total, arg_max(inodes_available, seq) AS inodes_free,
            MIN(inodes_available) AS least_inodes_free
        FROM room GROUP BY {_DEVICE}
    ),
    spans AS (
        SELECT {_DEVICE}, part, epoch(last) AS until_, seconds / part AS span
        FROM uses, (SELECT UNNEST([1, 2, 4, 8, 16, 32, 64, 128]) AS part)
        WHERE part = 1 OR seconds / part >= {_STEADY}
    ),
    lines AS (
        SELECT {_DEVICE}, part, MAX(span) AS fill_seconds,
            arg_min(bytes_available, seq) - arg_max(bytes_available, seq) AS filled_bytes,
            -regr_slope(bytes_available, second - until_) AS fill_rate,
            regr_r2(bytes_available, second - until_) AS fill_fit,
            -regr_slope(bytes_available, second - until_) FILTER (WHERE second >= until_ - span / 3) AS late_fill_rate,
            arg_max(bytes_available, seq) <= arg_min(least_before, seq) AS is_fullest
        FROM room JOIN spans USING ({_DEVICE}) WHERE second >= until_ - span
        GROUP BY {_DEVICE}, part
        QUALIFY ROW_NUMBER() OVER (
            PARTITION BY {_DEVICE}
            ORDER BY fill_rate > 0 AND fill_fit >= {_FITS} AND (part = 1 OR is_fullest) DESC NULLS LAST, part
        ) = 1
    )
    SELECT * FROM uses JOIN lines USING ({_DEVICE}) ORDER BY archive, mount_point, device_major, device_minor"""  # noqa: S608


def query_filesystems(queries: Queries) -> dict[str, list[FilesystemUse]]:
    """Every file system that could be written, by archive."""
    found = [
        struct_of(FilesystemUse, row, filesystem=place_of(row), seconds_to_full=_left(row))
        for row in queries.rows(_USE)
    ]
    return grouped(found, lambda each: each.archive or "")


def _left(row: Record) -> float | None:
    """Seconds until it is full, if it goes on like that."""
    rate = row["fill_rate"]
    return None if rate is None or rate <= 0 else float(row["free_bytes"]) / rate
