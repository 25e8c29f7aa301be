"""The bytes of a bundle: the order of its files, tar headers (ustar), BagIt's tag files (RFC 8493), bundle.json."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.format.identity import parse_document
from vmsonar_archive.format.journal import ContentFacts, JournalEntry, Ledger
from vmsonar_archive.records.ids import ArchiveId, Sha256
from vmsonar_archive.system.errors import FormatError

BAGIT = "bagit.txt"
BAG_INFO = "bag-info.txt"
BUNDLE = "bundle.json"
MANIFEST = "manifest-sha256.txt"
TAG_MANIFEST = "tagmanifest-sha256.txt"
SIGNATURE = TAG_MANIFEST + ".sig"
PAYLOAD = "data/"

#: Tag files that the tag manifest lists, in its order.
LISTED = (BAG_INFO, BAGIT, BUNDLE, MANIFEST)
_BEFORE = (BAGIT, PAYLOAD + layout.ARCHIVE_FILE, PAYLOAD + layout.JOURNAL_FILE)
_AFTER = (BAG_INFO, BUNDLE, MANIFEST, TAG_MANIFEST, SIGNATURE)
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
_BAG_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")

#: bagit.txt, to the byte.
DECLARATION = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"

# More than ten years of hours, and as many lines of the longest kind.
MAX_LINES = 100_000
MAX_BYTES = 20 * 1024 * 1024

_LINE = re.compile(rb"([0-9a-f]{64})  ([A-Za-z0-9._+=/-]{1,120})")


def rank(name: str) -> tuple[int, str] | None:
    """Where in the file a member stands; None for what is no part of a bundle."""
    if name in _BEFORE:
        return _BEFORE.index(name), ""
    if name in _AFTER:
        return len(_BEFORE) + 1 + _AFTER.index(name), ""
    path = name.removeprefix(PAYLOAD)
    return (len(_BEFORE), path) if layout.is_archived(path) and name != path else None


def bag_name(node: str, archive: str, first: datetime, last: datetime) -> str:
    """Node, minute of the last record, and eight digits made of the archive and the time covered.

    It is the bag's folder and the file's usual name: increments of one minute differ in their digits.
    """
    safe = _UNSAFE.sub("-", node).strip("-")[:63] or "node"
    covered = f"{archive} {first.isoformat()} {last.isoformat()}"
    return f"{safe}_{last.year:04}{last:%m%dT%H%M}_{hashlib.sha256(covered.encode()).hexdigest()[:8]}"


def is_bag_name(name: str) -> bool:
    """Whether it can be what `bag_name` gives: no path leads elsewhere by it."""
    return _BAG_NAME.fullmatch(name) is not None


BLOCK = 512
#: Two empty blocks, and nothing after them.
END = bytes(2 * BLOCK)
#: What eleven octal digits can say.
MAX_SIZE = 8**11 - 1
#: 1980-01-01: the time of every member, because the time of copying is nobody's business.
MTIME = 315532800

_MAX_FOLDER = 155
_MAX_NAME = 100
_PART = r"[A-Za-z0-9_+=-](?:[A-Za-z0-9._+=-])*"
_FOLDER = re.compile(_PART)
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TYPES = {
    0: "an old-style member",
    ord("1"): "a hard link",
    ord("2"): "a symbolic link",
    ord("3"): "a character device",
    ord("4"): "a block device",
    ord("5"): "a folder",
    ord("6"): "a FIFO",
    ord("S"): "a sparse file",
    ord("x"): "an extended header",
    ord("g"): "an extended header",
    ord("L"): "a long name",
    ord("K"): "a long link",
}


class BadHeader(ValueError):
    """A block that is not a header as we write them."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says."""

    folder: str
    name: str
    size: int


