"""The file below /run in which the teardown watcher leaves its notice for the recorder."""

import os
from datetime import datetime
from pathlib import Path

import msgspec
from vmsonar_archive.records import EventRow

NOTICE_FILE = Path("vmsonar/notice.json")
_MOST = 1 << 16


class NoticeNote(msgspec.Struct, kw_only=True):
    """When a notice was seen, and what it said."""

    time: datetime
    detail: str


class NoticeWatch:
    """Detects a new note; costs one stat(2) per tick."""

    def __init__(self, run: Path) -> None:
        self._path = run / NOTICE_FILE
        self._seen = self._stamp()

    def events(self) -> list[EventRow]:
        """The event of a note that was not there before."""
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return []
        self._seen = stamp
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                note = msgspec.json.decode(os.read(descriptor, _MOST), type=NoticeNote)
            finally:
                os.close(descriptor)
        except (OSError, msgspec.MsgspecError):
            return []
        return [EventRow(event_type="teardown_notice", happened=note.time, detail=note.detail)]

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns
