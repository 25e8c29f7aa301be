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
        self._repair = Repair(root, self._journal, now, fault)
        self._repair.run()
        adopt_tables(root, self._journal, now())
        self._upkeep = Upkeep(root, self._journal, budget, now, fault)
        self._next_seq = self._journal.ledger.last_seq + 1
        self._live: dict[str, SegmentWriter] = {}
        self._losses = Losses()
        self._leftovers = False
        self._ticks = 0
        self._limit = budget.working_limit(root)
        self._segment_limit = budget.segment_limit(root)
        self._sealed_bytes = self._upkeep.keep_budget(0)
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
        lost = self._losses.row()
        if lost is not None:
            rows = {**rows, "gap": [*rows.get("gap", ()), encode_row(lost)]}
        stamp = Stamp(time=time, seq=self._next_seq, run=self.run, boot=boot, boottime=boottime)
        seq = self._put(SAMPLE, sample_pieces(stamp, rows), time)
        self._losses.told()
        return seq

    def append_sysinfo(self, info: SysInfo) -> int:
        """Appends one sysinfo record; its number and run are set here."""
        stamped = msgspec.structs.replace(info, seq=self._next_seq, run=self.run)
        return self._put(SYSINFO, (record_line(stamped),), info.time)

    def maintain(self) -> None:
        """What is due besides appending; cheap, to be called once per tick."""
        self._ticks += 1
        if self._leftovers and self._ticks % _RETRY_EVERY == 0 and self._keeper.idle:
            self._leftovers = False
            self._keeper.submit(self._seal_leftovers)
        if self._live_bytes() + self._sealed_bytes > self._limit and self._keeper.idle:
            self._keeper.submit(self._keep_budget)
        if self._ticks % _ADOPT_EVERY == 0 and self._keeper.idle:
            self._keeper.submit(lambda: adopt_tables(self.root, self._journal, self._now()))
        self._tend_child()

    def tidy(self) -> None:
        """Writes finished hours anew right here: for a writer that opens, appends once and goes."""
        while (work := self._upkeep.due()) is not None:
            self._upkeep.do_now(work)

    def close(self) -> bool:
        """Seals and lets go; False when the disk was too slow to wait for. The next start then seals."""
        if self._child is not None:
            self._child[1].kill()
            self._child[1].communicate()
        for kind in list(self._live):
            self._end_segment(kind)
        finished = self._keeper.end(_CLOSE_SECONDS)
        if finished:
            self._journal.close()
            self._lock.close()
        return finished

    def _put(self, kind: str, line: Iterable[bytes], time: datetime) -> int:
        seq = self._next_seq
        try:
            self._check_space()
            segment = self._segment(kind, time, seq)
            self.bytes_written += segment.append(line, time, seq)
        except OSError as error:
            self._abandon(kind)
            raise self._losses.add(kind, time, error, self.root) from None
        self._next_seq += 1
        self._keeper.sync(segment.file, seq)
        return seq

    def _check_space(self) -> None:
        if budgets.free_bytes(self.root) >= self._budget.min_free:
            return
        if self._journal.ledger.current and self._keeper.idle:
            self._keeper.submit(self._keep_budget)
        elif not self._journal.ledger.current:
            raise OSError(errno.ENOSPC, f"less than {self._budget.min_free} bytes are free")

    def _segment(self, kind: str, time: datetime, seq: int) -> SegmentWriter:
        if self._continues(kind, time):
            segment = self._live[kind]
            if os.fstat(segment.file.fileno()).st_nlink == 0:
                raise OSError(errno.ESTALE, "the segment was deleted")
            return segment
        self._end_segment(kind)
        self._check_still_here()
        self._live[kind] = SegmentWriter(self.root, SegmentName.of(kind, time, seq))
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
        if segment is None or segment.size >= self._segment_limit:
            return False
        return segment.hour == SegmentName.of(kind, time, 0).hour

    def _end_segment(self, kind: str) -> None:
        segment = self._live.pop(kind, None)
        if segment is None:
            return
        try:
            sealed = segment.end()
        except OSError as error:
            segment.close()
            self._on_error(error)
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
        self._keeper.durable_seq = max(self._keeper.durable_seq, sealed.last_seq or 0)

    def _abandon(self, kind: str) -> None:
        """Gives up a segment that cannot be written any more; it is sealed when the disk is well again."""
        segment = self._live.pop(kind, None)
        if segment is not None:
            self._leftovers = True
            self._keeper.submit(segment.close)

    def _on_error(self, _error: OSError) -> None:
        self._leftovers = True

    def _seal_leftovers(self) -> None:
        self._repair.run(live=frozenset(segment.name.path for segment in list(self._live.values())))

    def _live_bytes(self) -> int:
        return sum(segment.size for segment in self._live.values())

    def _keep_budget(self) -> None:
        live = sum(segment.size for segment in list(self._live.values()))
        self._sealed_bytes = self._upkeep.keep_budget(live) - live

    def _tend_child(self) -> None:
        if self._child is None:
            work = self._upkeep.due() if self._keeper.idle and self._ticks % _RETRY_EVERY == 0 else None
            if work is not None:
                self._child = (work, self._upkeep.start(work))
            return
        work, child = self._child
        if child.poll() is None:
            return
        output = child.communicate()[0]
        self._child = None
        if child.returncode == 0:
            self._keeper.submit(lambda: self._upkeep.finish_child(work, output))


def _identify(root: Path, node: NodeIdentity, now: Callable[[], datetime]) -> ArchiveIdentity:
    if not (root / layout.ARCHIVE_FILE).exists():
        return identity.begin(root, node, now())
    archive = identity.read_identity(root)
    if archive.is_of(node):
        return archive
    identity.set_aside(root, archive)
    return identity.begin(root, node, now())
