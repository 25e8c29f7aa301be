"""Sealing, repairing, rewriting and dropping beside the appending writer, all on the sync thread."""

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from vmsonar_archive.format.journal import SEAL, Journal, JournalEntry, SegmentFacts
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.repair import Repair
from vmsonar_archive.write.segment import SegmentWriter
from vmsonar_archive.write.sync_thread import SyncThread
from vmsonar_archive.write.upkeep import Rewriting, Upkeep, adopt_tables

# Within the two seconds that a service has to stop in.
_CLOSE_SECONDS = 1.5
# How often sealing is tried again after the disk failed, in ticks.
_RETRY_EVERY = 10
# How often new tables are looked for: they are made once a day.
_ADOPT_EVERY = 60


class Housekeeping:
    """Keeps the files of an archive in order while its writer appends; the writer lock is held."""

    def __init__(
        self,
        root: Path,
        lock: WriterLock,
        budget: Budget,
        now: Callable[[], datetime],
        fault: Callable[[str], None],
        fdatasync: Callable[[int], None],
    ) -> None:
        self._root = root
        self._lock = lock
        self._now = now
        self.journal = Journal(root, fault)
        #: Files that the writer or our child are still at; repairing leaves them alone.
        self.own: set[str] = set()
        self.upkeep = Upkeep(self.journal, now, self.own, budget, lock)
        self.repair = Repair(self.journal, now, self.own)
        self.sealed_bytes = 0
        self._live_bytes = 0
        self._limit = budget.working_limit(root)
        self._budget_day = now().date()
        self._ticks = 0
        self._ending = False
        self.child: tuple[Rewriting, subprocess.Popen[bytes]] | None = None
        try:
            # A disk that is full or failing puts this off; it does not keep us from starting.
            self.leftovers = not self.repair.run()
        except BaseException:
            self.journal.close()
            raise
        try:
            self._adopt()
        except OSError:
            self.leftovers = True
        self.sync_thread = SyncThread(self._on_error, fdatasync)

    def tick(self, live_bytes: int) -> None:
        """Starts what is due; cheap, to be called once per sample."""
        self._ticks += 1
        self._live_bytes = live_bytes
        if self.leftovers and self._ticks % _RETRY_EVERY == 0 and self.sync_thread.idle:
            self.leftovers = False
            self.sync_thread.submit(self.seal_leftovers)
        if self.sync_thread.idle and self._is_over_budget():
            self.make_room()
        if self._ticks % _ADOPT_EVERY == 0 and self.sync_thread.idle:
            self.sync_thread.submit(self._adopt)
        self._tend_child()

    def make_room(self) -> None:
        """Queues the dropping of the oldest files until the budget holds."""
        if self.sync_thread.idle:
            self.sync_thread.submit(self._keep_budget)

    def set_budget(self, budget: Budget) -> None:
        """Applies other limits from now on."""
        self._limit = budget.working_limit(self._root)
        self.upkeep.budget = budget
        self.sync_thread.submit(self._keep_budget)

    def seal(self, segment: SegmentWriter, sealed: SegmentFacts) -> None:
        """Queues a closed segment to be made durable and journalled."""
        self.sealed_bytes += sealed.bytes
        self.sync_thread.submit(partial(self._seal, segment, sealed))

    def hand_over(self, segment: SegmentWriter) -> None:
        """Queues a segment that can no longer be written for repair."""
        self.sync_thread.submit(partial(self._hand_over, segment))

    def end(self) -> bool:
        """Finishes what is queued and lets go; False when the disk was too slow to wait for."""
        self._ending = True
        if self.child is not None:
            self.child[1].kill()
        return self.sync_thread.end(_CLOSE_SECONDS, self._release)

    def seal_leftovers(self) -> None:
        """Repairs while the writer goes on."""
        if not self.repair.run():
            self.leftovers = True

    def _release(self) -> None:
        if self.child is not None:
            self.child[1].kill()
            self.child[1].communicate()
        self.journal.close()
        self._lock.close()

    def _adopt(self) -> None:
        adopt_tables(self._root, self.journal, self._now())
        self._keep_budget()

    def _keep_budget(self) -> None:
        live = self._live_bytes
        self.sealed_bytes = self.upkeep.keep_budget(live) - live

    def _is_over_budget(self) -> bool:
        today = self._now().date()
        if today != self._budget_day:
            self._budget_day = today
            return True
        return self._live_bytes + self.sealed_bytes > self._limit

    def _on_error(self, _error: Exception) -> None:
        self.leftovers = True

    def _seal(self, segment: SegmentWriter, sealed: SegmentFacts) -> None:
        self.sync_thread.unsynced.add(segment.file)
        try:
            self.journal.fault("seal.before_sync")
            self.sync_thread.sync_folders()
            os.fsync(segment.file.fileno())
            self.sync_thread.unsynced.discard(segment.file)
            self.journal.fault("seal.before_journal")
            self.journal.append(JournalEntry.of(SEAL, sealed, self._now()))
        finally:
            segment.close()
            self.own.discard(segment.path)

    def _hand_over(self, segment: SegmentWriter) -> None:
        """As durable as it can be made; an empty one is just removed."""
        self.leftovers = True
        try:
            if segment.size == 0:
                (self._root / segment.path).unlink(missing_ok=True)
            else:
                with suppress(OSError):
                    segment.cut()
                os.fdatasync(segment.file.fileno())
        finally:
            segment.close()
            self.sync_thread.failed.discard(segment.file)
            self.own.discard(segment.path)

    def _tend_child(self) -> None:
        if self.child is None:
            if self.sync_thread.idle and self._ticks % _RETRY_EVERY == 0:
                self.sync_thread.submit(self._start_child)
            return
        work, child = self.child
        if child.poll() is None:
            return
        output = child.communicate()[0]
        self.child = None
        self.sync_thread.submit(
            partial(self.upkeep.take_over, work, output if child.returncode == 0 else b"")
        )

    def _start_child(self) -> None:
        work = self.upkeep.due()
        if work is None or self._ending:
            return
        try:
            self.child = (work, self.upkeep.start(work))
        except OSError:
            self.upkeep.give_up(work)
