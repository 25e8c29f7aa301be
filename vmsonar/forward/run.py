"""Runs forwarding: until told to stop, or until everything that is written has been acknowledged."""

import math
import os
import time
from contextlib import closing
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
from vmsonar.forward.feed import AnotherArchive, Feed, first_cursor
from vmsonar.forward.messages import Sender
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.pump import Caution, Pump, Rewind, TooMuch
from vmsonar.forward.state import (
    Cursor,
    ForwardStatus,
    lag_seconds,
    read_cursor,
    write_cursor,
    write_status,
)
from vmsonar.host.clock import Backoff

_POLL_SECONDS = 0.2
_IDLE_SECONDS = 1.0
_CURSOR_SECONDS = 1.0
_STATUS_SECONDS = 5.0
# Boot times are kept for this many boots: enough for any backlog that spans reboots.
_BOOTS_KEPT = 8
# Shorter trouble is not logged.
_PATIENCE_SECONDS = 3.0
# How long a stop may take while records are still being acknowledged.
_LAST_SECONDS = 5.0


@dataclass
class Forwarder:
    """Holds the cursor; starts a session with a new feed, sender and pump whenever one is needed."""

    root: Path
    state: Path
    plan: ForwardPlan
    log: Log
    signals: Signals
    once: bool = False
    #: How long `once` may take.
    timeout: float | None = None
    since: datetime | None = None
    #: How far it has come, also where it ends by an error.
    status: ForwardStatus | None = None

    def __post_init__(self) -> None:
        self._end = math.inf
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
        self._last_error: tuple[str, datetime] | tuple[None, None] = (None, None)
        self._disk_trouble = False
        self._retried = self._sent_before = 0

    @property
    def sent_now(self) -> int:
        """Records sent by this run, not counting what earlier runs sent."""
        return self.status.counts.sent - self._sent_before if self.status else 0

    def run(self) -> ForwardStatus:
        """Returns when it is time to stop; raises ReceiverRefused when the receiver will never take anything."""
        refuse_archive(self.state)
        files.make_folders(self.state, self.state)
        with closing(WriterLock(self.state)):
            return self._run()

    def _run(self) -> ForwardStatus:
        if self.timeout is not None:
            self._end = time.monotonic() + self.timeout
        identity = self._wait_for_archive()
        self._notifier.ready()
        while identity is not None:
            try:
                return self._session(identity)
            except TooMuch:
                self._caution.window_bytes = max(1, self._caution.window_bytes // 2)
            except Rewind as error:
                self.log.warning(f"{error}; sending again from the last acknowledged record")
                self._retried += 1
                self._pause(self._backoff.next())
            except AnotherArchive as error:
                self.log.warning(f"{error}: its records are sent from the beginning")
                self._cursor, self._resume, self._caution = None, {}, Caution()
            identity = self._wait_for_archive()
        return ForwardStatus(
            time=datetime.now(UTC), archive="", destination=self.plan.destination,
            dialect=self.plan.dialect, seq=0, lag_records=0,
        )  # fmt: skip

    def _wait_for_archive(self) -> ArchiveIdentity | None:
        """The archive's identity; a service may be started before there is an archive."""
        waited = False
        while not self.signals.stop:
            if (self.root / ARCHIVE_FILE).exists() or self.once:
                return read_identity(self.root)
            if not waited:
                self.log.info(f"{self.root} is not an archive yet: waiting for the recorder")
                self._notifier.ready()
                waited = True
            self._pause(_IDLE_SECONDS)
        return None

    def _session(self, identity: ArchiveIdentity) -> ForwardStatus:
        """One feed and one sender, from the cursor on."""
        cursor = self._cursor = self._cursor or self._load(identity)
        plan, warn = self.plan, self.log.warning
        plan.attend(self.root)
        with closing(Feed(self.root, identity, cursor, warn, self.since, self._resume)) as feed:
            with callers():  # passwords and keys are theirs
                sender = plan.sender(identity)
            sender.end = self._end
            translator = plan.translator(identity, cursor)
            return self._attend(
                Pump(feed, translator, sender, plan.topics, cursor, self.state, warn, self._caution)
            )

    def _attend(self, pump: Pump) -> ForwardStatus:
        try:
            while not self._is_over(pump):
                if pump.step(_POLL_SECONDS):
                    self._backoff.reset()
                self._watch(pump.sender)
                self._save(pump)
                if pump.is_done:
                    pump.sender.wait(0)
                    self._pause(_IDLE_SECONDS if not self.once else 0)
            self._notifier.stopping()
            pump.close()
            return self._save(pump, now=True)
        except (Rewind, VmsonarError) as error:
            self._note(str(error))
            self._resume = pump.progress
            pump.close()
            self._save(pump, now=True)
            raise

    def _is_over(self, pump: Pump) -> bool:
        now = time.monotonic()
        if now > self._end:
            return True
        if not self.signals.stop:
            return self.once and pump.is_done
        if self._stopping_since is None:
            # At shutdown the recorder has written its last sample just before: it is worth another look.
            self._stopping_since = now
            return self._trouble is not None
        return pump.is_done or now - self._stopping_since > _LAST_SECONDS or self._trouble is not None

    def _load(self, identity: ArchiveIdentity) -> Cursor:
        cursor = read_cursor(self.state, self.log.warning)
        if cursor is not None and cursor.archive == identity.archive:
            if not self.plan.is_of(cursor.destination):
                raise VmsonarError(
                    f"the cursor in {self.state} is of {cursor.destination}, and nothing says what "
                    f"{self.plan.destination} has: give forward.state another folder, and all is sent there"
                )
            cursor.destination = self.plan.destination
            self._retried, self._sent_before = cursor.counts.retried, cursor.counts.sent
            return cursor
        if cursor is not None:
            self.log.warning(
                f"the cursor in {self.state} is of archive {cursor.archive}: this one is sent whole"
            )
        cursor = first_cursor(self.root, identity)
        cursor.destination = self.plan.destination
        write_cursor(self.state, cursor)
        return cursor

    def _watch(self, sender: Sender) -> None:
        """Logs trouble that lasts, once, and its end."""
        if sender.trouble is None:
            if self._told:
                self.log.info("records are acknowledged again")
            self._trouble, self._told = None, False
            return
        if self._trouble is None:
            self._trouble_since = time.monotonic()
        self._note(sender.trouble)
        if not self._told and time.monotonic() - self._trouble_since > _PATIENCE_SECONDS:
            self.log.warning(f"{sender.trouble}; trying again until it works")
            self._told = True

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._last_error = (trouble, datetime.now(UTC))
        self._trouble = trouble

    def _save(self, pump: Pump, now: bool = False) -> ForwardStatus:
        """Writes cursor and status when they are due; a failing disk is logged once."""
        cursor = pump.cursor
        cursor.counts.retried = self._retried + pump.sender.retried
        cursor.boots = dict(list(pump.translator.known.boots.items())[-_BOOTS_KEPT:])
        status = self.status = self._status(pump)
        clock = time.monotonic()
        try:
            if now or (pump.progress and clock - self._saved_at > _CURSOR_SECONDS):
                write_cursor(self.state, cursor)
                self._saved_at = clock
                pump.feed.journal.forget_before(min(cursor.sample.seq, cursor.sysinfo.seq))
            if now or clock - self._status_at > _STATUS_SECONDS:
                self._status_at = clock
                write_status(self.state, status)
                self._notifier.status(f"{status.counts.sent} records sent, {status.lag_records} to go")
            self._disk_trouble = False
        except OSError as error:
            if not self._disk_trouble:
                self.log.error(f"cannot write to {self.state}: {error.strerror}; the cursor stays behind")
            self._disk_trouble = True
        return status

    def _status(self, pump: Pump) -> ForwardStatus:
        cursor = pump.cursor
        lag = len(pump.window)
        if not pump.is_dry:
            # Where time ran out before the first look, nothing is known to be sent.
            lag = max(lag, 1, pump.feed.last_seen - cursor.sample.seq)
        return ForwardStatus(
            time=datetime.now(UTC),
            pid=os.getpid(),
            archive=cursor.archive,
            destination=self.plan.destination,
            dialect=self.plan.dialect,
            seq=cursor.sample.seq,
            sent_until=cursor.sample.time,
            lag_records=lag,
            lag_seconds=lag_seconds(cursor) if lag else 0.0,
            under_way=len(pump.window),
            counts=cursor.counts,
            trouble=self._trouble,
            last_error=self._last_error[0],
            last_error_time=self._last_error[1],
            journal_head=pump.feed.journal.ledger.head,
        )

    def _pause(self, seconds: float) -> None:
        self.signals.wait(int(min(seconds, max(0.0, self._end - time.monotonic())) * 1e9))
