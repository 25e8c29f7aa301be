"""A consistent view of an archive that is being written: the journal, and every file it names held open."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from vmsonar_archive.format import layout
from vmsonar_archive.format.bag import LIVE, BundledFile
from vmsonar_archive.format.blocks import Frame
from vmsonar_archive.format.frames import Damage, Lines, read_frames
from vmsonar_archive.format.identity import ArchiveIdentity, parse_identity
from vmsonar_archive.format.journal import JournalEntry, Ledger, Tally
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.read.tar_walk import Slice
from vmsonar_archive.records import Stamp
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import Refused
from vmsonar_archive.write.rewrite import stamped

# Header of an empty raw block that is the last one of its frame.
_LAST_BLOCK = b"\x01\x00\x00"
_CHUNK = 1024 * 1024
# Sealing happens once an hour, or a few times in a row; this is far more.
_ATTEMPTS = 20
_MAX_SMALL = 1024 * 1024
_MAX_JOURNAL = 256 * 1024 * 1024


@dataclass(slots=True)
class LivePart:
    """How much of a live segment is whole, and what closes it."""

    length: int = 0
    closing: bytes = b""
    tally: Tally = field(default_factory=Tally)
    #: The last number of each run in it.
    runs: dict[str, int] = field(default_factory=dict)
    #: Altered bytes, as opposed to an end that is not written yet.
    damage: Damage | None = None


@dataclass
class HeldFile:
    """A file of the archive, open, so that it stays the same whatever the writer does to its name."""

    path: str
    descriptor: int
    #: Its length when it was opened.
    size: int
    #: What the journal says of a sealed file.
    entry: JournalEntry | None = None
    live: LivePart | None = None

    @cached_property
    def facts(self) -> JournalEntry | BundledFile:
        """What the journal says of it; of a live segment, what bundle.json will say of its whole records."""
        if self.entry is not None:
            return self.entry
        assert self.live is not None
        facts = self.live.tally.facts(self.path, *files.sha256_of_chunks(self.chunks()))
        return BundledFile(self.path, [LIVE], **facts.content())

    def chunks(self) -> Iterator[bytes]:
        """What goes into a bundle: its content; of a live segment the whole records, and what closes them."""
        with self.open() as stream:
            yield from iter(partial(stream.read, _CHUNK), b"")
        if self.live and self.live.closing:
            yield self.live.closing

    def stamps(self) -> Iterator[Stamp]:
        """The stamps of a segment's records."""
        with self.open() as stream:
            for found in read_frames(stream):
                yield from (stamp for _, stamp in stamped(found.lines))

    def open(self) -> BinaryIO:
        """A new stream of its content when it was opened; of a live segment up to its last whole record."""
        size = self.live.length if self.live else self.size
        return cast(BinaryIO, Slice(self.descriptor, 0, size))


@dataclass(slots=True)
class ArchiveSnapshot:
    """What an archive held at one moment."""

    name: str
    identity: ArchiveIdentity
    archive_json: bytes
    journal: bytes
    ledger: Ledger
    held: dict[str, HeldFile] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    #: Files that could not be opened: what is in them is not taken, and may be another time.
    withheld: list[str] = field(default_factory=list)

    def find(self, code: Code, path: str, detail: str, severity: Severity | None = None) -> None:
        self.findings.append(Finding.of(code, path, detail, severity))

    def segments(self) -> Iterator[tuple[SegmentName, HeldFile]]:
        """The files that hold records, with what their names say."""
        for path, held in self.held.items():
            if name := SegmentName.parse(path):
                yield name, held

    def close(self) -> None:
        for held in self.held.values():
            os.close(held.descriptor)
        self.held.clear()


def take_snapshot(folder: int, name: str) -> ArchiveSnapshot:
    """Holds everything that the journal lists and what is being written; the caller closes it."""
    with closing(FolderSource(Path(name), folder, os.fstat(folder).st_uid)) as source:
        for _ in range(_ATTEMPTS):
            snapshot = _begin(source)
            with ExitStack() as unless_held:
                unless_held.callback(snapshot.close)
                if _hold_all(source, snapshot):
                    unless_held.pop_all()
                    return snapshot
    raise VmsonarError(f"{name} changes too fast to be bundled: try again, or stop the writer first")


def _begin(source: FolderSource) -> ArchiveSnapshot:
    try:
        content = source.read(layout.ARCHIVE_FILE, _MAX_SMALL)
    except FileNotFoundError:
        raise VmsonarError(f"{source.name} is not an archive: it has no {layout.ARCHIVE_FILE}") from None
    identity = parse_identity(content, f"{source.name}/{layout.ARCHIVE_FILE}")
    journal = _read_journal(source)
    snapshot = ArchiveSnapshot(source.name, identity, content, journal, Ledger.of(journal.split(b"\n")[:-1]))
    if snapshot.ledger.identity not in (None, hashlib.sha256(content).hexdigest()):
        detail = "is not what it was when the journal was begun, and is taken along as it is"
        snapshot.find(Code.CORRUPT, layout.ARCHIVE_FILE, detail)
    return snapshot


