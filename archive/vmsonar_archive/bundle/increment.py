"""What earlier uploads have taken: uploads.json in the archive, which stays on the node and only ever moves forward."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

import msgspec

from vmsonar_archive.bundle.snapshot import ArchiveSnapshot
from vmsonar_archive.format import layout
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.format.lines import finish, unchanged
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError

_MAX_BYTES = 64 * 1024


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The last upload that the other side confirmed."""

    #: The last record it took, and the run that wrote it.
    last_seq: int
    run: str
    #: The last record that was in a sealed segment then: no crash can have undone those.
    sealed_seq: int
    #: The last number of each run in the segments that were not sealed; earlier versions did not write it.
    runs: dict[str, int] = {}
    name: str
    sha256: str
    time: datetime

    @property
    def taken(self) -> Taken:
        """The records that need not be sent again."""
        return Taken(up_to=self.sealed_seq, runs=self.runs or {self.run: self.last_seq})


def read_acknowledged(folder: int, owner: int) -> Acknowledged | None:
    """The last confirmed upload; None before the first one."""
    try:
        with files.open_beneath(folder, layout.UPLOADS_FILE, owner) as file:
            return msgspec.json.decode(unchanged(os.read(file.fileno(), _MAX_BYTES)), type=Acknowledged)
    except FileNotFoundError:
        return None
    except NOT_JSON:
        raise VmsonarError(
            f"{layout.UPLOADS_FILE} in the archive cannot be read: remove it, and everything is taken again"
        ) from None


def taken_up_to(snapshot: ArchiveSnapshot, earlier: Acknowledged) -> int:
    """The number after which records are new: not the last one taken, if the archive has given some again."""
    taken = earlier.taken
    given_again = any(
        not taken.has(stamp) for stamp in _stamps_between(snapshot, taken.up_to, earlier.last_seq)
    )
    return taken.up_to if given_again else earlier.last_seq


def has_new(snapshot: ArchiveSnapshot, taken: Taken) -> bool:
    """Whether anything is left to take: a description of the machine alone is something."""
    return any(not taken.has(stamp) for stamp in _stamps_between(snapshot, taken.up_to, 2**63))


def _stamps_between(snapshot: ArchiveSnapshot, after: int, last: int) -> Iterator[Stamp]:
    """The stamps of an archive with numbers after one and up to another; reads only segments that can have some."""
    for _, held in snapshot.segments():
        begin, end = held.facts.first_seq, held.facts.last_seq
        if begin is not None and end is not None and begin <= last and end > after:
            yield from (stamp for stamp in held.stamps() if after < stamp.seq <= last)


def _newest(snapshot: ArchiveSnapshot) -> Stamp | None:
    """The last record of an archive."""
    numbered = [(held.facts.last_seq, held) for _, held in snapshot.segments() if held.facts.last_seq]
    if not numbered:
        return None
    _, last = max(numbered, key=itemgetter(0))
    return max(last.stamps(), key=lambda stamp: stamp.seq, default=None)


def acknowledge(folder: int, snapshot: ArchiveSnapshot, name: str, sha256: str) -> None:
    """Remembers that everything in the snapshot has been taken; what could not be opened has not."""
    last = _newest(snapshot)
    if last is None:
        return
    sealed = snapshot.ledger.last_seq
    runs: dict[str, int] = {}
    for held in snapshot.held.values():
        for run, seq in (held.live.runs if held.live else {}).items():
            # Of the file that was opened first: while it was, a later record may have gone to another one.
            runs.setdefault(run, seq)
    segments = (SegmentName.parse(path) for path in snapshot.withheld)
    before = min((segment.first_seq for segment in segments if segment), default=None)
    if before is not None:
        last, sealed, runs = msgspec.structs.replace(last, seq=before - 1), min(sealed, before - 1), {}
    taken = Acknowledged(
        last_seq=last.seq,
        run=last.run,
        sealed_seq=sealed,
        runs=runs,
        name=name,
        sha256=sha256,
        time=datetime.now(UTC),
    )
    content = finish(msgspec.json.encode(taken)[:-1])
    files.write_whole(Path(layout.UPLOADS_FILE), content, folder=folder)
