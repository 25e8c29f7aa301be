"""The state of forwarding, in a file that `vmsonar status` and other programs read."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.format.layout import SAMPLE
from vmsonar_archive.read.reader import last_sample
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.forward.cursor import Counts, Cursor, read_cursor

STATUS_FILE = "status.json"


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
    files.write_whole(state / STATUS_FILE, msgspec.json.encode(status) + b"\n")


def read_status(state: Path, archive: Path) -> ForwardStatus | None:
    """The last status, with the lag as it is now; None where nothing of this archive was ever forwarded."""
    try:
        status = msgspec.json.decode(files.read_inside(state, STATUS_FILE), type=ForwardStatus)
        cursor = read_cursor(state, lambda _warning: None)
        is_of_it = read_identity(archive).archive == status.archive
    except (OSError, msgspec.MsgspecError, VmsonarError):
        return None
    if not is_of_it:
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
    if status.trouble:
        rows.append(("trouble", status.trouble))
    elif status.last_error and status.last_error_time:
        rows.append(("last error", f"{status.last_error_time:%Y-%m-%d %H:%M:%S}Z {status.last_error}"))
    return rows
