"""What is known of each collected archive without reading it: its records, its machine, and when it was heard last.

state/<archive id>.json is a note, not a record: one that is missing, or that an interrupted intake left behind the
archive's journal, is made anew from the archive.
"""

from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import msgspec
from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.journal import ContentFacts, Ledger, Tally
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.records.sets import RecordSet, Span, size
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError
from vmsonar_archive.write.rewrite import stamped

from vmsonar.fleet.store import Fleet

# Enough to tell how often a machine ships.
_ARRIVALS = 9


class Holding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One machine's archive, as far as the fleet has it."""

    archive: str
    #: Of the collected archive's own journal, when this was written.
    head: str = ""
    spans: list[Span] = []
    machine_id: str
    instance_id: str | None = None
    host: str | None = None
    #: Times of the first and the last record.
    first: datetime | None = None
    last: datetime | None = None
    #: When newer records came, lately, up to what time these reached, and whether by `kafka` or as a `bundle`.
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

    def heard(self, now: datetime, by: str, origin: str) -> None:
        """Notes that something came; what is older than the last record is no sign of life.

        By their numbers: a clock that was wrong once may have given the latest time for years to come.
        """
        self.by, self.origin = by, origin
        newest = max((span.last for span in self.spans), default=0)
        if newest > self.newest and self.last is not None:
            self.newest = newest
            self.arrivals = [*self.arrivals, now][-_ARRIVALS:]
            self.reached = [*self.reached, self.last][-_ARRIVALS:]


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


def current_holding(fleet: Fleet, identity: ArchiveIdentity, ledger: Ledger) -> Holding:
    """What the archive holds, whose lock we have."""
    holding = read_holding(fleet, identity.archive) or Holding.of(identity)
    if holding.head != ledger.head and ledger.lines:
        _reread(fleet, holding, ledger)
    return holding


def _reread(fleet: Fleet, holding: Holding, ledger: Ledger) -> None:
    held = RecordSet(holding.spans)
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
    holding.spans = list(held)
    holding.head = ledger.head


def holdings(fleet: Fleet) -> list[Holding]:
    """What is noted of all archives, in the order of their ids."""
    return [holding for archive in fleet.ids() if (holding := read_holding(fleet, archive)) is not None]
