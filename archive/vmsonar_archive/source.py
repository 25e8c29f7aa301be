"""Where the files of an archive come from: a folder here, a bundle in its own module."""

import hashlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive import files, layout
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.identity import ArchiveIdentity, parse_identity
from vmsonar_archive.journal import MERGE, Entry, Ledger
from vmsonar_archive.layout import SegmentName

# An identity or a journal larger than this is not one of ours.
_MAX_SMALL = 1024 * 1024
_MAX_JOURNAL = 256 * 1024 * 1024
_MAX_JOURNAL_LINE = 4 * 1024 * 1024
_MAX_BAD_LINES = 1000
_MAX_ENTRIES = 100_000
_MAX_GONE = 500_000


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
            content = self._read(layout.ARCHIVE_FILE, _MAX_SMALL)
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
        with stream:
            return self._read_journal(stream, Ledger(watched))

    def _read_journal(self, stream: BinaryIO, ledger: Ledger) -> tuple[Ledger, bool]:
        """Line by line, so that a hostile one costs no more memory than an honest one."""
        rest = b""
        size = bad = 0
        while chunk := stream.read(1024 * 1024):
            size += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                bad += not ledger.add(line)
                if bad > _MAX_BAD_LINES:
                    break
            known = len(ledger.current) + len(ledger.dropped)
            too_much = known > _MAX_ENTRIES or len(ledger.gone) > _MAX_GONE or len(rest) > _MAX_JOURNAL_LINE
            if bad > _MAX_BAD_LINES or too_much or size > _MAX_JOURNAL:
                raise VmsonarError(f"{self.name}/{layout.JOURNAL_FILE} is not the journal of an archive")
        return ledger, bool(rest)

    def open_current(self, entry: Entry) -> BinaryIO:
        """The version of a file that the journal speaks of, where there is one; otherwise what lies there."""
        return self.open_right(entry) or self.open(entry.path)

    def open_right(self, entry: Entry, *, in_place: bool = False) -> BinaryIO | None:
        """The version that the journal speaks of: about to take its place or, if asked for, having taken it.

        It stays open from the look at it on, because it can take its place at any moment.
        """
        places = (layout.temporary(entry.path), entry.path) if in_place else (layout.temporary(entry.path),)
        for path in places:
            try:
                stream = self.open(path)
            except (OSError, VmsonarError):
                continue
            if self._matches(stream, entry):
                return stream
            stream.close()
        return None

    def _matches(self, stream: BinaryIO, entry: Entry) -> bool:
        """Whether it is what the journal says; if so it is back at its beginning."""
        try:
            if stream.seek(0, os.SEEK_END) != entry.bytes:
                return False
            stream.seek(0)
            if sha256_of(stream) != entry.sha256:
                return False
            stream.seek(0)
        except (OSError, VmsonarError):
            return False
        return True

    def segments(self, ledger: Ledger) -> dict[str, tuple[int, Entry | None]]:
        """Every segment to be read, with its size and what the journal says of it.

        A segment that was merged into another is still one of them while the other is not there.
        """
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
        for entry in ledger.current.values():
            left = [path for path in entry.sources if path in sizes and path in ledger.gone]
            if entry.op == MERGE and left and not self.has_right(entry):
                found |= {path: (sizes[path], None) for path in left if SegmentName.parse(path)}
        return dict(sorted(found.items()))

    def has_right(self, entry: Entry) -> bool:
        """Whether the version that the journal speaks of is anywhere."""
        stream = self.open_right(entry, in_place=True)
        if stream is None:
            return False
        stream.close()
        return True

    def _read(self, path: str, limit: int) -> bytes:
        with self.open(path) as file:
            parts = []
            while chunk := file.read(min(limit, 1024 * 1024)):
                parts.append(chunk)
                limit -= len(chunk)
                if limit <= 0:
                    raise VmsonarError(f"{self.name}/{path} is far too large to be what its name says")
            return b"".join(parts)


def sha256_of(stream: BinaryIO) -> str:
    """The hash of what is left to read."""
    digest = hashlib.sha256()
    while chunk := stream.read(1024 * 1024):
        digest.update(chunk)
    return digest.hexdigest()


class FolderSource(Source):
    """An archive in a folder, live or not. No link is followed."""

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self.root = root
        self._descriptor = files.open_root(root)

    def sizes(self) -> dict[str, int]:
        return dict(files.list_tree(self._descriptor))

    def open(self, path: str) -> BinaryIO:
        return files.open_beneath(self._descriptor, path)

    def close(self) -> None:
        os.close(self._descriptor)
