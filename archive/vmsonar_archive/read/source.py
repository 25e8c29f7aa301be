"""Where the files of an archive come from: a folder, or a bundle read in place."""

import hashlib
import os
from abc import ABC, abstractmethod
from contextlib import ExitStack, nullcontext, suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, cast

from vmsonar_archive.format import bag, layout
from vmsonar_archive.format.bag import BUNDLE_FORMAT, BadManifest, BundleRecord, parse_record
from vmsonar_archive.format.identity import ArchiveIdentity, parse_identity
from vmsonar_archive.format.journal import MERGE, ContentFacts, JournalEntry, Ledger
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.format.lines import checksum_holds
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.read.tar_walk import Slice, walk
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError, VmsonarError, cannot_open

# An identity or a journal larger than this is not one of ours.
_MAX_SMALL = 1024 * 1024
_MAX_JOURNAL = 256 * 1024 * 1024
# A merge of twenty thousand segments.
_MAX_JOURNAL_LINE = 1024 * 1024
_MAX_BAD_LINES = 1000
# Of an increment; looked for one by one in what was checked before.
_FEW = 50
_MAX_ENTRIES = 100_000
# A description of a bundle lists every derived file; more than this is not one of ours.
MAX_RECORD = 16 * 1024 * 1024
_MAGICS = {
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xfd7zXZ": "compressed by xz",
    b"BZh": "compressed by bzip2",
    b"PK": "a zip file",
    b"PAR1": "a Parquet file",
}


class Source(ABC):
    """The files of one archive, by their path inside it."""

    #: What a person calls it.
    name: str

    def trouble(self) -> str | None:
        """What is wrong with it as a whole, if anything can be seen from outside."""
        return None

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Every file with its size, sorted by path; -1 for what is not a regular file."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """A stream over one file; raises OSError or Refused."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds."""

    def identity(self) -> ArchiveIdentity:
        """Which archive this is; refuses a format from the future."""
        try:
            content = self.read(layout.ARCHIVE_FILE, _MAX_SMALL)
        except FileNotFoundError:
            raise VmsonarError(
                f"{self.name} is not an archive: it has no {layout.ARCHIVE_FILE}; "
                "name bundles one by one, as FOLDER/*.tar"
            ) from None
        except OSError as error:
            raise VmsonarError(f"cannot read {self.name}/{layout.ARCHIVE_FILE}: {error.strerror}") from None
        return parse_identity(content, f"{self.name}/{layout.ARCHIVE_FILE}")

    def journal(self, watched: str | None = None) -> tuple[Ledger, bool]:
        """What the journal says, and whether its last line is torn; an archive without one has an empty one."""
        try:
            stream = self.open(layout.JOURNAL_FILE)
        except FileNotFoundError:
            return Ledger(watched), False
        with BufferedReader(cast(RawIOBase, stream), 256 * 1024) as lines:
            return self._read_journal(lines, Ledger(watched))

    def _read_journal(self, lines: BinaryIO, ledger: Ledger) -> tuple[Ledger, bool]:
        """Line by line, so that a hostile one costs no more memory than an honest one."""
        size = bad = 0
        rest = b""
        while not rest and (line := lines.readline(_MAX_JOURNAL_LINE + 1)):
            size += len(line)
            if line.endswith(b"\n"):
                bad += not ledger.add(line[:-1])
            else:
                rest = line
            for found, limit, what in (
                (len(rest), _MAX_JOURNAL_LINE, "bytes in one line"),
                (size, _MAX_JOURNAL, "bytes"),
                (len(ledger.current) + len(ledger.dropped), _MAX_ENTRIES, "files"),
                (bad, _MAX_BAD_LINES, "lines that are none of a journal"),
            ):
                if found > limit:
                    raise VmsonarError(
                        f"{self.name}/{layout.JOURNAL_FILE} is not the journal of an archive: "
                        f"it has more than {limit} {what}, near line {ledger.lines + 1}"
                    )
        if rest and checksum_holds(rest[:-1]):
            ledger.break_here("was changed: it is whole, but for its newline")
            return ledger, False
        return ledger, bool(rest)

    def misfits(self, ledger: Ledger) -> list[Finding]:
        """What of the archive's identity is no longer what the journal vouches for."""
        found = []
        told = "is not what it was when the journal was begun: it was changed, and is to be put back"
        known = (
            (layout.ARCHIVE_FILE, ledger.identity, Severity.ERROR),
            (layout.NAMESPACE_FILE, ledger.namespace, Severity.WARNING),
        )
        for path, sha256, severity in known:
            # It may be missing, as the namespace is in a bundle, or not ours to read.
            with suppress(OSError, VmsonarError):
                if sha256 and hashlib.sha256(self.read(path, _MAX_SMALL)).hexdigest() != sha256:
                    found.append(Finding.of(Code.CORRUPT, path, told, severity))
        return found

    def open_current(self, entry: JournalEntry) -> BinaryIO:
        """The version of a file that the journal speaks of, where there is one; otherwise what lies there."""
        return self.open_journalled(entry) or self.open(entry.path)

    def open_journalled(self, entry: JournalEntry, *, in_place: bool = False) -> BinaryIO | None:
        """The version that the journal speaks of: about to take its place or, if asked for, having taken it.

        It stays open once it was checked, because it can take its place at any moment.
        """
        places = (layout.temporary(entry.path), entry.path) if in_place else (layout.temporary(entry.path),)
        for path in places:
            with suppress(OSError, VmsonarError), ExitStack() as stack:
                stream = stack.enter_context(self.open(path))
                if is_journalled(stream, entry):
                    stack.pop_all()
                    return stream
        return None

    def has_journalled(self, entry: JournalEntry) -> bool:
        """Whether the version that the journal speaks of is anywhere."""
        with self.open_journalled(entry, in_place=True) or nullcontext() as stream:
            return stream is not None

    def segments(self, ledger: Ledger) -> dict[str, tuple[int, JournalEntry | None]]:
        """Every segment to be read, with its size and what the journal says of it."""
        sizes = self.sizes()
        found = {
            path: (size, ledger.current.get(path))
            for path, size in sizes.items()
            if SegmentName.parse(path) is not None and path not in ledger.gone
        }
        for path in filter(layout.is_temporary, sizes):
            target = layout.final(path)
            entry = ledger.current.get(target)
            if entry is not None and target not in sizes and SegmentName.parse(target) is not None:
                found[target] = sizes[path], entry
        found |= {path: (sizes[path], None) for path in self.unreplaced(ledger, sizes)}
        return dict(sorted(found.items()))

    def unreplaced(self, ledger: Ledger, sizes: dict[str, int]) -> list[str]:
        """Segments that were merged into another and still count, because the other is not there as it should be."""
        left: dict[str, list[str]] = {}
        for path in sizes:
            into = ledger.gone.get(path)
            if into is not None and SegmentName.parse(path):
                left.setdefault(into, []).append(path)
        targets = (ledger.current.get(into) for into in left)
        lost = [
            entry.path for entry in targets if entry and entry.op == MERGE and not self.has_journalled(entry)
        ]
        return [path for into in lost for path in left[into]]

    def read(self, path: str, limit: int) -> bytes:
        """The content of a small file."""
        with self.open(path) as file:
            return _read_small(file, limit, f"{self.name}/{path}")