def _read_journal(source: FolderSource) -> bytes:
    """Its whole lines."""
    try:
        journal = source.read(layout.JOURNAL_FILE, _MAX_JOURNAL)
    except FileNotFoundError:
        return b""
    return journal[: journal.rfind(b"\n") + 1]


def _hold_all(source: FolderSource, snapshot: ArchiveSnapshot) -> bool:
    """Opens the files; says whether the archive stayed the same meanwhile."""
    sizes = source.sizes()
    for path, entry in sorted(snapshot.ledger.current.items()):
        held = _hold(snapshot, path, partial(source.open_current, entry))
        if held is not None:
            held.entry = entry
        elif path not in {finding.path for finding in snapshot.findings}:
            snapshot.find(Code.MISSING, path, "the journal lists it, but it is not there")
    for path in source.unreplaced(snapshot.ledger, sizes):
        _hold_live(source, snapshot, path)
    for path, size in sizes.items():
        if path not in snapshot.ledger.current and path not in layout.OWN_FILES:
            _hold_unlisted(source, snapshot, path, size)
    # A line more, and what we opened may be what it speaks of; a segment more, and it may hold what others follow.
    appeared = source.sizes().keys() - sizes.keys()
    return _read_journal(source) == snapshot.journal and not any(map(SegmentName.parse, appeared))


def _hold_unlisted(source: FolderSource, snapshot: ArchiveSnapshot, path: str, size: int) -> None:
    if path in snapshot.ledger.gone or layout.is_temporary(path) or (size >= 0 and layout.is_parquet(path)):
        return  # on its way out, or on its way in: a table that the writer has not journalled yet
    if size >= 0 and SegmentName.parse(path) is None:
        snapshot.find(Code.UNLISTED, path, "is no part of the archive, and is left out", Severity.WARNING)
    else:
        _hold_live(source, snapshot, path)


def _hold_live(source: FolderSource, snapshot: ArchiveSnapshot, path: str) -> None:
    held = _hold(snapshot, path, partial(source.open, path))
    if held is None:
        return
    held.live = examine_live(held.descriptor, held.size)
    if (damage := held.live.damage) is not None:
        snapshot.find(Code.CORRUPT, path, f"{damage.detail}, in the frame at byte {damage.offset}")
    elif not held.live.tally.records:
        os.close(snapshot.held.pop(path).descriptor)


def _hold(snapshot: ArchiveSnapshot, path: str, open_: Callable[[], BinaryIO]) -> HeldFile | None:
    """Opens a file; what is not a plain file of the owner's is refused and said."""
    try:
        file = open_()
    except FileNotFoundError:
        return None
    except Refused as error:
        snapshot.find(Code.REFUSED, path, str(error).removeprefix(f"{path}: "))
        return None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise VmsonarError(
                f"cannot hold all files of {snapshot.name} open: raise the limit (ulimit -n)"
            ) from None
        snapshot.find(Code.REFUSED, path, f"cannot be opened: {error.strerror}")
        snapshot.withheld.append(path)
        return None
    with file:
        descriptor = os.dup(file.fileno())
    held = snapshot.held[path] = HeldFile(path, descriptor, os.fstat(descriptor).st_size)
    return held


def examine_live(descriptor: int, size: int) -> LivePart:
    """Looks at the first `size` bytes of a segment that nobody has sealed."""
    part = LivePart()
    for found in read_frames(cast(BinaryIO, Slice(descriptor, 0, size))):
        if found.damage is not None and not found.damage.torn:
            part.damage = found.damage
        for _, stamp in stamped(found.lines):
            part.tally.add(stamp.time, stamp.seq)
            part.runs[stamp.run] = max(stamp.seq, part.runs.get(stamp.run, 0))
        _extend(part, found)
    if part.damage is not None:
        part.length, part.closing = size, b""
    return part


def _extend(part: LivePart, found: Lines) -> None:
    if found.frame.complete:
        part.length = found.frame.offset + len(found.frame.data)
        part.closing = b""
    elif found.lines:
        cut, checksum = _whole_blocks(found.frame)
        part.length = found.frame.offset + cut
        part.closing = _LAST_BLOCK + checksum


def _whole_blocks(frame: Frame) -> tuple[int, bytes]:
    """Where in an open frame the last whole record ends, and the checksum of the content up to there."""
    machine = zstandard.ZstdDecompressor(max_window_size=2**23).decompressobj()
    begin, best = 0, 0
    parts: list[bytes] = []
    kept = 0
    for cut in frame.cuts:
        if cut > len(frame.data):
            break
        parts.append(machine.decompress(frame.data[begin:cut]))
        begin = cut
        if parts[-1].endswith(b"\n"):
            best, kept = cut, len(parts)
    if not zstandard.get_frame_parameters(bytes(frame.data[:18])).has_checksum:
        return best, b""
    # The checksum ends any frame of this content, and this is the fastest one to make.
    again = zstandard.ZstdCompressor(level=-5, write_checksum=True).compressobj()
    for part in parts[:kept]:
        again.compress(part)
    return best, again.flush()[-4:]
