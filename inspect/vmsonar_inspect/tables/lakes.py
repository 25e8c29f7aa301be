"""Lakes: Hive partitions kind=/date=/archive= with one file per kind of every export, and manifests that list them.

A manifest holds a line of JSON per file and is named after its own SHA-256, so that none is ever changed: an export
adds one when its files are there. What no manifest lists is no part of the lake yet. A lake without any is older than
they are.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path

import msgspec
from vmsonar_archive.parquet.schema import SAMPLES
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.system.errors import NOT_JSON, FormatError, VmsonarError
from vmsonar_archive.system.progress import Progress

from vmsonar_inspect.tables.stores import LISTS, LakeStore
from vmsonar_inspect.tables.work_units import ListedFile, StoredTable, TableUnit

# Files that do not match were not written by an export.
_PLACE = re.compile(
    r"kind=([a-z_]{1,40})/date=((?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01]))"
    r"/archive=([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([^/]+\.parquet)"
)

#: Makes the folder for files copied or derived from a unit.
Folder = Callable[[str, str, list[str]], Path]

# Far more than one export writes into a manifest; more is not one of ours.
_MAX_BYTES = 64 * 1024 * 1024
_NO_MANIFEST = "was made by an earlier version: it has no manifest and cannot be checked"


@dataclass
class LakeListing:
    """The files that lie in a lake, and those that its manifests list."""

    lake: LakeStore
    sizes: dict[str, int]
    #: By name; a file that was rewritten is listed in each version.
    files: dict[str, list[ListedFile]] = field(default_factory=dict)
    #: Whether there is any manifest, intact or not.
    exists: bool = False
    findings: list[Finding] = field(default_factory=list)

    @property
    def unlisted(self) -> list[str]:
        return [name for name in self.sizes if name not in self.files and not name.startswith(LISTS)]


def read_listing(lake: LakeStore) -> LakeListing:
    """Reads the manifests of a lake; a damaged one is a finding and lists nothing."""
    listing = LakeListing(lake, lake.sizes())
    for name in [name for name in listing.sizes if name.startswith(f"{LISTS}/")]:
        listing.exists = True
        try:
            for entry in _decode(name, lake.read(name, _MAX_BYTES)):
                listing.files.setdefault(entry.path, []).append(entry)
        except (VmsonarError, OSError) as error:
            listing.findings.append(Finding.of(Code.CORRUPT, f"{lake.place}/{name}", str(error)))
    return listing


def _decode(name: str, content: bytes) -> list[ListedFile]:
    if _manifest_name(content) != name:
        raise FormatError("is not the manifest that its name says: it was damaged")
    try:
        entries = msgspec.json.Decoder(ListedFile).decode_lines(content)
    except NOT_JSON as error:
        raise FormatError(f"is not a manifest: {error}") from None
    for entry in entries:
        if _PLACE.fullmatch(entry.path) is None:
            raise FormatError(f"lists what no file of a lake is called: {entry.path[:100]!r}")
    return entries


def _manifest_name(content: bytes) -> str:
    return f"{LISTS}/{hashlib.sha256(content).hexdigest()}.jsonl"


def add_manifest(lake: LakeStore, entries: Iterable[ListedFile]) -> None:
    """Adds files that were already stored to the lake by listing them."""
    ordered = sorted(entries, key=lambda entry: entry.path)
    content = msgspec.json.Encoder().encode_lines(ordered)
    with tempfile.NamedTemporaryFile(prefix="vmsonar-") as file:
        file.write(content)
        file.flush()
        lake.put(Path(file.name), _manifest_name(content))


def prune_lake(lake: LakeStore, expired: Callable[[str, date], bool]) -> tuple[int, int]:
    """Removes files by kind and day, from the manifests first; returns how many went, and their bytes."""
    files = dropped = 0
    doomed: set[str] = set()
    for name in [name for name in lake.sizes() if name.startswith(f"{LISTS}/")]:
        entries = _decode(name, lake.read(name, _MAX_BYTES))
        gone = {entry.path for entry in entries if _is_expired(entry.path, expired)}
        if gone:
            if kept := [entry for entry in entries if entry.path not in gone]:
                add_manifest(lake, kept)
            lake.remove(name)
            doomed |= gone
            dropped += sum(entry.bytes for entry in entries if entry.path in gone)
    # Also those that an interrupted pruning left.
    for path in doomed | {path for path in lake.sizes() if _is_expired(path, expired)}:
        lake.remove(path)
        files += 1
    return files, dropped


def _is_expired(path: str, expired: Callable[[str, date], bool]) -> bool:
    match = _PLACE.fullmatch(path)
    return match is not None and expired(match[1], date.fromisoformat(match[2]))


def lake_units(listing: LakeListing, touches: Callable[[date], bool], folder: Folder) -> Iterator[TableUnit]:
    """One unit per archive, day and export, whose files share a name; a group without samples is no unit."""
    lake = listing.lake
    grouped: dict[tuple[str, str, str], dict[str, StoredTable]] = {}
    for path in listing.files if listing.exists else listing.sizes:
        if match := _PLACE.fullmatch(path):
            kind, day, archive, name = match.groups()
            stored = StoredTable(lake.source(path), f"{lake.place}/{path}", listing.files.get(path, []))
            grouped.setdefault((archive, day, name), {})[kind] = stored
    for (archive, day, name), stored_by_kind in grouped.items():
        if SAMPLES in stored_by_kind and touches(_day(lake, day)):
            place = f"{lake.place} {name.removesuffix('.parquet')}"
            made_in = partial(folder, archive, day, ["lake", name])
            yield TableUnit(archive, day, stored_by_kind, made_in, place)


def _day(lake: LakeStore, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise FormatError(f"{lake.place} is not a lake of ours: there is no day {text}") from None


def listing_findings(listing: LakeListing) -> list[Finding]:
    """The findings about a lake that need no reading of its tables."""
    found = list(listing.findings)
    place = listing.lake.place
    if listing.sizes and not listing.exists:
        found.append(Finding.of(Code.UNCHECKED_TABLES, place, _NO_MANIFEST))
    elif unlisted := listing.unlisted:
        detail = (
            f"{len(unlisted)} files are in no manifest and were left out, {unlisted[0]} first: export again"
        )
        found.append(Finding.of(Code.UNLISTED, place, detail, Severity.WARNING))
    return found


def verify_lake(lake: LakeStore, quick: bool, progress: Progress) -> Report:
    """Checks every file of a lake against the manifests; `quick` compares sizes only."""
    listing = read_listing(lake)
    report = Report(findings=[], files=len(listing.files))
    for finding in listing.findings:
        report.add(msgspec.structs.replace(finding, path=finding.path.removeprefix(f"{lake.place}/")))
    if not listing.exists:
        report.add(Finding.of(Code.UNCHECKED_TABLES, "", _NO_MANIFEST, Severity.WARNING))
    for name, versions in listing.files.items():
        wrong = _check(listing, name, versions, quick)
        progress.advance(max(0, listing.sizes.get(name, 0)))
        if wrong is not None:
            report.add(wrong)
        else:
            report.samples += versions[-1].records or 0
    for name in listing.unlisted if listing.exists else ():
        if listing.sizes[name] < 0:
            report.add(Finding.of(Code.REFUSED, name, "is not a regular file"))
        else:
            detail = (
                "is in no manifest: an export did not end, or it was put there; export again, or remove it"
            )
            report.add(Finding.of(Code.UNLISTED, name, detail))
    report.findings.sort(key=lambda finding: (finding.severity is not Severity.ERROR, finding.path))
    return report


def _check(listing: LakeListing, name: str, versions: list[ListedFile], quick: bool) -> Finding | None:
    size = listing.sizes.get(name)
    if size is None:
        return Finding.of(Code.MISSING, name, "a manifest lists it, but it is not there")
    if size < 0:
        return Finding.of(Code.REFUSED, name, "is not a regular file")
    if all(size != entry.bytes for entry in versions):
        return Finding.of(Code.CORRUPT, name, f"has {size} bytes, the manifest says {versions[-1].bytes}")
    if quick:
        return None
    try:
        found = listing.lake.sha256(name)
    except (OSError, VmsonarError) as error:
        return Finding.of(Code.CORRUPT, name, f"cannot be read: {error}")
    if all(found != entry.sha256 for entry in versions):
        return Finding.of(Code.CORRUPT, name, "its SHA-256 differs from the manifest's")
    return None
