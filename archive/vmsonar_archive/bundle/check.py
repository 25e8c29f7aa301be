"""Is this bundle whole and unaltered? Stricter than BagIt: one canonical form, so that any changed byte shows."""

import hashlib
from collections.abc import Callable

from vmsonar_archive import layout
from vmsonar_archive.bundle import manifest, names
from vmsonar_archive.bundle.manifest import BadManifest
from vmsonar_archive.bundle.record import BundleRecord
from vmsonar_archive.bundle.signature import Trust, check_signature
from vmsonar_archive.bundle.source import MAX_RECORD, BundleSource
from vmsonar_archive.errors import FormatError, VmsonarError
from vmsonar_archive.findings import Code, Finding, Report, Severity
from vmsonar_archive.journal import Ledger
from vmsonar_archive.verify import Depth, no_progress, verify

_SMALL = 64 * 1024
_LIMITS = {
    names.BAGIT: _SMALL,
    names.BAG_INFO: _SMALL,
    names.BUNDLE: MAX_RECORD,
    names.MANIFEST: manifest.MAX_BYTES,
    names.TAG_MANIFEST: _SMALL,
}


def verify_bundle(
    source: BundleSource,
    depth: Depth = Depth.FULL,
    head: str | None = None,
    progress: Callable[[int], None] = no_progress,
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
        _check_rest(source, listed, found, progress)
    if record is not None:
        _check_against_journal(source, record, tags, found)
    report.signed_by = check_signature(source, tags.get(names.TAG_MANIFEST), trust, found)
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
    if names.TAG_MANIFEST not in tags:
        return
    try:
        listed = manifest.decode(tags[names.TAG_MANIFEST])
    except BadManifest as error:
        found.append(Finding.of(Code.CORRUPT, names.TAG_MANIFEST, str(error)))
        return
    if tuple(listed) != names.LISTED:
        found.append(Finding.of(Code.CORRUPT, names.TAG_MANIFEST, "does not list what it must"))
    for name, digest in listed.items():
        if name in tags and hashlib.sha256(tags[name]).hexdigest() != digest:
            detail = "its SHA-256 differs from the tag manifest's"
            found.append(Finding.of(Code.CORRUPT, name, detail))
    if tags.get(names.BAGIT, manifest.DECLARATION) != manifest.DECLARATION:
        found.append(Finding.of(Code.CORRUPT, names.BAGIT, "is not what it must be"))


def _check_manifest(source: BundleSource, tags: dict[str, bytes], found: list[Finding]) -> dict[str, str]:
    """The payload is what the manifest lists, no file more and none less."""
    if names.MANIFEST not in tags:
        return {}
    try:
        listed = manifest.decode(tags[names.MANIFEST])
    except BadManifest as error:
        found.append(Finding.of(Code.CORRUPT, names.MANIFEST, str(error)))
        return {}
    payload = [name for name in source.walked.members if name.startswith(names.PAYLOAD)]
    absent, unknown = sorted(listed.keys() - set(payload)), sorted(set(payload) - listed.keys())
    said = "the manifest lists it, but it is not there"
    found.extend(Finding.of(Code.MISSING, name, said) for name in absent)
    found.extend(Finding.of(Code.UNLISTED, name, "the manifest does not list it") for name in unknown)
    if listed.keys() == set(payload) and list(listed) != payload:
        found.append(Finding.of(Code.NOT_CANONICAL, names.MANIFEST, "is not in the order of the files"))
    return listed


def _check_record(source: BundleSource, found: list[Finding]) -> BundleRecord | None:
    try:
        record = source.record()
    except FormatError as error:
        newer = "written in format" in str(error)
        found.append(Finding.of(Code.NEWER_FORMAT if newer else Code.CORRUPT, names.BUNDLE, str(error)))
        return None
    except VmsonarError:
        return None  # said already
    if record.is_partial:
        found.append(Finding.of(Code.PARTIAL, names.BUNDLE, f"partial by request: {record.told()}"))
    return record


def _verify_inside(
    source: BundleSource, depth: Depth, head: str | None, progress: Callable[[int], None]
) -> Report:
    try:
        return verify(source, depth, head, progress)
    except VmsonarError as error:
        report = Report(findings=[])
        report.add(Finding.of(Code.CORRUPT, "", str(error)))
        return report


def _check_rest(
    source: BundleSource, listed: dict[str, str], found: list[Finding], progress: Callable[[int], None]
) -> None:
    """Hashes what the journal does not vouch for with the same hash as the manifest."""
    current = _ledger(source).current
    for name, digest in listed.items():
        entry = current.get(name.removeprefix(names.PAYLOAD))
        if name not in source.walked.members or (entry is not None and entry.sha256 == digest):
            continue
        hashed = hashlib.sha256()
        with source.open_member(name) as stream:
            while chunk := stream.read(1024 * 1024):
                hashed.update(chunk)
                progress(len(chunk))
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
    if names.BUNDLE in tags and record.head != _ledger(source).head:
        detail = "was written for another journal: the heads differ"
        found.append(Finding.of(Code.CHAIN_BROKEN, names.BUNDLE, detail))
    current = _ledger(source).current
    for path in source.sizes():
        if path not in current and path not in (layout.ARCHIVE_FILE, layout.JOURNAL_FILE):
            detail = "neither the journal nor bundle.json lists it"
            found.append(Finding.of(Code.UNLISTED, names.PAYLOAD + path, detail))
    info = manifest.bag_info(record.archive, source.sizes())
    if names.BAG_INFO in tags and tags[names.BAG_INFO] != info:
        found.append(Finding.of(Code.CORRUPT, names.BAG_INFO, "does not fit the payload"))
