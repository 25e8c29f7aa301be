"""What is known of each collected archive without reading it: its records, its machine, and when it was heard last.

state/<archive id>.json is a note, not a record: one that is missing, or that an interrupted intake left behind the
archive's journal, is made anew from the archive.
"""

import os
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import msgspec
from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.journal import ContentFacts, Journal, JournalMark, Ledger, Tally
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet, Span, size
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, Locked, VmsonarError
from vmsonar_archive.write.rewrite import stamped

from vmsonar.fleet.store import Fleet

# Enough to tell how often a machine ships.
_ARRIVALS = 9


class Holding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One machine's archive, as far as the fleet has it."""

    archive: str
    #: The end of the collected archive's own journal, when this was written.
    mark: JournalMark | None = None
    spans: list[Span] = []
    machine_id: str
    instance_id: str | None = None
    host: str | None = None
    #: Times of the first and the last record.
    first: datetime | None = None
    last: datetime | None = None
    #: When newer records came, lately, the time of the newest of each, and whether by `kafka` or as a `bundle`.
    arrivals: list[datetime] = []
    reached: list[datetime] = []
    #: The highest number of a record.
    newest: int = 0
    by: str = "bundle"
    origin: str = ""
    bundles: int = 0

    @property
    def records(self) -> int:
        return size(self.spans)

    @property
    def latest(self) -> datetime | None:
        """The time of the newest record; `last` may be that of a clock that was wrong once."""
        return self.reached[-1] if self.reached else self.last

    @classmethod
    def of(cls, identity: ArchiveIdentity) -> "Holding":
        """Nothing yet."""
        return cls(
            archive=identity.archive,
            machine_id=identity.machine_id,
            instance_id=identity.instance_id,
            host=identity.hostname_short,
        )

    def cover(self, known: ContentFacts | Tally) -> None:
        """Takes in the times of a file that was filed."""
        if known.first is not None and known.last is not None:
            self.first = min(self.first or known.first, known.first)
            self.last = max(self.last or known.last, known.last)

    def heard(self, now: datetime, by: str, origin: str, newest: Stamp | None) -> None:
        """Notes that something came, with its newest record; what is older than that of before is no sign of life.

        By their numbers: a clock that was wrong once may have given the latest time for years to come.
        """
        self.by, self.origin = by, origin
        if newest is not None and newest.seq > self.newest:
            self.newest = newest.seq
            self.arrivals = [*self.arrivals, now][-_ARRIVALS:]
            self.reached = [*self.reached, newest.time][-_ARRIVALS:]


def holding_path(fleet: Fleet, archive: str) -> Path:
    return fleet.state / f"{archive}.json"


def read_holding(fleet: Fleet, archive: str) -> Holding | None:
    """What was noted last; None where there is nothing, or nothing readable."""
    try:
        return msgspec.json.decode(holding_path(fleet, archive).read_bytes(), type=Holding)
    except (OSError, *NOT_JSON):
        return None


def write_holding(fleet: Fleet, holding: Holding) -> None:
    """Not durably: a power cut costs reading the archive once."""
    path = holding_path(fleet, holding.archive)
    with files.AtomicFile(path, temporary=f".{holding.archive}.tmp", durable=False) as file:
        file.write(msgspec.json.encode(holding))


def current_holding(fleet: Fleet, identity: ArchiveIdentity, journal: Journal) -> Holding:
    """What the archive holds, whose lock we have."""
    holding = read_holding(fleet, identity.archive) or Holding.of(identity)
    if holding.mark != journal.mark and journal.ledger.lines:
        if journal.is_resumed:
            raise Locked(f"archive {identity.archive} was changed beside its lock: try again")
        _reread(fleet, holding, journal.ledger)
        holding.mark = journal.mark
    return holding


def _reread(fleet: Fleet, holding: Holding, ledger: Ledger) -> None:
    held = RecordSet(holding.spans)
    newest: Stamp | None = None
    with closing(FolderSource(fleet.archive(holding.archive))) as source:
        for path, entry in ledger.current.items():
            if SegmentName.parse(path) is None:
                continue
            holding.cover(entry)
            # What cannot be read is for verify to name.
            with suppress(OSError, VmsonarError), source.open_current(entry) as stream:
                for found in read_frames(stream):
                    for _, stamp in stamped(found.lines):
                        held.add(stamp)
                        newest = stamp if newest is None or stamp.seq > newest.seq else newest
    holding.spans = list(held)
    if newest is not None and not holding.reached:
        holding.newest, holding.reached = newest.seq, [newest.time]


class Holdings:
    """The notes of a fleet; each is read again only when it was written again."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[str, tuple[tuple[int, int], Holding | None]] = {}

    def read(self) -> list[Holding]:
        """What is noted of all archives; of one that did not change the same object as before."""
        found: dict[str, tuple[tuple[int, int], Holding | None]] = {}
        with os.scandir(self._fleet.state) as entries:
            for entry in entries:
                if entry.name.endswith(".json"):
                    with suppress(FileNotFoundError):
                        status = entry.stat()
                        version, archive = (status.st_mtime_ns, status.st_ino), entry.name[:-5]
                        known = self._known.get(archive)
                        if known is None or known[0] != version:
                            known = version, read_holding(self._fleet, archive)
                        found[archive] = known
        self._known = found
        return [holding for _, holding in found.values() if holding is not None]