def encode_header(header: Header) -> bytes:
    """The 512 bytes of a header."""
    named = _FOLDER.fullmatch(header.folder) and _NAME.fullmatch(header.name)
    if not named or len(header.folder) > _MAX_FOLDER or len(header.name) > _MAX_NAME:
        raise ValueError(f"{header.folder}/{header.name} cannot be a name in a bundle")
    if not 0 <= header.size <= MAX_SIZE:
        raise ValueError(f"{header.name} has {header.size} bytes, a bundle takes up to {MAX_SIZE}")
    fields = b"".join(
        (
            header.name.encode().ljust(100, b"\0"),
            b"0000644\0",
            b"0000000\0",
            b"0000000\0",
            b"%011o\0" % header.size,
            b"%011o\0" % MTIME,
            b" " * 8,
            b"0",
            bytes(100),
            b"ustar\x0000",
            bytes(64),
            b"0000000\0" * 2,
            header.folder.encode().ljust(155, b"\0"),
            bytes(12),
        )
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def decode_header(block: bytes) -> Header:
    """Reads a header; refuses what encode_header() would not write."""
    if block[257:262] != b"ustar":
        raise BadHeader("not a tar header")
    kind = block[156]
    if kind != ord("0"):
        raise BadHeader(f"{_shown(block)} is {_TYPES.get(kind, 'of an unknown type')}, not a regular file")
    try:
        folder = block[345:500].rstrip(b"\0").decode("ascii")
        name = block[:100].rstrip(b"\0").decode("ascii")
        header = Header(folder, name, int(block[124:135], 8))
        canonical = encode_header(header)
    except ValueError:
        raise BadHeader(f"{_shown(block)} is not a header of a bundle") from None
    if canonical != block:
        raise BadHeader(f"the header of {name} is not canonical")
    return header


def _shown(block: bytes) -> str:
    """The name in a header, safe to show on one line."""
    folder, name = block[345:500].split(b"\0")[0], block[:100].split(b"\0")[0]
    full = folder + b"/" + name if folder else name
    return repr(full[:200].decode("ascii", "replace"))


def padding(size: int) -> int:
    """The number of zero bytes that follow content of this size."""
    return -size % BLOCK


class BadManifest(ValueError):
    """A manifest that is not as we write them."""


def encode_manifest(hashes: Iterable[tuple[str, str]]) -> bytes:
    """The lines of a manifest, from names and SHA-256 sums."""
    return b"".join(b"%b  %b\n" % (digest.encode(), name.encode()) for name, digest in hashes)


def decode_manifest(content: bytes) -> dict[str, str]:
    """Names and SHA-256 sums in their order; refuses what encode_manifest() would not write."""
    found: dict[str, str] = {}
    if content and not content.endswith(b"\n"):
        raise BadManifest("its last line does not end")
    begin = 0
    while begin < len(content):
        # Not split at once: of empty lines alone the list would take sixteen times as much.
        end = content.index(b"\n", begin)
        number = len(found) + 1
        if number > MAX_LINES:
            raise BadManifest(f"it has more than {MAX_LINES} lines")
        match = _LINE.fullmatch(content, begin, end)
        if match is None:
            raise BadManifest(f"line {number} is not a SHA-256 sum and a name")
        begin = end + 1
        name = match[2].decode()
        if name in found:
            raise BadManifest(f"line {number} lists {name} a second time")
        found[name] = match[1].decode()
    return found


def bag_info(archive: str, sizes: Mapping[str, int]) -> bytes:
    """bag-info.txt: whose it is, and the number of bytes and files in the payload."""
    oxum = f"{sum(sizes.values())}.{len(sizes)}"
    return (
        f"Bag-Software-Agent: vmsonar\nExternal-Identifier: urn:uuid:{archive}\nPayload-Oxum: {oxum}\n"
    ).encode()


#: A reader refuses a higher one.
BUNDLE_FORMAT = 1

# So many are in a description of the greatest size that we write; it bounds what decoding can cost.
_MAX_RECORD_VALUES = 400_000

#: How a file came to differ from the journal's: still open, cut by time or number, kinds left out, redacted, made here.
LIVE, CUT, SELECT, REDACT, DERIVE = "live", "cut", "select", "redact", "derive"


class _FileHead(ContentFacts, frozen=True):
    """What a description begins with, before the fields of ContentFacts."""

    path: str
    operations: list[str]


class BundledFile(_FileHead, frozen=True, kw_only=True):
    """A file that the journal does not list as it lies in the bundle."""

    sha256: Sha256
    #: The file of the archive it was made from, and its hash (under redaction: keyed).
    source: str | None = None
    source_sha256: str | None = None

    def entry(self) -> JournalEntry:
        """The same as a journal would say it."""
        time = self.last or datetime.fromtimestamp(0, UTC)
        return JournalEntry("bundle", self.path, time, **self.content())


class BundleRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of bundle.json."""

    format: int
    archive: ArchiveId
    head: Sha256
    #: The bag's folder in the tar file, so that a signature covers it; None in bundles of earlier versions.
    folder: str | None = None
    first: datetime | None = None
    last: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Records up to this number were left out, because an earlier upload has them.
    after_seq: int | None = None
    only: list[str] = []
    redacted: list[str] = []
    #: Files that are not as the journal says.
    files: list[BundledFile] = []
    #: Files that the journal lists and that were left out on request.
    left_out: list[str] = []

    @property
    def is_partial(self) -> bool:
        """Whether something was left out or replaced on request."""
        asked = self.since or self.until or self.only or self.redacted or self.left_out
        return bool(asked) or self.after_seq is not None

    def told(self) -> str:
        """What was asked for, in words."""
        spans = (("since", self.since), ("until", self.until))
        words = [f"{word} {time:%Y-%m-%dT%H:%M:%SZ}" for word, time in spans if time]
        words += [f"after record {self.after_seq}"] if self.after_seq is not None else []
        lists = (("only", self.only), ("redacted", self.redacted))
        words += [f"{word} {', '.join(names)}" for word, names in lists if names]
        return "; ".join(words) or "files left out"

    def apply(self, ledger: Ledger) -> None:
        """Makes a journal tell what is in the bundle."""
        for path in self.left_out:
            ledger.current.pop(path, None)
        for file in self.files:
            ledger.current[file.path] = file.entry()
            ledger.gone.pop(file.path, None)

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def parse_record(content: bytes, where: str) -> BundleRecord:
    """Reads bundle.json."""
    wrong = "does not describe a bundle"
    if content.count(b",") > _MAX_RECORD_VALUES:
        raise FormatError(f"{where} {wrong}: it has more than {_MAX_RECORD_VALUES} values")
    record = parse_document(content, BundleRecord, BUNDLE_FORMAT, wrong, where)
    paths = (*record.left_out, *(one.path for one in record.files), *(one.source for one in record.files))
    if not all(path is None or layout.is_archived(path) for path in paths):
        raise FormatError(f"{where} {wrong}: a path that no file of an archive has")
    return record
