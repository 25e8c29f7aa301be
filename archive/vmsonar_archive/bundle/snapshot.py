"""A consistent view of an archive that may be written meanwhile: the journal, and every file it speaks of, held open.

The tree may belong to somebody less trusted: no link is followed, and only plain files of the archive's owner count.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from vmsonar_archive import files, layout
from vmsonar_archive.bundle.live import LivePart, examine_live
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.files import Refused
from vmsonar_archive.findings import Code, Finding, Severity
from vmsonar_archive.identity import ArchiveIdentity, parse_identity
from vmsonar_archive.journal import Entry, Ledger
from vmsonar_archive.layout import SegmentName

CHUNK = 1024 * 1024
# Sealing happens once an hour, or a few times in a row; this is far more.
_ATTEMPTS = 20
_MAX_SMALL = 1024 * 1024
_MAX_JOURNAL = 256 * 1024 * 1024
_KNOWN = {
    layout.ARCHIVE_FILE,
    layout.JOURNAL_FILE,
    layout.LOCK_FILE,
    layout.NAMESPACE_FILE,
    layout.UPLOADS_FILE,
}


class _Moved(Exception):
    """The archive changed while we looked."""


@dataclass(slots=True)
class Held:
    """A file of the archive, open, so that it stays the same whatever the writer does to its name."""

    path: str
    descriptor: int
    size: int
    entry: Entry | None = None
    live: LivePart | None = None

    def chunks(self) -> Iterator[bytes]:
        """Its content, as long as it was when it was opened."""
        yield from chunks_of(self.descriptor, self.size)


def chunks_of(descriptor: int, size: int) -> Iterator[bytes]:
    """The first bytes of a file; fewer when it has become shorter."""
    position = 0
    while position < size:
        chunk = os.pread(descriptor, min(CHUNK, size - position), position)
        if not chunk:
            return
        position += len(chunk)
        yield chunk


@dataclass(slots=True)
class Snapshot:
    """What an archive held at one moment."""

    name: str
    identity: ArchiveIdentity
    archive_json: bytes
    journal: bytes
    ledger: Ledger
    held: dict[str, Held] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def find(self, code: Code, path: str, detail: str, severity: Severity | None = None) -> None:
        self.findings.append(Finding.of(code, path, detail, severity))

    def close(self) -> None:
        for held in self.held.values():
            os.close(held.descriptor)
        self.held.clear()


def take_snapshot(folder: int, name: str) -> Snapshot:
    """Holds everything that the journal lists and what is being written; the caller closes it."""
    owner = os.fstat(folder).st_uid
    for _ in range(_ATTEMPTS):
        snapshot = _begin(folder, name, owner)
        try:
            _hold_all(folder, snapshot, owner)
        except _Moved:
            snapshot.close()
            continue
        except BaseException:
            snapshot.close()
            raise
        return snapshot
    raise VmsonarError(f"{name} changes too fast to be bundled: try again, or stop the writer first")


def _begin(folder: int, name: str, owner: int) -> Snapshot:
    try:
        content = _read(folder, layout.ARCHIVE_FILE, owner, _MAX_SMALL)
    except FileNotFoundError:
        raise VmsonarError(f"{name} is not an archive: it has no {layout.ARCHIVE_FILE}") from None
    identity = parse_identity(content, f"{name}/{layout.ARCHIVE_FILE}")
    journal = _read_journal(folder, owner)
    return Snapshot(name, identity, content, journal, Ledger.of(journal.split(b"\n")[:-1]))


def _read_journal(folder: int, owner: int) -> bytes:
    """Its whole lines."""
    try:
        journal = _read(folder, layout.JOURNAL_FILE, owner, _MAX_JOURNAL)
    except FileNotFoundError:
        return b""
    return journal[: journal.rfind(b"\n") + 1]


def _read(folder: int, path: str, owner: int, limit: int) -> bytes:
    with files.open_beneath(folder, path, owner) as file:
        content = b"".join(chunks_of(file.fileno(), limit + 1))
    if len(content) > limit:
        raise VmsonarError(f"{path} is far too large to be what its name says")
    return content


def _hold_all(folder: int, snapshot: Snapshot, owner: int) -> None:
    sizes = dict(files.list_tree(folder))
    for path, entry in sorted(snapshot.ledger.current.items()):
        _hold_sealed(folder, snapshot, entry, layout.temporary(path) in sizes, owner)
    for path, size in sizes.items():
        if path not in snapshot.ledger.current and path not in _KNOWN:
            _hold_unlisted(folder, snapshot, path, size, owner)
    # A line more, and what we opened may be what it speaks of.
    if _read_journal(folder, owner) != snapshot.journal:
        raise _Moved


def _hold_sealed(folder: int, snapshot: Snapshot, entry: Entry, pending: bool, owner: int) -> None:
    held = _hold(folder, snapshot, entry.path, owner)
    if held is None:
        if entry.path not in {finding.path for finding in snapshot.findings}:
            snapshot.find(Code.MISSING, entry.path, "the journal lists it, but it is not there")
        return
    held.entry = entry
    if pending and sha256_of(held) != entry.sha256:
        # The version that the journal speaks of is about to take its place; this one goes.
        raise _Moved


def _hold_unlisted(folder: int, snapshot: Snapshot, path: str, size: int, owner: int) -> None:
    if path in snapshot.ledger.gone or layout.is_temporary(path) or (size >= 0 and layout.is_parquet(path)):
        return  # on its way out, or on its way in: a table that the writer has not journalled yet
    if size >= 0 and SegmentName.parse(path) is None:
        detail = "is no part of the archive, and is left out"
        snapshot.find(Code.UNLISTED, path, detail, Severity.WARNING)
        return
    held = _hold(folder, snapshot, path, owner)
    if held is None:
        return
    held.live = examine_live(held.descriptor, held.size)
    if held.live.damage is not None:
        detail = f"{held.live.damage.detail}, in the frame at byte {held.live.damage.offset}"
        snapshot.find(Code.CORRUPT, path, detail)
    elif not held.live.tally.records:
        os.close(snapshot.held.pop(path).descriptor)


def _hold(folder: int, snapshot: Snapshot, path: str, owner: int) -> Held | None:
    """Opens a file; what is not a plain file of the owner's is refused and said."""
    try:
        file = files.open_beneath(folder, path, owner)
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
        return None
    with file:
        descriptor = os.dup(file.fileno())
    held = Held(path, descriptor, os.fstat(descriptor).st_size)
    snapshot.held[path] = held
    return held


def sha256_of(held: Held) -> str:
    """The hash of its content."""
    digest = hashlib.sha256()
    for chunk in held.chunks():
        digest.update(chunk)
    return digest.hexdigest()
