"""The only way into an archive: appends records, rolls segments over, seals them, keeps the budget.

Invariants:
- A record is written whole or not at all; when `durable_seq` has reached it, it survives a power cut.
- A segment belongs to one writer and one UTC hour. Nothing that exists is ever opened for appending.
- No call waits for the disk to be flushed: that is the keeper's work. A failing disk costs samples, never the
  writer: they are counted, and the first sample that can be written again says how many were lost.
"""

import errno
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec

from vmsonar_archive import budget as budgets
from vmsonar_archive import files, identity, layout
from vmsonar_archive.adopt import adopt_tables
from vmsonar_archive.budget import Budget
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.failures import Losses
from vmsonar_archive.identity import ArchiveIdentity, NodeIdentity
from vmsonar_archive.ids import SeriesIds
from vmsonar_archive.journal import SEAL, Journal
from vmsonar_archive.keeper import Keeper
from vmsonar_archive.layout import SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.lines import encode_row, record_line, sample_pieces
from vmsonar_archive.lock import WriterLock
from vmsonar_archive.records import Stamp, SysInfo
from vmsonar_archive.repair import Repair, entry_of
from vmsonar_archive.segment import Sealed, SegmentWriter
from vmsonar_archive.upkeep import Rewriting, Upkeep

# Within the two seconds that a service has to stop in.
_CLOSE_SECONDS = 1.5
# How often sealing is tried again after the disk failed, in calls of maintain().
_RETRY_EVERY = 10
# How often new tables are looked for: they are made once a day.
_ADOPT_EVERY = 60


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _no_fault(_point: str) -> None:
    pass


