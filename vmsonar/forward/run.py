"""Runs forwarding: until told to stop, or until everything that is written has been acknowledged."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vmsonar_archive.format.identity import ArchiveIdentity, read_identity
from vmsonar_archive.format.layout import ARCHIVE_FILE
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.rights import callers
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.outputs import refuse_archive

from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Notifier
from vmsonar.daemon.signals import Signals
from vmsonar.forward.cursor import Cursor, read_cursor, write_cursor
from vmsonar.forward.feed import AnotherArchive, Feed, first_cursor
from vmsonar.forward.messages import Refused, Sender
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.pump import Caution, Pump, Rewind, TooMuch
from vmsonar.forward.status import ForwardStatus, lag_seconds, write_status
from vmsonar.host.clock import Backoff

_POLL_SECONDS = 0.2
_IDLE_SECONDS = 1.0
_CURSOR_SECONDS = 1.0
_STATUS_SECONDS = 5.0
# Shorter trouble is not logged.
_PATIENCE_SECONDS = 3.0
# How long a stop may take while records are still being acknowledged.
_LAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run."""

    once: bool = False
    #: How long `once` may take.
    timeout: float | None = None
    since: datetime | None = None


class Forwarder:
    """Holds the cursor; starts a session with a new feed, sender and pump whenever one is needed."""

    def __init__(
        self, root: Path, state: Path, plan: ForwardPlan, options: RunOptions, log: Log, signals: Signals
    ) -> None:
        self._root = root
        self._state = state
        self._plan = plan
        self._options = options
        self._log = log
        self._signals = signals
        self._notifier = Notifier()
        self._backoff = Backoff()
        self._cursor: Cursor | None = None
        self._saved_at = self._status_at = 0.0
        self._caution = Caution()
        self._resume: dict[str, int] = {}
        self._trouble: str | None = None
        self._trouble_since = 0.0
        self._told = False
        self._stopping_since: float | None = None
        self._last_error: tuple[str, datetime] | None = None
        self._disk_trouble = False
        self._retried = self._sent_before = 0
        #: How far it has come, also where it ends by an error.
        self.status: ForwardStatus | None = None

    @property
    def sent_now(self) -> int:
        """Records sent by this run, not counting what earlier runs sent."""
        return self.status.counts.sent - self._sent_before if self.status else 0

    def run(self) -> ForwardStatus:
        """Returns when it is time to stop; raises Refused when the receiver will never take anything."""
        refuse_archive(self._state)
        files.make_folders(self._state, self._state)
        lock = WriterLock(self._state)
        try:
            return self._run()
        finally:
            lock.close()

    def _run(self) -> ForwardStatus:
        end = time.monotonic() + self._options.timeout if self._options.timeout is not None else None
        identity = self._wait_for_archive(end)
        self._notifier.ready()
        while identity is not None:
            try:
                status = self._session(identity, end)
            except TooMuch:
                self._caution.window_bytes = max(1, self._caution.window_bytes // 2)
            except Rewind as error:
                self._log.warning(f"{error}; sending again from the last acknowledged record")
                self._retried += 1
                self._pause(self._backoff.next(), end)
            except AnotherArchive as error:
                self._log.warning(f"{error}: its records are sent from the beginning")
                self._cursor, self._resume, self._caution = None, {}, Caution()
            else:
                return status
            identity = self._wait_for_archive(end)
        return ForwardStatus(
            time=datetime.now(UTC), archive="", destination=self._plan.destination,
            dialect=self._plan.forward.dialect, seq=0, lag_records=0,
        )  # fmt: skip

    def _wait_for_archive(self, end: float | None) -> ArchiveIdentity | None:
        """The archive's identity; a service may be started before there is an archive."""
        waited = False
        while not self._signals.stop:
            if (self._root / ARCHIVE_FILE).exists() or self._options.once:
                return read_identity(self._root)
            if not waited:
                self._log.info(f"{self._root} is not an archive yet: waiting for the recorder")
                self._notifier.ready()
                waited = True
            self._pause(_IDLE_SECONDS, end)
        return None

    def _session(self, identity: ArchiveIdentity, end: float | None) -> ForwardStatus:
        """One feed and one sender, from the cursor on."""
        cursor = self._cursor = self._cursor or self._load(identity)
        self._plan.attend(self._root)
        feed = Feed(self._root, identity, cursor, self._log.warning, self._options.since, self._resume)
        try:
            with callers():  # passwords and keys are theirs
                sender = self._plan.sender(identity)
            sender.end = end
            translator = self._plan.translator(identity, cursor)
            pump = Pump(
                feed, translator, sender, self._plan.topics, cursor, self._state, self._log.warning, self._caution
            )  # fmt: skip
            session = _Session(feed, pump, sender, lambda: cursor.keep_boots(translator.known.boots))
            return self._attend(session, cursor, end)
        finally:
            feed.close()

    def _attend(self, session: "_Session", cursor: Cursor, end: float | None) -> ForwardStatus:
        pump, sender = session.pump, session.sender
        try:
            while not self._is_over(pump, end):
                if pump.step(_POLL_SECONDS):
                    self._backoff.reset()
                self._watch(sender)
                self._save(session, cursor)
                if pump.is_dry and not pump.window:
                    sender.wait(0)
                    self._pause(_IDLE_SECONDS if not self._options.once else 0, end)
            return self._finish(session, cursor)
        except (Rewind, Refused, VmsonarError) as error:
            self._note(str(error))
            self._resume = pump.progress
            session.close()
            self._save(session, cursor, now=True)
            raise

    def _is_over(self, pump: Pump, end: float | None) -> bool:
        if end is not None and time.monotonic() > end:
            return True
        is_done = pump.is_dry and not pump.window
        if not self._signals.stop:
            return self._options.once and is_done
        if self._stopping_since is None:
            # At shutdown the recorder has written its last sample just before: it is worth another look.
            self._stopping_since = time.monotonic()
            return self._trouble is not None
        late = time.monotonic() - self._stopping_since > _LAST_SECONDS
        return is_done or late or self._trouble is not None

    def _finish(self, session: "_Session", cursor: Cursor) -> ForwardStatus:
        self._notifier.stopping()
        session.close()
        return self._save(session, cursor, now=True)

    def _load(self, identity: ArchiveIdentity) -> Cursor:
        cursor = read_cursor(self._state, self._log.warning)
        if cursor is not None and cursor.archive == identity.archive:
            self._retried, self._sent_before = cursor.counts.retried, cursor.counts.sent
            return cursor
        if cursor is not None:
            self._log.warning(
                f"the cursor in {self._state} is of archive {cursor.archive}: this one is sent whole"
            )
        cursor = first_cursor(self._root, identity)
        write_cursor(self._state, cursor)
        return cursor

    def _watch(self, sender: Sender) -> None:
        """Logs trouble that lasts, once, and its end."""
        if sender.trouble is None:
            if self._told:
                self._log.info("records are acknowledged again")
            self._trouble, self._told = None, False
            return
        if self._trouble is None:
            self._trouble_since = time.monotonic()
        self._note(sender.trouble)
        if not self._told and time.monotonic() - self._trouble_since > _PATIENCE_SECONDS:
            self._log.warning(f"{sender.trouble}; trying again until it works")
            self._told = True

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._last_error = (trouble, datetime.now(UTC))
        self._trouble = trouble

    def _save(self, session: "_Session", cursor: Cursor, now: bool = False) -> ForwardStatus:
        """Writes cursor and status when they are due; a failing disk is logged once."""
        cursor.counts.retried = self._retried + session.sender.retried
        session.remember()
        status = self.status = self._status(session, cursor)
        clock = time.monotonic()
        try:
            if now or (session.moved and clock - self._saved_at > _CURSOR_SECONDS):
                write_cursor(self._state, cursor)
                self._saved_at = clock
                session.feed.forget(cursor)
            if now or clock - self._status_at > _STATUS_SECONDS:
                self._status_at = clock
                write_status(self._state, status)
                self._notifier.status(f"{status.counts.sent} records sent, {status.lag_records} to go")
            self._disk_trouble = False
        except OSError as error:
            if not self._disk_trouble:
                self._log.error(f"cannot write to {self._state}: {error.strerror}; the cursor stays behind")
            self._disk_trouble = True
        return status

    def _status(self, session: "_Session", cursor: Cursor) -> ForwardStatus:
        lag = len(session.pump.window)
        if not session.pump.is_dry:
            # Where time ran out before the first look, nothing is known to be sent.
            lag = max(lag, 1, session.feed.last_seen - cursor.sample.seq)
        return ForwardStatus(
            time=datetime.now(UTC),
            pid=os.getpid(),
            archive=cursor.archive,
            destination=self._plan.destination,
            dialect=self._plan.forward.dialect,
            seq=cursor.sample.seq,
            sent_until=cursor.sample.time,
            lag_records=lag,
            lag_seconds=lag_seconds(cursor) if lag else 0.0,
            under_way=len(session.pump.window),
            counts=cursor.counts,
            trouble=self._trouble,
            last_error=self._last_error[0] if self._last_error else None,
            last_error_time=self._last_error[1] if self._last_error else None,
            journal_head=session.feed.journal.head,
        )

    def _pause(self, seconds: float, end: float | None) -> None:
        if end is not None:
            seconds = min(seconds, max(0.0, end - time.monotonic()))
        self._signals.wait(int(seconds * 1e9))


@dataclass(slots=True)
class _Session:
    """The feed, pump and sender between two rewinds."""

    feed: Feed
    pump: Pump
    sender: Sender
    remember: Callable[[], None]

    @property
    def moved(self) -> bool:
        return bool(self.pump.progress)

    def close(self) -> None:
        """Counts what is acknowledged by now and drops the rest."""
        with suppress(Rewind, Refused):
            self.pump.take_last(self.sender.close())
