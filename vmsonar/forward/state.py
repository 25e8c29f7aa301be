"""What forwarding keeps on disk: how far it has come, how it does, and what could not be delivered."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from vmsonar_archive.dialect.places import Carried
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.format.layout import SAMPLE
from vmsonar_archive.format.lines import finish, unchanged
from vmsonar_archive.read.reader import last_sample
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.ids import ArchiveId, StampId
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError

from vmsonar.forward.messages import ForwardMessage

_CURSOR_FILE = "cursor.json"
_STATUS_FILE = "status.json"
_UNDELIVERABLE_FILE = "undeliverable.jsonl"


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
    #: Messages, or points in them, that the receiver would not take.
    undeliverable: int = 0
    #: Messages on what the receiver has no place for at all.
    unwanted: int = 0


class Cursor(msgspec.Struct, kw_only=True):
    """How far sending has come: the ids of the last acknowledged records, written whole or not at all."""

    archive: ArchiveId
    #: Whose acknowledgements these are; earlier versions did not write it.
    destination: str = ""
    sample: Mark = Mark()
    sysinfo: Mark = Mark()
    counts: Counts = msgspec.field(default_factory=Counts)
    #: By kind, what was passed; earlier versions had the marks alone.
    taken: dict[str, Taken] = {}
    #: Boot times as they were told, by boot id: a part of job ids, so they must not change.
    boots: dict[str, int] = {}
    #: For OTLP: what the same points come from again.
    carried: Carried | None = None

    def mark(self, kind: str) -> Mark:
        return self.sample if kind == SAMPLE else self.sysinfo

    def has(self, kind: str, stamp: Stamp) -> bool:
        return kind in self.taken and self.taken[kind].has(stamp)

    def move(self, kind: str, mark: Mark, up_to: int) -> None:
        """Moves past this record: it and everything before it is acknowledged or given up."""
        self.taken.setdefault(kind, Taken()).add(mark.run, mark.seq, up_to)
        setattr(self, kind, mark)


def read_cursor(state: Path, warn: Callable[[str], None]) -> Cursor | None:
    """The cursor, None where nothing was sent yet; one that cannot be read means sending all again."""
    path = state / _CURSOR_FILE
    try:
        return msgspec.json.decode(unchanged(files.read_inside(state, _CURSOR_FILE)), type=Cursor)
    except FileNotFoundError:
        return None
    except NOT_JSON as error:
        warn(f"{path} is damaged ({error}): everything in the archive is sent again")
        return None
    except OSError as error:
        raise VmsonarError(f"cannot read {path}: {error.strerror}") from None


def write_cursor(state: Path, cursor: Cursor) -> None:
    """Replaces the file; raises OSError and leaves the old one when the disk does not let us."""
    files.write_whole(state / _CURSOR_FILE, finish(msgspec.json.encode(cursor)[:-1]))


class ForwardStatus(msgspec.Struct, kw_only=True, omit_defaults=False):
    """How far forwarding has come, and its troubles."""

    #: When this was written; a running forwarder writes every few seconds.
    time: datetime
    pid: int | None = None
    archive: str
    destination: str
    dialect: str
    #: Where the receiver stands: the last acknowledged sample.
    seq: int
    sent_until: datetime | None = None
    #: Records that are written but not acknowledged, and how old the oldest of them is at least.
    lag_records: int
    lag_seconds: float | None = None
    under_way: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    #: What goes wrong now, and what went wrong last.
    trouble: str | None = None
    last_error: str | None = None
    last_error_time: datetime | None = None
    #: Hash of the journal's last line, as it was told with the last messages.
    journal_head: str = ""


def is_all_sent(status: ForwardStatus) -> bool:
    return status.lag_records == 0 and status.under_way == 0


def write_status(state: Path, status: ForwardStatus) -> None:
    files.write_whole(state / _STATUS_FILE, msgspec.json.encode(status) + b"\n")


def read_status(state: Path, archive: Path) -> ForwardStatus | None:
    """The last status, with the lag as it is now; None where nothing of this archive was ever forwarded."""
    try:
        status = msgspec.json.decode(files.read_inside(state, _STATUS_FILE), type=ForwardStatus)
        cursor = read_cursor(state, lambda _warning: None)
        if read_identity(archive).archive != status.archive:
            return None
    except (OSError, msgspec.MsgspecError, VmsonarError):
        return None
    if cursor is not None and cursor.archive == status.archive:
        _bring_up_to_date(status, cursor, archive)
    return status


def _bring_up_to_date(status: ForwardStatus, cursor: Cursor, archive: Path) -> None:
    newest = last_sample(archive)
    if newest is None:
        return
    status.seq, status.sent_until, status.counts = cursor.sample.seq, cursor.sample.time, cursor.counts
    is_sent = cursor.has(SAMPLE, newest) or (newest.run, newest.seq) == (cursor.sample.run, cursor.sample.seq)
    status.lag_records = 0 if is_sent else max(1, newest.seq - cursor.sample.seq)
    status.lag_seconds = lag_seconds(cursor, newest.time) if status.lag_records else 0.0


def lag_seconds(cursor: Cursor, newest: datetime | None = None) -> float | None:
    """How far the last acknowledged sample is behind; None when there is none."""
    if cursor.sample.time is None:
        return None
    return max(0.0, ((newest or datetime.now(UTC)) - cursor.sample.time).total_seconds())


def show_status(status: ForwardStatus) -> list[tuple[str, str]]:
    """The lines of the section in `vmsonar status`: titles and values."""
    counts = status.counts
    behind = "up to date" if not status.lag_records else f"{status.lag_records} records behind"
    if status.lag_records and status.lag_seconds is not None:
        behind += f", {status.lag_seconds:.0f} s"
    rows = [
        ("forwarding to", f"{status.destination} ({status.dialect})"),
        ("forwarded", f"{counts.sent} records, {behind}"),
        ("sent until", f"{status.sent_until:%Y-%m-%d %H:%M:%S} UTC" if status.sent_until else "nothing yet"),
        ("retried", str(counts.retried)),
        (
            "lost",
            f"{counts.lost} dropped unsent, {counts.unreadable} unreadable, {counts.undeliverable} undeliverable",
        ),
    ]
    if counts.unwanted:
        rows.append(("unwanted", f"{counts.unwanted} messages of a kind that the receiver does not take"))
    if status.trouble:
        rows.append(("trouble", status.trouble))
    elif status.last_error and status.last_error_time:
        rows.append(("last error", f"{status.last_error_time:%Y-%m-%d %H:%M:%S}Z {status.last_error}"))
    return rows


class Undelivered(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One message that was given up; the record itself stays in the archive."""

    time: datetime
    topic: str
    archive: str
    run: str
    boot: str
    seq: int
    part: str | None = None
    bytes: int
    reason: str


def journal_undelivered(state: Path, message: ForwardMessage, reason: str) -> None:
    """Appends a line; raises OSError on a full disk, which must not stop the caller."""
    headers = message.headers
    entry = Undelivered(
        time=datetime.now(UTC),
        topic=message.topic,
        archive=headers["archive"],
        run=headers["run"],
        boot=headers["boot"],
        seq=int(headers["seq"]),
        part=headers.get("part"),
        bytes=len(message.value),
        reason=reason,
    )
    descriptor = files.open_own(state / _UNDELIVERABLE_FILE, os.O_WRONLY | os.O_APPEND)
    try:
        files.write_all(descriptor, msgspec.json.encode(entry) + b"\n")
    finally:
        os.close(descriptor)