class ArchiveWriter:
    """An open archive that this process alone writes."""

    def __init__(
        self,
        root: Path,
        lock: WriterLock,
        archive: ArchiveIdentity,
        budget: Budget,
        now: Callable[[], datetime],
        fault: Callable[[str], None],
        fdatasync: Callable[[int], None],
    ) -> None:
        self.root = root
        self.identity = archive
        self.run = uuid4().hex
        self.ids = SeriesIds(identity.read_namespace(root))
        self.bytes_written = 0
        self._lock = lock
        self._budget = budget
        self._fault = fault
        self._now = now
        self._journal = Journal(root, fault)
        self._live: dict[str, SegmentWriter] = {}
        #: Files that we or our child are still at; repairing leaves them alone.
        self._own: set[str] = set()
        self._repair = Repair(root, self._journal, now, fault, self._own.__contains__)
        self._upkeep = Upkeep(root, self._journal, budget, now, fault, lock)
        self._losses = Losses()
        self._ticks = 0
        self._limit = budget.working_limit(root)
        self._segment_limit = budget.segment_limit(root)
        self._sealed_bytes = 0
        self._budget_day = now().date()
        # A disk that is full or failing puts this off; it does not keep us from starting.
        self._leftovers = not self._put_in_order()
        self._next_seq = self._repair.highest_seq + 1
        self._child: tuple[Rewriting, subprocess.Popen[bytes]] | None = None
        self._keeper = Keeper(self._on_error, fdatasync)

    @classmethod
    def open(
        cls,
        root: Path,
        node: NodeIdentity,
        budget: Budget | None = None,
        *,
        now: Callable[[], datetime] = _utc_now,
        fault: Callable[[str], None] = _no_fault,
        fdatasync: Callable[[int], None] = os.fdatasync,
    ) -> "ArchiveWriter":
        """Opens the archive in a folder; begins one where there is none, or where it is another machine's."""
        files.make_folders(root, root)
        lock = WriterLock(root)
        try:
            archive = _identify(root, node, now)
            return cls(root, lock, archive, budget or Budget(), now, fault, fdatasync)
        except BaseException:
            lock.close()
            raise

    @property
    def durable_seq(self) -> int:
        """The last record that survives a power cut."""
        return self._keeper.durable_seq

    @property
    def last_seq(self) -> int:
        """The last record that was appended."""
        return self._next_seq - 1

    @property
    def samples_lost(self) -> int:
        """Samples that could not be written since the start."""
        return self._losses.total

    @property
    def head(self) -> str:
        """Hash of the journal's last line."""
        return self._journal.ledger.head

    def begins_segment(self, time: datetime) -> bool:
        """Whether a sample of this time would begin a new segment, and so needs every info row."""
        return not self._continues(SAMPLE, time)

    def append(self, time: datetime, boot: str, boottime: int, rows: Mapping[str, list[bytes]]) -> int:
        """Appends one sample of rows encoded before; returns its number."""
        self._leave_failed(SAMPLE, time)
        lost = self._losses.row()
        if lost is not None:
            rows = {**rows, "gap": [*rows.get("gap", ()), encode_row(lost)]}
        stamp = Stamp(time=time, seq=self._next_seq, run=self.run, boot=boot, boottime=boottime)
        seq = self._put(SAMPLE, sample_pieces(stamp, rows), time)
        self._losses.told()
        return seq

    def append_sysinfo(self, info: SysInfo) -> int:
        """Appends one sysinfo record; its number and run are set here."""
        self._leave_failed(SYSINFO, info.time)
        stamped = msgspec.structs.replace(info, seq=self._next_seq, run=self.run)
        return self._put(SYSINFO, (record_line(stamped),), info.time)

    def maintain(self) -> None:
        """What is due besides appending; cheap, to be called once per tick."""
        self._ticks += 1
        if self._leftovers and self._ticks % _RETRY_EVERY == 0 and self._keeper.idle:
            self._leftovers = False
            self._keeper.submit(self._seal_leftovers)
        if self._keeper.idle and self._is_over_budget():
            self._keeper.submit(self._keep_budget)
        if self._ticks % _ADOPT_EVERY == 0 and self._keeper.idle:
            self._keeper.submit(self._adopt)
        self._tend_child()

    def tidy(self) -> None:
        """Writes finished hours anew right here: for a writer that opens, appends once and goes."""
        self._keeper.run(self._rewrite_all)

    def close(self) -> bool:
        """Seals and lets go; False when the disk was too slow to wait for.

        The lock is then held until the disk has answered or the process has ended, and the next start seals.
        """
        if self._child is not None:
            self._child[1].kill()
            self._child[1].communicate()
        for kind in list(self._live):
            self._end_segment(kind)
        return self._keeper.end(_CLOSE_SECONDS, self._release)

    def _release(self) -> None:
        self._journal.close()
        self._lock.close()

    def _put_in_order(self) -> bool:
        try:
            repaired = self._repair.run()
            self._adopt()
        except OSError:
            return False
        return repaired

    def _adopt(self) -> None:
        adopt_tables(self.root, self._journal, self._now())
        self._keep_budget()

    def _is_over_budget(self) -> bool:
        today = self._now().date()
        if today != self._budget_day:
            self._budget_day = today
            return True
        return self._live_bytes() + self._sealed_bytes > self._limit

    def _rewrite_all(self) -> None:
        while (work := self._upkeep.due()) is not None:
            self._upkeep.do_now(work)

    def _put(self, kind: str, line: Iterable[bytes], time: datetime) -> int:
        seq = self._next_seq
        try:
            self._check_space()
            segment = self._segment(kind, time, seq)
            self.bytes_written += segment.append(line, time, seq)
        except OSError as error:
            self._abandon(kind)
            raise self._losses.add(kind, time, error, self.root) from None
        except BaseException:
            # Half a line is in the compressor: nothing may follow it.
            self._abandon(kind)
            raise
        self._next_seq += 1
        self._keeper.sync(segment.file, seq)
        return seq

    def _leave_failed(self, kind: str, time: datetime) -> None:
        """Goes on in a new segment after the disk said that it could not keep the one at hand."""
        if kind in self._live and self._live[kind].file in self._keeper.failed:
            self._abandon(kind)
            self._losses.doubt(time)

    def _check_space(self) -> None:
        missing = self._budget.min_free - budgets.free_bytes(self.root)
        if missing <= 0:
            return
        if missing > self._sealed_bytes:
            raise OSError(errno.ENOSPC, f"less than {self._budget.min_free} bytes are free")
        if self._keeper.idle:
            self._keeper.submit(self._keep_budget)

    def _segment(self, kind: str, time: datetime, seq: int) -> SegmentWriter:
        if self._continues(kind, time):
            segment = self._live[kind]
            if os.fstat(segment.file.fileno()).st_nlink == 0:
                raise OSError(errno.ESTALE, "the segment was deleted")
            return segment
        self._end_segment(kind)
        self._check_still_here()
        name = SegmentName.of(kind, time, seq)
        self._own.add(name.path)
        try:
            self._live[kind] = SegmentWriter(self.root, name)
        except OSError:
            self._own.discard(name.path)
            raise
        return self._live[kind]

    def _check_still_here(self) -> None:
        """Guards against a file system that was unmounted: its empty mount point is not our archive."""
        try:
            found = identity.read_identity(self.root).archive
        except VmsonarError as error:
            raise OSError(errno.ENOENT, str(error)) from None
        if found != self.identity.archive:
            raise OSError(errno.ENODEV, "another archive lies here now")

    def _continues(self, kind: str, time: datetime) -> bool:
        segment = self._live.get(kind)
        if segment is None or segment.size >= self._segment_limit or segment.file in self._keeper.failed:
            return False
        return segment.hour == SegmentName.of(kind, time, 0).hour

    def _end_segment(self, kind: str) -> None:
        segment = self._live.pop(kind, None)
        if segment is None:
            return
        try:
            sealed = segment.end()
        except OSError:
            self._keeper.submit(lambda: self._hand_over(segment))
            return
        self._sealed_bytes += sealed.bytes
        self._keeper.submit(lambda: self._seal(segment, sealed))

    def _seal(self, segment: SegmentWriter, sealed: Sealed) -> None:
        try:
            self._fault("seal.before_sync")
            os.fsync(segment.file.fileno())
            self._fault("seal.before_journal")
            self._journal.append(entry_of(SEAL, sealed, self._now()))
        finally:
            segment.close()
            self._own.discard(segment.name.path)
        if segment.file not in self._keeper.failed:
            self._keeper.durable_seq = max(self._keeper.durable_seq, sealed.last_seq or 0)

    def _abandon(self, kind: str) -> None:
        """Gives up a segment that cannot be written any more; it is sealed when the disk is well again."""
        segment = self._live.pop(kind, None)
        if segment is not None:
            self._keeper.submit(lambda: self._hand_over(segment))

    def _hand_over(self, segment: SegmentWriter) -> None:
        """Leaves a segment to repairing, as durable as it can be made; an empty one is just removed."""
        self._leftovers = True
        try:
            if segment.size == 0:
                (self.root / segment.name.path).unlink(missing_ok=True)
            else:
                os.fdatasync(segment.file.fileno())
        finally:
            segment.close()
            self._keeper.failed.discard(segment.file)
            self._own.discard(segment.name.path)

    def _on_error(self, _error: Exception) -> None:
        self._leftovers = True

    def _seal_leftovers(self) -> None:
        if not self._repair.run():
            self._leftovers = True

    def _live_bytes(self) -> int:
        return sum(segment.size for segment in self._live.values())

    def _keep_budget(self) -> None:
        live = sum(segment.size for segment in list(self._live.values()))
        self._sealed_bytes = self._upkeep.keep_budget(live) - live

    def _tend_child(self) -> None:
        if self._child is None:
            work = self._upkeep.due() if self._keeper.idle and self._ticks % _RETRY_EVERY == 0 else None
            if work is not None:
                self._start_child(work)
            return
        work, child = self._child
        if child.poll() is None:
            return
        output = child.communicate()[0]
        self._child = None
        if child.returncode == 0:
            self._keeper.submit(lambda: self._take_over(work, output))
        else:
            self._own.discard(layout.temporary(work.target))
            self._upkeep.give_up(work)

    def _start_child(self, work: Rewriting) -> None:
        self._own.add(layout.temporary(work.target))
        try:
            self._child = (work, self._upkeep.start(work))
        except OSError:
            self._own.discard(layout.temporary(work.target))
            self._upkeep.give_up(work)

    def _take_over(self, work: Rewriting, output: bytes) -> None:
        try:
            self._upkeep.finish_child(work, output)
        finally:
            self._own.discard(layout.temporary(work.target))


def _identify(root: Path, node: NodeIdentity, now: Callable[[], datetime]) -> ArchiveIdentity:
    if not (root / layout.ARCHIVE_FILE).exists():
        return identity.begin(root, node, now())
    archive = identity.read_identity(root)
    if archive.is_of(node):
        return archive
    identity.set_aside(root, archive)
    return identity.begin(root, node, now())
