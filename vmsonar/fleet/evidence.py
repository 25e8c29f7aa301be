"""What machines said of their own history, as received: it must agree with what they said before.

Below evidence/<archive id>/ lie the machine's journal as last seen, the tag files and signature of every bundle (the
bags of a day without their records: `tar --zstd -xf`), and heads that came by Kafka and that no journal has confirmed
yet.
"""

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard
from vmsonar_archive.format import bag
from vmsonar_archive.format.blocks import Frame, LookAhead, frame_at
from vmsonar_archive.format.journal import GENESIS, Ledger, line_hash
from vmsonar_archive.format.layout import JOURNAL_FILE
from vmsonar_archive.read.source import MAX_RECORD, BundleSource
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON

_HEADS = "heads.jsonl"
#: Of the tag files of a day's bundles as they are, and of those whose names are hidden.
_SUFFIX = (".bag.tar.zst", ".hidden.tar.zst")
_MAX_JOURNAL = 64 * 1024 * 1024
# Between two bundles a machine seals some segments; of more, the last ones are remembered.
_MAX_HEADS = 1000
_TAGS = {
    bag.BAGIT: 4096,
    bag.BAG_INFO: 64 * 1024,
    bag.BUNDLE: MAX_RECORD,
    bag.MANIFEST: bag.MAX_BYTES,
    bag.TAG_MANIFEST: 64 * 1024,
    bag.SIGNATURE: 4096,
}


class PublishedHead(msgspec.Struct, frozen=True, kw_only=True):
    """A head of the machine's journal, and the number of the record that it came with."""

    head: str
    seq: int


class Evidence:
    """The evidence of one archive; whoever uses it holds the archive's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # As read last: an old machine's has megabytes.
        self._known: tuple[tuple[int, int], bytes] | None = None
        self._sent = b""

    def contradiction(self, source: BundleSource, ledger: Ledger, redacted: bool) -> str | None:
        """How a bundle's journal differs from what the machine published earlier; None where it does not."""
        known = self.journal()
        # Without a journal yet, the names of what is kept tell: before its first hour is over a machine has none.
        others = redacted if known else self._has_any(not redacted)
        if others:
            hidden = ("has", "do not") if redacted else ("does not have", "do")
            return f"{hidden[0]} its names hidden, other bundles of this archive {hidden[1]}"
        if redacted:
            # Each has a journal of its own, made of what is in it.
            return None
        journal = self._sent = _whole_lines(source.read(JOURNAL_FILE, _MAX_JOURNAL))
        if not (journal.startswith(known) or known.startswith(journal)):
            return (
                "tells another history than this machine did earlier: its journal does not continue the one in "
                f"evidence/{self._folder.name}; if the machine can explain it, move that file away"
            )
        for published in self._unconfirmed(journal):
            if ledger.last_seq >= published.seq:
                return f"does not have the head {published.head} in its journal that this machine published earlier"
        return None

    def keep(self, source: BundleSource, redacted: bool, today: date) -> None:
        """Keeps what a bundle says, which was asked for contradictions before."""
        files.make_folders(self._folder.parent, self._folder)
        if not redacted:
            self._continue(self._sent)
        if (name := _name_of(source)) is not None:
            path = self._folder / f"{today:%Y-%m-%d}{_SUFFIX[redacted]}"
            _append(path, zstandard.compress(_tag_files(source, name)))

    def prune(self, oldest: date) -> None:
        """Removes the tag files of days before; the journal and the newest day stay."""
        for path in sorted(self._folder.glob("*.tar.zst"))[:-1]:
            if path.name < f"{oldest:%Y-%m-%d}":
                path.unlink(missing_ok=True)

    def add_head(self, head: str, seq: int) -> None:
        """Remembers a head that came with a record; the next journal that has reached that record must have it."""
        heads = self._heads()
        if head in (GENESIS, "", *(one.head for one in heads)):
            return
        if head in _hashes(self.journal()):
            return
        files.make_folders(self._folder.parent, self._folder)
        self._write_heads([*heads, PublishedHead(head=head, seq=seq)][-_MAX_HEADS:])

    def has(self, source: BundleSource, redacted: bool) -> bool:
        """Whether this very bundle was filed before: reads all that is kept, so ask of those without new records."""
        name = _name_of(source)
        if name is None:
            return False
        return any(name.encode() in _unpacked(path) for path in self._folder.glob(f"*{_SUFFIX[redacted]}"))

    def _continue(self, journal: bytes) -> None:
        known = self.journal()
        if len(journal) <= len(known):
            return
        if self._unconfirmed(journal) != (heads := self._heads()) and heads:
            self._write_heads(self._unconfirmed(journal))
        path = self._folder / JOURNAL_FILE
        descriptor = files.open_own(path, os.O_WRONLY | os.O_APPEND)
        with files.held(descriptor):
            os.ftruncate(descriptor, len(known))
            files.write_all(descriptor, journal[len(known) :])
            os.fsync(descriptor)
        if not known:
            files.fsync_folder(self._folder)

    def journal(self) -> bytes:
        """What is known of the machine's journal; a torn end is not."""
        try:
            status = (self._folder / JOURNAL_FILE).stat()
            version = status.st_size, status.st_mtime_ns
            if self._known is None or self._known[0] != version:
                self._known = (
                    version,
                    _whole_lines(files.read_inside(self._folder, JOURNAL_FILE, _MAX_JOURNAL)),
                )
        except FileNotFoundError:
            return b""
        return self._known[1]

    def _has_any(self, redacted: bool) -> bool:
        return any(self._folder.glob(f"*{_SUFFIX[redacted]}"))

    def _heads(self) -> list[PublishedHead]:
        try:
            content = files.read_inside(self._folder, _HEADS)
            return msgspec.json.Decoder(PublishedHead).decode_lines(content)
        except (FileNotFoundError, *NOT_JSON):
            return []

    def _unconfirmed(self, journal: bytes) -> list[PublishedHead]:
        heads = self._heads()
        lines = _hashes(journal) if heads else set()
        return [one for one in heads if one.head not in lines]

    def _write_heads(self, heads: list[PublishedHead]) -> None:
        files.write_whole(self._folder / _HEADS, msgspec.json.Encoder().encode_lines(heads))


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def _hashes(journal: bytes) -> set[str]:
    return set(map(line_hash, journal.split(b"\n")[:-1]))


