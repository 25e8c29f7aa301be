"""Is this bundle whole and unaltered, and are several increments complete when taken together?"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.format import bag, layout
from vmsonar_archive.format.bag import BadManifest, BundleRecord
from vmsonar_archive.format.journal import Ledger
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.read.source import MAX_RECORD, BundleSource
from vmsonar_archive.system.errors import FormatError, NewerFormat, VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.archive import Depth, verify
from vmsonar_archive.verify.signature import Trust, check_signature

_SMALL = 64 * 1024
_LIMITS = {
    bag.BAGIT: _SMALL,
    bag.BAG_INFO: _SMALL,
    bag.BUNDLE: MAX_RECORD,
    bag.MANIFEST: bag.MAX_BYTES,
    bag.TAG_MANIFEST: _SMALL,
}


def verify_bundle(
    source: BundleSource,
    depth: Depth = Depth.FULL,
    head: str | None = None,
    progress: Progress | None = None,
    trust: Trust | None = None,
) -> Report:
    """Checks the tar file, the bag, its signature, and the archive inside."""
    found: list[Finding] = []
    for offset, detail in source.walked.problems:
        found.append(Finding.of(Code.NOT_CANONICAL, "", f"{detail}, at byte {offset}"))
    tags = _read_tags(source, found)
    _check_tags(tags, found)
    listed = _check_manifest(source, tags, found)
    record = _check_record(source, found)
    report = _verify_inside(source, depth, head, progress)
    if depth is not Depth.QUICK:
        _check_rest(source, listed, found, progress or Progress())
    if record is not None:
        _check_against_journal(source, record, tags, found)
    report.signed_by = check_signature(source, tags.get(bag.TAG_MANIFEST), trust, found)
    for finding in found:
        report.add(finding)
    report.findings.sort(key=lambda finding: (finding.severity is not Severity.ERROR, finding.path))
    return report


def _read_tags(source: BundleSource, found: list[Finding]) -> dict[str, bytes]:
    tags: dict[str, bytes] = {}
    for name, limit in _LIMITS.items():
        try:
            tags[name] = source.read_member(name, limit)
        except FileNotFoundError:
            found.append(Finding.of(Code.MISSING, name, "a bundle has one, this has none"))
        except VmsonarError as error:
            found.append(Finding.of(Code.CORRUPT, name, str(error)))
    return tags


def _check_tags(tags: dict[str, bytes], found: list[Finding]) -> None:
    """The tag manifest lists exactly what it must, with the right sums."""
    if bag.TAG_MANIFEST not in tags:
        return
    try:
        listed = bag.decode_manifest(tags[bag.TAG_MANIFEST])
    except BadManifest as error:
        found.append(Finding.of(Code.CORRUPT, bag.TAG_MANIFEST, str(error)))
        return
    if tuple(listed) != bag.LISTED:
        found.append(Finding.of(Code.CORRUPT, bag.TAG_MANIFEST, "does not list what it must"))
    for name, digest in listed.items():
        if name in tags and hashlib.sha256(tags[name]).hexdigest() != digest:
            detail = "its SHA-256 differs from the tag manifest's"
            found.append(Finding.of(Code.CORRUPT, name, detail))
    if tags.get(bag.BAGIT, bag.DECLARATION) != bag.DECLARATION:
        found.append(Finding.of(Code.CORRUPT, bag.BAGIT, "is not what it must be"))


def _check_manifest(source: BundleSource, tags: dict[str, bytes], found: list[Finding]) -> dict[str, str]:
    """The payload is what the manifest lists, no file more and none less."""
    if bag.MANIFEST not in tags:
        return {}
    try:
        listed = bag.decode_manifest(tags[bag.MANIFEST])
    except BadManifest as error:
        found.append(Finding.of(Code.CORRUPT, bag.MANIFEST, str(error)))
        return {}
    payload = [name for name in source.walked.members if name.startswith(bag.PAYLOAD)]
    absent, unknown = sorted(listed.keys() - set(payload)), sorted(set(payload) - listed.keys())
    said = "the manifest lists it, but it is not there"
    found.extend(Finding.of(Code.MISSING, name, said) for name in absent)
    found.extend(Finding.of(Code.UNLISTED, name, "the manifest does not list it") for name in unknown)
    if listed.keys() == set(payload) and list(listed) != payload:
        found.append(Finding.of(Code.NOT_CANONICAL, bag.MANIFEST, "is not in the order of the files"))
    return listed


def _check_record(source: BundleSource, found: list[Finding]) -> BundleRecord | None:
    try:
        record = source.record()
    except FormatError as error:
        newer = isinstance(error, NewerFormat)
        found.append(Finding.of(Code.NEWER_FORMAT if newer else Code.CORRUPT, bag.BUNDLE, str(error)))
        return None
    except VmsonarError:
        return None  # said already
    if record.folder is not None and record.folder != source.walked.folder:
        detail = f"the bundle's folder was called {record.folder!a}, now it is {source.walked.folder}"
        found.append(Finding.of(Code.CORRUPT, bag.BUNDLE, detail))
    if record.is_partial:
        found.append(Finding.of(Code.PARTIAL, bag.BUNDLE, f"partial by request: {record.told()}"))
    return record


def _verify_inside(source: BundleSource, depth: Depth, head: str | None, progress: Progress | None) -> Report:
    try:
        return verify(source, depth, head, progress)
    except VmsonarError as error:
        report = Report(findings=[])
        report.add(Finding.of(Code.CORRUPT, "", str(error)))
        return report


def _check_rest(
    source: BundleSource, listed: dict[str, str], found: list[Finding], progress: Progress
) -> None:
    """Hashes what the journal does not vouch for with the same hash as the manifest."""
    current = _ledger(source).current
    for name, digest in listed.items():
        entry = current.get(name.removeprefix(bag.PAYLOAD))
        if name not in source.walked.members or (entry is not None and entry.sha256 == digest):
            continue
        hashed = hashlib.sha256()
        with source.open_member(name) as stream:
            while chunk := stream.read(1024 * 1024):
                hashed.update(chunk)
                progress.advance(len(chunk))
        if hashed.hexdigest() != digest:
            found.append(Finding.of(Code.CORRUPT, name, "its SHA-256 differs from the manifest's"))
        elif entry is not None:
            detail = "the manifest's SHA-256 differs from the journal's"
            found.append(Finding.of(Code.CORRUPT, name, detail))


def _ledger(source: BundleSource) -> Ledger:
    try:
        return source.journal()[0]
    except (OSError, VmsonarError):
        return Ledger()


def _check_against_journal(
    source: BundleSource, record: BundleRecord, tags: dict[str, bytes], found: list[Finding]
) -> None:
    """What bundle.json and bag-info.txt say fits the archive inside."""
    if bag.BUNDLE in tags and record.head != _ledger(source).head:
        detail = "was written for another journal: the heads differ"
        found.append(Finding.of(Code.CHAIN_BROKEN, bag.BUNDLE, detail))
    with suppress(VmsonarError):  # said already
        if source.identity().archive != record.archive:
            found.append(Finding.of(Code.CORRUPT, bag.BUNDLE, "names another archive than archive.json does"))
    current = _ledger(source).current
    for path in source.sizes():
        if path not in current and path not in (layout.ARCHIVE_FILE, layout.JOURNAL_FILE):
            detail = "neither the journal nor bundle.json lists it"
            found.append(Finding.of(Code.UNLISTED, bag.PAYLOAD + path, detail))
    info = bag.bag_info(record.archive, source.sizes())
    if bag.BAG_INFO in tags and tags[bag.BAG_INFO] != info:
        found.append(Finding.of(Code.CORRUPT, bag.BAG_INFO, "does not fit the payload"))


@dataclass(frozen=True, slots=True)
class RecordRange:
    """The records that a bundle answers for: those after one number, up to another."""

    path: str
    archive: str
    after: int
    last: int


def range_of(path: Path) -> RecordRange | None:
    """What a bundle answers for; None for what is no bundle, or was cut by time or kind."""
    if path.is_dir():
        return None
    try:
        source = BundleSource(path)
    except (VmsonarError, OSError):
        return None
    try:
        record = source.record()
        current = source.journal()[0].current
    except (VmsonarError, OSError):
        return None
    finally:
        source.close()
    if record.since or record.until:
        return None
    last = max((entry.last_seq or 0 for entry in current.values()), default=0)
    return RecordRange(str(path), record.archive, record.after_seq or 0, last)


def missing_between(ranges: Iterable[RecordRange]) -> dict[str, Finding]:
    """For each bundle before which records of its archive are in none of the others."""
    found: dict[str, Finding] = {}
    reached: dict[str, int] = {}
    for covered in sorted(ranges, key=lambda covered: (covered.archive, covered.after)):
        before = reached.get(covered.archive)
        if before is not None and covered.after > before:
            detail = f"records {before + 1} to {covered.after} of this archive are in none of these bundles"
            found[covered.path] = Finding.of(Code.MISSING, "", detail)
        reached[covered.archive] = max(before or 0, covered.last)
    return found
