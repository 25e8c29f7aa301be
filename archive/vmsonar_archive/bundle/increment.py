"""What earlier uploads have taken: uploads.json in the archive, which stays on the node and only ever moves forward."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from vmsonar_archive import files, layout
from vmsonar_archive.bundle.held_stream import held_stream
from vmsonar_archive.bundle.snapshot import Held, Snapshot
from vmsonar_archive.errors import NOT_JSON, VmsonarError
from vmsonar_archive.frames import read_frames
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.records import Stamp
from vmsonar_archive.rewrite import stamped

_MAX_BYTES = 64 * 1024


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The last upload that the other side confirmed."""

    #: The last record it took, and the run that wrote it.
    last_seq: int
    run: str
    #: The last record that was in a sealed segment then: no crash can have undone those.
    sealed_seq: int
    name: str
    sha256: str
    time: datetime


def read_acknowledged(folder: int, owner: int) -> Acknowledged | None:
    """What has been taken; None before the first upload."""
    try:
        with files.open_beneath(folder, layout.UPLOADS_FILE, owner) as file:
            return msgspec.json.decode(os.read(file.fileno(), _MAX_BYTES), type=Acknowledged)
    except FileNotFoundError:
        return None
    except NOT_JSON:
        raise VmsonarError(
            f"{layout.UPLOADS_FILE} in the archive cannot be read: remove it, and everything is taken again"
        ) from None


def taken_up_to(snapshot: Snapshot, earlier: Acknowledged | None) -> int | None:
    """The last record that need not be taken again; None when nothing has been taken.

    A power cut can undo records that were uploaded from a live segment; their numbers then are given again, by
    another run.
    """
    if earlier is None:
        return None
    for held in snapshot.held.values():
        for stamp in _stamps_around(held, earlier.last_seq):
            if stamp.seq == earlier.last_seq:
                return earlier.last_seq if stamp.run == earlier.run else earlier.sealed_seq
    known = earlier.last_seq <= snapshot.ledger.last_seq
    return earlier.last_seq if known else earlier.sealed_seq


def _stamps_around(held: Held, seq: int) -> Iterator[Stamp]:
    """The stamps of a segment that may hold a record."""
    known = held.entry or (held.live.tally if held.live else None)
    if known is None or known.first_seq is None or known.last_seq is None:
        return
    if SegmentName.parse(held.path) and known.first_seq <= seq <= known.last_seq:
        yield from _stamps(held)


def _stamps(held: Held) -> Iterator[Stamp]:
    with held_stream(held) as stream:
        for found in read_frames(stream):
            yield from (stamp for _, stamp in stamped(found.lines))


def newest(snapshot: Snapshot) -> Stamp | None:
    """The last record of an archive."""
    last: Held | None = None
    highest = 0
    for held in snapshot.held.values():
        known = held.entry or (held.live.tally if held.live else None)
        if SegmentName.parse(held.path) and known is not None and (known.last_seq or 0) > highest:
            last, highest = held, known.last_seq or 0
    return max(_stamps(last), key=lambda stamp: stamp.seq, default=None) if last else None


def acknowledge(folder: int, snapshot: Snapshot, name: str, sha256: str) -> None:
    """Remembers that everything in the snapshot has been taken."""
    last = newest(snapshot)
    if last is None:
        return
    taken = Acknowledged(
        last_seq=last.seq,
        run=last.run,
        sealed_seq=snapshot.ledger.last_seq,
        name=name,
        sha256=sha256,
        time=datetime.now(UTC),
    )
    _write(folder, msgspec.json.encode(taken) + b"\n")


def _write(folder: int, content: bytes) -> None:
    temporary = layout.temporary(layout.UPLOADS_FILE)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, layout.FILE_MODE, dir_fd=folder)
    try:
        files.write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, layout.UPLOADS_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