def _read_small(file: BinaryIO, limit: int, where: str) -> bytes:
    size = file.seek(0, os.SEEK_END)
    if size > limit:
        raise VmsonarError(f"{where} is far too large to be what its name says")
    file.seek(0)
    parts = []
    # Short reads are usual, and the file may grow meanwhile.
    while size > 0 and (chunk := file.read(min(size, 1024 * 1024))):
        parts.append(chunk)
        size -= len(chunk)
    return b"".join(parts)


def is_journalled(stream: BinaryIO, facts: ContentFacts) -> bool:
    """Whether a stream holds exactly what the journal says; it is then back at its beginning."""
    if stream.seek(0, os.SEEK_END) != facts.bytes:
        return False
    stream.seek(0)
    if files.sha256_of(stream) != facts.sha256:
        return False
    stream.seek(0)
    return True


class FolderSource(Source):
    """An archive in a folder, live or not. No link is followed."""

    def __init__(self, root: Path, folder: int | None = None, owner: int | None = None) -> None:
        """The folder may be open already; with an owner, files of others are refused."""
        self.name = str(root)
        self.folder = files.open_root(root) if folder is None else os.dup(folder)
        self._owner = owner

    def sizes(self) -> dict[str, int]:
        return dict(files.list_tree(self.folder))

    def open(self, path: str) -> BinaryIO:
        return files.open_beneath(self.folder, path, self._owner)

    def close(self) -> None:
        os.close(self.folder)


class NotABundle(UsageError):
    """A file that holds no archive of ours."""