def _name_of(source: BundleSource) -> str | None:
    """What its tag files are kept as, by their sum: two bundles may have one name."""
    try:
        with source.open_member(bag.TAG_MANIFEST) as file:
            digest = files.sha256_of(file)
    except OSError:
        return None
    folder = source.walked.folder if bag.is_bag_name(source.walked.folder) else "bundle"
    return f"{folder}-{digest[:16]}"


def _append(path: Path, frame: bytes) -> None:
    """Adds a frame, durably; what a crash left of one before is cut off, because no tool reads on behind it."""
    is_new = not path.exists()
    with files.held(files.open_own(path, os.O_RDWR)) as descriptor:
        with open(descriptor, "rb", closefd=False) as file:
            size = sum(len(one.data) for one in _frames(file))
        os.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)
        files.write_all(descriptor, frame)
        os.fsync(descriptor)
    if is_new:
        files.fsync_folder(path.parent)


def _unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        return b"".join(zstandard.decompress(bytes(one.data)) for one in _frames(file))


def _frames(file: BinaryIO) -> Iterator[Frame]:
    """The frames that are whole, up to the first that is not."""
    ahead = LookAhead(file)
    while (frame := frame_at(ahead)).complete:
        yield frame
        ahead.skip(len(frame.data))


def _tag_files(source: BundleSource, folder: str) -> bytes:
    """A tar file of a bag without its payload, and without an end: another follows."""
    parts = []
    for name, limit in _TAGS.items():
        if name in source.walked.members:
            content = source.read_member(name, limit)
            header = bag.encode_header(bag.Header(folder, name, len(content)))
            parts += [header, content, bytes(bag.padding(len(content)))]
    return b"".join(parts)
