"""Saves every record that can still be read into a new archive, and says what could not be."""

from datetime import UTC, datetime
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

import msgspec

from vmsonar_archive import files, layout
from vmsonar_archive.check import damage_finding
from vmsonar_archive.errors import UsageError, VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.frames import SEALED_LEVEL, read_frames
from vmsonar_archive.identity import ArchiveIdentity
from vmsonar_archive.journal import SEAL, Entry, Journal, Ledger
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.records import FORMAT
from vmsonar_archive.repair import entry_of
from vmsonar_archive.rewrite import rewrite
from vmsonar_archive.source import Source


class Recovered(msgspec.Struct, kw_only=True):
    """What was saved and what was not."""

    target: str
    records: int = 0
    files: int = 0
    findings: list[Finding] = []


def recover(source: Source, target: Path, now: datetime | None = None) -> Recovered:
    """Writes a new archive below target, which must be empty or not exist."""
    try:
        return _recover(source, target, now or datetime.now(UTC))
    except OSError as error:
        # Whatever goes wrong with the source is a finding: this is the target.
        raise VmsonarError(
            f"cannot write {error.filename or target}: {error.strerror}; what is below {target} is not complete"
        ) from None


def _recover(source: Source, target: Path, now: datetime) -> Recovered:
    _prepare(target)
    result = Recovered(target=str(target), findings=[])
    identity = _identity(source, result)
    files.write_whole(target / layout.ARCHIVE_FILE, msgspec.json.encode(identity) + b"\n")
    ledger = _ledger(source, result)
    segments = _segments(source, ledger, result)
    journal = Journal(target, lambda _point: None)
    try:
        for name, entry in segments:
            _save(_Reading(source, name.path, entry, result), target, name, journal, now)
    finally:
        journal.close()
    return result


def _prepare(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"{target} is not an empty folder: recover writes a new archive, give it a new place"
        )
    files.make_folders(target, target)


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


def _segments(source: Source, ledger: Ledger, result: Recovered) -> list[tuple[SegmentName, Entry | None]]:
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

    def __init__(self, source: Source, path: str, entry: Entry | None, result: Recovered) -> None:
        self._source = source
        self._path = path
        self._entry = entry
        self._stream: BinaryIO | None = None
        self.result = result

    def restart(self) -> None:
        """Goes to its beginning."""
        self.close_stream()
        try:
            entry = self._entry
            self._stream = self._source.open_current(entry) if entry else self._source.open(self._path)
        except (OSError, VmsonarError) as error:
            self._note(error)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size) if self._stream else b""
        except (OSError, VmsonarError) as error:
            self._note(error)
            return b""

    def close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def has_records(self) -> bool:
        """Whether anything can be saved; what cannot is noted."""
        lines = 0
        self.restart()
        for found in read_frames(cast(BinaryIO, self)):
            lines += len(found.lines)
            if found.damage is not None:
                self._add(damage_finding(self._path, found.damage, self._entry is not None))
        return lines > 0

    def _note(self, error: Exception) -> None:
        self._add(Finding.of(Code.CORRUPT, self._path, f"cannot be read: {error}"))

    def _add(self, finding: Finding) -> None:
        if finding not in self.result.findings:
            self.result.findings.append(finding)


def _save(reading: _Reading, target: Path, name: SegmentName, journal: Journal, now: datetime) -> None:
    place = target / name.path
    try:
        if not reading.has_records():
            return
        files.make_folders(target, place.parent)
        reading.restart()
        sealed = rewrite([cast(BinaryIO, reading)], place, name.path, SEALED_LEVEL)
        if sealed.records == 0:
            place.unlink()
            return
        journal.append(entry_of(SEAL, sealed, now))
    except OSError:
        place.unlink(missing_ok=True)
        raise
    finally:
        reading.close_stream()
    reading.result.records += sealed.records
    reading.result.files += 1
