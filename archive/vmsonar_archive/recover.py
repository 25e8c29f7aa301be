"""Saves every record that can still be read into a new archive, and says what could not be."""

import os
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec

from vmsonar_archive import files, layout
from vmsonar_archive.check import damage_finding
from vmsonar_archive.errors import UsageError, VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.frames import SEALED_LEVEL, read_frames
from vmsonar_archive.identity import ArchiveIdentity
from vmsonar_archive.journal import SEAL, Journal, Ledger
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
    _prepare(target)
    result = Recovered(target=str(target), findings=[])
    identity = _identity(source, result)
    files.write_whole(target / layout.ARCHIVE_FILE, msgspec.json.encode(identity) + b"\n")
    journal = Journal(target, lambda _point: None)
    ledger = _ledger(source, result)
    try:
        for name in _segments(source, ledger, result):
            _save(source, name, target, journal, result, ledger, now or datetime.now(UTC))
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


def _segments(source: Source, ledger: Ledger, result: Recovered) -> list[SegmentName]:
    present = source.sizes()
    for path in ledger.current:
        if path not in present:
            result.findings.append(
                Finding.of(Code.MISSING, path, "the journal lists it, but it is not there")
            )
    names = [name for path in present if (name := SegmentName.parse(path)) and path not in ledger.gone]
    return sorted(names)


def _save(
    source: Source,
    name: SegmentName,
    target: Path,
    journal: Journal,
    result: Recovered,
    ledger: Ledger,
    now: datetime,
) -> None:
    place = target / name.path
    try:
        if not _has_records(source, name, result, ledger):
            return
        files.make_folders(target, place.parent)
        with source.open(name.path) as stream:
            sealed = rewrite([stream], place, name.path, SEALED_LEVEL)
    except (OSError, VmsonarError) as error:
        result.findings.append(Finding.of(Code.CORRUPT, name.path, f"cannot be read: {error}"))
        return
    if sealed.records == 0:
        os.unlink(place)
        return
    journal.append(entry_of(SEAL, sealed, now))
    result.records += sealed.records
    result.files += 1


def _has_records(source: Source, name: SegmentName, result: Recovered, ledger: Ledger) -> bool:
    """Whether anything can be saved of a segment; what cannot is noted."""
    lines = 0
    with source.open(name.path) as stream:
        for found in read_frames(stream):
            lines += len(found.lines)
            if found.damage is not None:
                listed = name.path in ledger.current
                result.findings.append(damage_finding(name.path, found.damage, listed))
    return lines > 0