class BundleSource(Source):
    """The files of an archive inside a bundle; no byte is unpacked to a disk."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._journals: dict[str | None, tuple[Ledger, bool]] = {}
        #: The beginning of its journal as it was checked with an earlier bundle, whose files need not be here again.
        self.checked = b""
        self._descriptor = _open(path)
        try:
            self.size = os.fstat(self._descriptor).st_size
            self.walked = walk(self._descriptor, self.size)
            if not self.walked.members:
                raise NotABundle(f"{path} is not a bundle: {self._what_else()}")
        except BaseException:
            self.close()
            raise

    def sizes(self) -> dict[str, int]:
        found = self.walked.members.items()
        inside = {n.removeprefix(bag.PAYLOAD): m.size for n, m in found if n.startswith(bag.PAYLOAD)}
        return dict(sorted(inside.items()))

    def open(self, path: str) -> BinaryIO:
        return self.open_member(bag.PAYLOAD + path)

    def open_member(self, name: str) -> BinaryIO:
        """A stream over a file of the bag itself."""
        member = self.walked.members.get(name)
        if member is None:
            raise FileNotFoundError(2, "not in the bundle", name)
        return cast(BinaryIO, Slice(self._descriptor, member.offset, member.size))

    def read_member(self, name: str, limit: int) -> bytes:
        """The content of a small file of the bag."""
        with self.open_member(name) as file:
            return _read_small(file, limit, f"{self.name}: {name}")

    def trouble(self) -> str | None:
        """The first place that is not as it should be; what can be read may not be all."""
        if not self.walked.problems:
            return "the bundle is cut short" if self.walked.cut else None
        place, what = self.walked.problems[0]
        return f"{what} (at byte {place})"

    def sums(self) -> dict[str, str]:
        """The SHA-256 sums of the archive's files, as far as the manifest can be read."""
        try:
            listed = bag.decode_manifest(self.read_member(bag.MANIFEST, bag.MAX_BYTES))
        except (OSError, BadManifest):
            return {}
        return {name.removeprefix(bag.PAYLOAD): digest for name, digest in listed.items()}

    def record(self) -> BundleRecord:
        """What bundle.json says; an empty one when it was cut off."""
        try:
            content = self.read_member(bag.BUNDLE, MAX_RECORD)
        except FileNotFoundError:
            return BundleRecord(format=BUNDLE_FORMAT, archive="", head="")
        return parse_record(content, f"{self.name}: {bag.BUNDLE}")

    def journal(self, watched: str | None = None) -> tuple[Ledger, bool]:
        """What the journal in it says, with what bundle.json says of files that differ."""
        if watched in self._journals:
            return self._journals[watched]
        resumed = self._resumed() if self.checked and watched is None else None
        ledger, torn = resumed or super().journal(watched)
        # A description that cannot be read is for verification to name; what it would add is then missing.
        with suppress(VmsonarError):
            self.record().apply(ledger)
        self._journals[watched] = ledger, torn
        return ledger, torn

    def _resumed(self) -> tuple[Ledger, bool] | None:
        """What the journal says from where it was checked before; None where it begins otherwise, or for many files."""
        sizes = self.sizes()
        if sizes.get(layout.JOURNAL_FILE, 0) < len(self.checked) or len(sizes) > _FEW:
            return None
        with self.open(layout.JOURNAL_FILE) as stream:
            if stream.read(len(self.checked)) != self.checked:
                return None
            with BufferedReader(cast(RawIOBase, stream), 256 * 1024) as lines:
                return self._read_journal(lines, Ledger.after(self.checked, sizes))

    def close(self) -> None:
        os.close(self._descriptor)

    def _what_else(self) -> str:
        if not self.size:
            return "it is empty"
        head = os.pread(self._descriptor, 512, 0)
        for magic, meaning in _MAGICS.items():
            if head.startswith(magic):
                return f"it is {meaning}"
        if head[257:262] == b"ustar":
            return f"it is a tar file of something else ({self.walked.problems[0][1]})"
        return "it is no tar file"


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise VmsonarError(f"{path} does not exist") from None
    except OSError as error:
        raise cannot_open(path, error) from None
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotABundle(f"{path} is neither a folder nor a regular file: give an archive or a bundle")
    return descriptor


def open_source(path: Path) -> Source:
    """The files of an archive, wherever they lie; the caller closes it."""
    return FolderSource(path) if path.is_dir() else BundleSource(path)
