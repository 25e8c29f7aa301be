"""Saves every record that can still be read into a new archive, and says what could not be."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.format.frames import SEALED_LEVEL, read_frames
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.journal import SEAL, Journal, JournalEntry, Ledger
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.source import Source
from vmsonar_archive.records import FORMAT
from vmsonar_archive.records.sets import MAX_SPANS, RecordSet
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.verify.content import damage_finding
from vmsonar_archive.write.outputs import guard
from vmsonar_archive.write.rewrite import rewrite


class Recovered(msgspec.Struct, kw_only=True):
    """What was saved and what was not."""

    target: str
    records: int = 0
    files: int = 0
    findings: list[Finding] = []


def recover(source: Source, target: Path, now: datetime | None = None) -> Recovered:
    """Writes a new archive below target, which must be empty or not exist, outside any other archive."""
    guard(target, ())
    is_new = not target.exists()
    try:
        refuse_filled(target)
        files.make_folders(target, target)
        with _emptied_if_interrupted(target, is_new):
            return _recover(source, target, now or datetime.now(UTC))
    except OSError as error:
        # Whatever goes wrong with the source is a finding: this is the target.
        raise VmsonarError(
            f"cannot write {error.filename or target}: {error.strerror}; what is below {target} is not complete"
        ) from None


@contextmanager
def _emptied_if_interrupted(target: Path, is_new: bool) -> Iterator[None]:
    """Removes everything after Ctrl-C: the target was empty before, so all of it is ours."""
    try:
        yield
    except KeyboardInterrupt:
        for entry in target.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if is_new:
            target.rmdir()
        raise


def _recover(source: Source, target: Path, now: datetime) -> Recovered:
    result = Recovered(target=str(target), findings=[])
    identity = _identity(source, result)
    files.write_whole(target / layout.ARCHIVE_FILE, msgspec.json.encode(identity) + b"\n")
    ledger = _ledger(source, result)
    segments = _segments(source, ledger, result)
    seen = RecordSet(max_spans=MAX_SPANS)
    with closing(Journal(target, lambda _point: None)) as journal:
        for name, entry in segments:
            read = partial(_Reading, source, name.path, entry, result)
            if _has_records(read, name.path, entry, result):
                saved = _save(read, target, name, journal, now, seen)
                result.records += saved
                result.files += saved > 0
    return result


def _has_records(
    read: Callable[[], "_Reading"], path: str, entry: JournalEntry | None, result: Recovered
) -> bool:
    """Whether anything can be saved; what cannot is noted."""
    lines = 0
    with read() as stream:
        for found in read_frames(cast(BinaryIO, stream)):
            lines += len(found.lines)
            if found.damage is not None:
                _add(result, damage_finding(path, found.damage, entry is not None))
    return lines > 0


def refuse_filled(target: Path) -> None:
    """Nothing that exists is written over."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"{target} is not an empty folder: recover writes a new archive, give it a new place"
        )


def _identity(source: Source, result: Recovered) -> ArchiveIdentity:
    """Keeps the archive's identity, so that its records stay the same records; invents one when it is lost."""
    try:
        return source.identity()
    except VmsonarError as error:
        result.findings.append(Finding.of(Code.CORRUPT, layout.ARCHIVE_FILE, str(error)))
        return ArchiveIdentity(
            format=FORMAT, archive=str(uuid4()), machine_id="unknown", created=datetime.now(UTC)
        )


def _ledger(source: Source, result: Recovered) -> Ledger:
    try:
        return source.journal()[0]
    except (OSError, VmsonarError) as error:
        result.findings.append(Finding.of(Code.CORRUPT, layout.JOURNAL_FILE, f"cannot be read: {error}"))
        return Ledger()


def _segments(
    source: Source, ledger: Ledger, result: Recovered
) -> list[tuple[SegmentName, JournalEntry | None]]:
    try:
        present, sizes = source.segments(ledger), source.sizes()
    except OSError as error:
        raise VmsonarError(f"cannot read {source.name}: {error.strerror}") from None
    for path in ledger.current:
        if path not in present and path not in sizes:
            result.findings.append(
                Finding.of(Code.MISSING, path, "the journal lists it, but it is not there")
            )
    names = [(name, entry) for path, (_, entry) in present.items() if (name := SegmentName.parse(path))]
    return sorted(names, key=lambda found: found[0])


class _Reading(RawIOBase):
    """A segment of the source as far as it can be read; that it cannot be is a finding, not an exception."""

    def __init__(self, source: Source, path: str, entry: JournalEntry | None, result: Recovered) -> None:
        self._path = path
        self._result = result
        self._stream: BinaryIO | None = None
        try:
            self._stream = source.open_current(entry) if entry else source.open(path)
        except (OSError, VmsonarError) as error:
            self._note(error)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size) if self._stream else b""
        except (OSError, VmsonarError) as error:
            self._note(error)
            return b""

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        super().close()

    def _note(self, error: Exception) -> None:
        _add(self._result, Finding.of(Code.CORRUPT, self._path, f"cannot be read: {error}"))


def _add(result: Recovered, finding: Finding) -> None:
    """Adds a finding once: a segment is read twice."""
    if finding not in result.findings:
        result.findings.append(finding)


def _save(
    read: Callable[[], _Reading],
    target: Path,
    name: SegmentName,
    journal: Journal,
    now: datetime,
    seen: RecordSet,
) -> int:
    """Writes the records of a segment anew; those of a merge and of what it took in are the same, and saved once."""
    place = files.beneath(target, name.path)
    try:
        files.make_folders(target, place.parent)
        with read() as stream:
            sealed = rewrite([cast(BinaryIO, stream)], place, name.path, SEALED_LEVEL, seen)
        if sealed.records:
            journal.append(JournalEntry.of(SEAL, sealed, now))
        else:
            place.unlink()
    except OSError:
        place.unlink(missing_ok=True)
        raise
    return sealed.records
