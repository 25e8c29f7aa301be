"""The only way into an archive: appends records, rolls segments over, seals them, keeps the budget.

Invariants:
- A record is written whole or not at all; when `durable_seq` has reached it, it survives a power cut.
- A segment belongs to one writer and one UTC hour. Nothing that exists is ever opened for appending.
- No call waits for the disk to be flushed: that is housekeeping, on a thread of its own. A failing disk costs
  samples, never the writer: they are counted, and the first one that can be written again says how many were lost.
"""

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec

from vmsonar_archive.format import identity, layout
from vmsonar_archive.format.identity import ArchiveIdentity, NodeIdentity
from vmsonar_archive.format.layout import SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.format.lines import encode_row, record_line, sample_pieces
from vmsonar_archive.read.findings import Finding
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.records import Stamp, SysInfo
from vmsonar_archive.records.ids import SeriesIds
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.write import budget as budgets
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.housekeeping import Housekeeping
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.losses import LostSamples, fitting
from vmsonar_archive.write.segment import SegmentWriter


class ArchiveWriter:
    """An open archive that this process alone writes."""

    def __init__(
        self,
        root: Path,
        node: NodeIdentity,
        budget: Budget | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        fault: Callable[[str], None] = lambda _point: None,
        fdatasync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        """Opens the archive in a folder; begins one where there is none, or where it is another machine's."""
        self.root = root
        self.run = uuid4().hex
        self.bytes_written = 0
        self._budget = budget or Budget()
        self._live: dict[str, SegmentWriter] = {}
        self._losses = LostSamples()
        files.make_folders(root, root)
        with ExitStack() as undo:
            lock = WriterLock(root)
            undo.callback(lock.close)
            self.identity = _identify(root, node, now)
            self.ids = SeriesIds(identity.read_namespace(root))
            self._segment_limit = self._budget.segment_limit(root)
            self._identity_file = os.open(root / layout.ARCHIVE_FILE, os.O_PATH | os.O_CLOEXEC)
            undo.callback(os.close, self._identity_file)
            self._house = Housekeeping(root, lock, self._budget, now, fault, fdatasync)
            undo.pop_all()
        #: The last record that was appended.
        self.last_seq = self._house.repair.highest_seq
        self._next_seq = self.last_seq + 1

    @property
    def durable_seq(self) -> int:
        """The last record that survives a power cut."""
        return self._house.sync_thread.durable_seq

    @property
    def samples_lost(self) -> int:
        """Samples that could not be written since the start."""
        return self._losses.total

    @property
    def head(self) -> str:
        """Hash of the journal's last line."""
        return self._house.journal.ledger.head

    def misfits(self) -> list[Finding]:
        """What of the archive's identity is no longer what its journal vouches for."""
        with closing(FolderSource(self.root)) as source:
            return source.misfits(self._house.journal.ledger)

    def begins_segment(self, time: datetime) -> bool:
        """Whether a sample of this time would begin a new segment, and so needs every info row."""
        return not self._continues(SAMPLE, time)

    def append(self, time: datetime, boot: str, boottime: int, rows: Mapping[str, list[bytes]]) -> int:
        """Appends one sample of rows encoded before; returns its number."""
        self._leave_failed(SAMPLE, time)
        rows = fitting(rows)
        lost = self._losses.row()
        if lost is not None:
            rows = {**rows, "gap": [*rows.get("gap", ()), encode_row(lost)]}
        stamp = Stamp(time=time, seq=self._next_seq, run=self.run, boot=boot, boottime=boottime)
        seq = self._put(SAMPLE, sample_pieces(stamp, rows), time)
        self._losses.reported()
        return seq

    def append_sysinfo(self, info: SysInfo) -> int:
        """Appends one sysinfo record; its number and run are set here."""
        self._leave_failed(SYSINFO, info.time)
        stamped = msgspec.structs.replace(info, seq=self._next_seq, run=self.run)
        return self._put(SYSINFO, (record_line(stamped),), info.time)

    def add_losses(self, count: int, since: datetime, reason: str) -> None:
        """Counts samples that were lost before the archive could be opened; the next one reports them."""
        self._losses.add_earlier(count, since, reason)

    def set_budget(self, budget: Budget) -> None:
        """Goes on under other limits; raises OSError, and keeps the old ones, when they cannot be found out."""
        limit = budget.segment_limit(self.root)
        self._house.set_budget(budget)
        self._budget, self._segment_limit = budget, limit

    def maintain(self) -> None:
        """Starts what is due besides appending; cheap, to be called once per tick."""
        self._house.tick(sum(segment.size for segment in self._live.values()))

    def tidy(self) -> None:
        """Rewrites finished hours right here: for a writer that opens, appends once and closes."""
        self._house.sync_thread.run(self._house.upkeep.do_all)

    def close(self) -> bool:
        """Seals and lets go; False when the disk was too slow to wait for.

        The lock is then held until the disk has answered or the process has ended, and the next start seals.
        """
        for kind in list(self._live):
            self._end_segment(kind)
        os.close(self._identity_file)
        return self._house.end()

    def _put(self, kind: str, line: Iterable[bytes], time: datetime) -> int:
        seq = self._next_seq
        segment = None
        try:
            self._check_space()
            segment = self._segment(kind, time, seq)
            self.bytes_written += segment.append(line, time, seq)
        except OSError as error:
            if segment is not None:
                # Somebody may have read the record by the time the disk said no.
                self._next_seq += 1
            self._abandon(kind)
            raise self._losses.add(kind, time, error, self.root) from None
        except BaseException:
            # Half a line is in the compressor: nothing may follow it.
            self._abandon(kind)
            raise
        self._next_seq = seq + 1
        self.last_seq = seq
        self._house.sync_thread.sync(segment.file, seq)
        return seq

    def _leave_failed(self, kind: str, time: datetime) -> None:
        """Goes on in a new segment after the disk said that it could not keep the one at hand."""
        if kind in self._live and self._live[kind].file in self._house.sync_thread.failed:
            self._abandon(kind)
            self._losses.doubt(time)

    def _check_space(self) -> None:
        missing = self._budget.min_free - budgets.free_bytes(self.root)
        if missing <= 0:
            return
        if missing > self._house.sealed_bytes:
            raise OSError(errno.ENOSPC, f"less than {self._budget.min_free} bytes are free")
        self._house.make_room()

    def _segment(self, kind: str, time: datetime, seq: int) -> SegmentWriter:
        if self._continues(kind, time):
            segment = self._live[kind]
            if os.fstat(segment.file.fileno()).st_nlink == 0:
                raise OSError(errno.ESTALE, "the segment was deleted")
            return segment
        self._end_segment(kind)
        self._check_still_here()
        name = SegmentName.of(kind, time, seq)
        if name.path in self._house.own:
            # Let go of twice, the new one would be repaired while it is written.
            raise OSError(errno.EBUSY, "a segment of this name that failed is still being put away")
        self._house.own.add(name.path)
        try:
            self._live[kind] = SegmentWriter(self.root, name, self._house.sync_thread.owe)
        except OSError:
            self._house.own.discard(name.path)
            raise
        return self._live[kind]

    def _check_still_here(self) -> None:
        """Guards against a file system that was unmounted: its empty mount point is not our archive."""
        with suppress(OSError):
            # Held open, the file is known to the kernel: looking at it waits for no disk.
            if os.path.samestat(os.stat(self.root / layout.ARCHIVE_FILE), os.fstat(self._identity_file)):
                return
        try:
            found = identity.read_identity(self.root).archive
        except VmsonarError as error:
            raise OSError(errno.ENOENT, str(error)) from None
        if found != self.identity.archive:
            raise OSError(errno.ENODEV, "another archive lies here now")

    def _continues(self, kind: str, time: datetime) -> bool:
        segment = self._live.get(kind)
        if segment is None or segment.file in self._house.sync_thread.failed:
            return False
        return segment.size < self._segment_limit and segment.hour == layout.hour_of(time)

    def _end_segment(self, kind: str) -> None:
        segment = self._live.pop(kind, None)
        if segment is None:
            return
        try:
            self._house.seal(segment, segment.end(segment.path))
        except OSError:
            self._house.hand_over(segment)

    def _abandon(self, kind: str) -> None:
        """Gives up a segment that cannot be written any more; it is sealed when the disk is well again."""
        segment = self._live.pop(kind, None)
        if segment is not None:
            self._house.hand_over(segment)


def _identify(root: Path, node: NodeIdentity, now: Callable[[], datetime]) -> ArchiveIdentity:
    if not (root / layout.ARCHIVE_FILE).exists():
        return identity.begin(root, node, now())
    archive = identity.read_identity(root)
    if archive.is_of(node):
        identity.take_back(root, archive)
        return archive
    identity.set_aside(root, archive)
    return identity.begin(root, node, now())
