"""What goes on behind appending: sealing, repairing, rewriting and dropping, all of it on the keeper's thread."""

import os
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from vmsonar_archive import layout
from vmsonar_archive.adopt import adopt_tables
from vmsonar_archive.budget import Budget
from vmsonar_archive.journal import SEAL, Journal
from vmsonar_archive.keeper import Keeper
from vmsonar_archive.lock import WriterLock
from vmsonar_archive.repair import Repair, entry_of
from vmsonar_archive.segment import Sealed, SegmentWriter
from vmsonar_archive.upkeep import Rewriting, Upkeep

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
        self._fault = fault
        self.journal = Journal(root, fault)
        #: Files that the writer or our child are still at; repairing leaves them alone.
        self.own: set[str] = set()
        self.upkeep = Upkeep(root, self.journal, budget, now, fault, lock)
        self.repair = Repair(root, self.journal, now, fault, self.own.__contains__)
        self.sealed_bytes = 0
        self._live_bytes = 0
        self._limit = budget.working_limit(root)
        self._budget_day = now().date()
        self._ticks = 0
        self.child: tuple[Rewriting, subprocess.Popen[bytes]] | None = None
        # A disk that is full or failing puts this off; it does not keep us from starting.
        self.leftovers = not self._put_in_order()
        self.keeper = Keeper(self._on_error, fdatasync)

    def tick(self, live_bytes: int) -> None:
        """What is due; cheap, to be called once per sample."""
        self._ticks += 1
        self._live_bytes = live_bytes
        if self.leftovers and self._ticks % _RETRY_EVERY == 0 and self.keeper.idle:
            self.leftovers = False
            self.keeper.submit(self.seal_leftovers)
        if self.keeper.idle and self._is_over_budget():
            self.make_room()
        if self._ticks % _ADOPT_EVERY == 0 and self.keeper.idle:
            self.keeper.submit(self._adopt)
        self._tend_child()

    def make_room(self) -> None:
        """Asks that the oldest files be dropped until the budget holds."""
        if self.keeper.idle:
            self.keeper.submit(self._keep_budget)

    def seal(self, segment: SegmentWriter, sealed: Sealed) -> None:
        """Asks that a closed segment be made durable and journalled."""
        self.sealed_bytes += sealed.bytes
        self.keeper.submit(lambda: self._seal(segment, sealed))

    def hand_over(self, segment: SegmentWriter) -> None:
        """Asks that a segment which cannot be written any more be left to repairing."""
        self.keeper.submit(lambda: self._hand_over(segment))

    def rewrite_all(self) -> None:
        """Writes finished hours anew, and waits for it."""
        self.keeper.run(self._rewrite_all)

    def end(self) -> bool:
        """Finishes what is queued and lets go; False when the disk was too slow to wait for."""
        if self.child is not None:
            self.child[1].kill()
            self.child[1].communicate()
        return self.keeper.end(_CLOSE_SECONDS, self._release)

    def seal_leftovers(self) -> None:
        """Repairs while the writer goes on."""
        if not self.repair.run():
            self.leftovers = True

    def _release(self) -> None:
        self.journal.close()
        self._lock.close()

    def _put_in_order(self) -> bool:
        try:
            repaired = self.repair.run()
            self._adopt()
        except OSError:
            return False
        return repaired

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

    def _rewrite_all(self) -> None:
        while (work := self.upkeep.due()) is not None:
            self.upkeep.do_now(work)

    def _on_error(self, _error: Exception) -> None:
        self.leftovers = True

    def _seal(self, segment: SegmentWriter, sealed: Sealed) -> None:
        try:
            self._fault("seal.before_sync")
            os.fsync(segment.file.fileno())
            self._fault("seal.before_journal")
            self.journal.append(entry_of(SEAL, sealed, self._now()))
        finally:
            segment.close()
            self.own.discard(segment.name.path)
        if segment.file not in self.keeper.failed:
            self.keeper.durable_seq = max(self.keeper.durable_seq, sealed.last_seq or 0)

    def _hand_over(self, segment: SegmentWriter) -> None:
        """As durable as it can be made; an empty one is just removed."""
        self.leftovers = True
        try:
            if segment.size == 0:
                (self._root / segment.name.path).unlink(missing_ok=True)
            else:
                os.fdatasync(segment.file.fileno())
        finally:
            segment.close()
            self.keeper.failed.discard(segment.file)
            self.own.discard(segment.name.path)

    def _tend_child(self) -> None:
        if self.child is None:
            work = self.upkeep.due() if self.keeper.idle and self._ticks % _RETRY_EVERY == 0 else None
            if work is not None:
                self._start_child(work)
            return
        work, child = self.child
        if child.poll() is None:
            return
        output = child.communicate()[0]
        self.child = None
        if child.returncode == 0:
            self.keeper.submit(lambda: self._take_over(work, output))
        else:
            self._give_up(work)

    def _start_child(self, work: Rewriting) -> None:
        self.own.add(layout.temporary(work.target))
        try:
            self.child = (work, self.upkeep.start(work))
        except OSError:
            self._give_up(work)

    def _take_over(self, work: Rewriting, output: bytes) -> None:
        try:
            self.upkeep.finish_child(work, output)
        finally:
            self.own.discard(layout.temporary(work.target))

    def _give_up(self, work: Rewriting) -> None:
        self.own.discard(layout.temporary(work.target))
        self.upkeep.give_up(work)
