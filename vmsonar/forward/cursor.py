"""How far sending has come: the ids of the last acknowledged records, on disk, written whole or not at all."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
from vmsonar_archive.format.lines import finish, unchanged
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.ids import ArchiveId, StampId
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError

CURSOR_FILE = "cursor.json"
# Boot times are kept for this many boots: enough for any backlog that spans reboots.
_BOOTS_KEPT = 8


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The id of a record, and its time."""

    seq: int = 0
    run: StampId = ""
    boot: StampId = ""
    time: datetime | None = None

    @classmethod
    def of(cls, stamp: Stamp) -> "Mark":
        return cls(seq=stamp.seq, run=stamp.run, boot=stamp.boot, time=stamp.time)


class Counts(msgspec.Struct, kw_only=True):
    """Totals over all runs."""

    sent: int = 0
    bytes_sent: int = 0
    retried: int = 0
    #: Records that retention dropped before they were sent.
    lost: int = 0
    #: Records that lie in a damaged part of the archive.
    unreadable: int = 0
    #: Messages that no limit of the receiver would take.
    undeliverable: int = 0


class Cursor(msgspec.Struct, kw_only=True):
    """The whole content of the file."""

    archive: ArchiveId
    sample: Mark = Mark()
    sysinfo: Mark = Mark()
    counts: Counts = msgspec.field(default_factory=Counts)
    #: By kind, what was passed; earlier versions had the marks alone.
    taken: dict[str, Taken] = {}
    #: Boot times as they were told, by boot id: a part of job ids, so they must not change.
    boots: dict[str, int] = {}

    def mark(self, kind: str) -> Mark:
        return self.sample if kind == "sample" else self.sysinfo

    def has(self, kind: str, stamp: Stamp) -> bool:
        return kind in self.taken and self.taken[kind].has(stamp)

    def move(self, kind: str, mark: Mark, up_to: int) -> None:
        """Moves past this record: it and everything before it is acknowledged or given up."""
        self.taken.setdefault(kind, Taken()).add(mark.run, mark.seq, up_to)
        if kind == "sample":
            self.sample = mark
        else:
            self.sysinfo = mark

    def keep_boots(self, boots: dict[str, int]) -> None:
        self.boots = dict(list(boots.items())[-_BOOTS_KEPT:])


def read_cursor(state: Path, warn: Callable[[str], None]) -> Cursor | None:
    """The cursor, None where nothing was sent yet; one that cannot be read means sending all again."""
    path = state / CURSOR_FILE
    try:
        return msgspec.json.decode(unchanged(files.read_inside(state, CURSOR_FILE)), type=Cursor)
    except FileNotFoundError:
        return None
    except NOT_JSON as error:
        warn(f"{path} is damaged ({error}): everything in the archive is sent again")
        return None
    except OSError as error:
        raise VmsonarError(f"cannot read {path}: {error.strerror}") from None


def write_cursor(state: Path, cursor: Cursor) -> None:
    """Replaces the file; raises OSError and leaves the old one when the disk does not let us."""
    files.write_whole(state / CURSOR_FILE, finish(msgspec.json.encode(cursor)[:-1]))
