"""Is this bundle whole and unaltered, and are several increments complete when taken together?"""

import hashlib
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vmsonar_archive.format import bag, layout
from vmsonar_archive.format.bag import BadManifest, BundleRecord
from vmsonar_archive.format.journal import Ledger
from vmsonar_archive.read.findings import Code, Finding, Report
from vmsonar_archive.read.source import MAX_RECORD, BundleSource
from vmsonar_archive.system.errors import FormatError, NewerFormat, VmsonarError
from vmsonar_archive.system.files import sha256_of_chunks
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.archive import Depth, errors_first, verify
from vmsonar_archive.verify.signature import Trust, check_signature

if TYPE_CHECKING:  # a quick look does without it
    from vmsonar_archive.verify.content import CheckedFiles

_CHUNK = 1024 * 1024
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
    known: "CheckedFiles | None" = None,
) -> Report:
    """Checks the archive inside, and then what is around it: the tar file, the bag and its signature."""
    try:
        report = verify(source, depth, head, progress, known)
    except VmsonarError as error:
        report = Report()
        report.add(Finding.of(Code.CORRUPT, "", str(error)))
    bag_check = _BagCheck(source, report)
    tags = bag_check.read_tags()
    bag_check.check_tags(tags)
    listed = bag_check.check_manifest(tags)
    record = bag_check.check_record()
    if depth is not Depth.QUICK:
        bag_check.check_rest(listed, progress or Progress())
    if record is not None:
        bag_check.check_against_journal(record, tags)
    check_signature(source, tags.get(bag.TAG_MANIFEST), trust, report)
    report.findings.sort(key=errors_first)
    return report


class _BagCheck:
    """What can be wrong with the bag around an archive; it goes into a report."""

    def __init__(self, source: BundleSource, report: Report) -> None:
        self._source = source
        self._report = report
        try:
            self._ledger = source.journal()[0]
        except (OSError, VmsonarError):
            self._ledger = Ledger()
        for offset, detail in source.walked.problems:
            self._find(Code.NOT_CANONICAL, "", f"{detail}, at byte {offset}")

    def _find(self, code: Code, name: str, detail: str) -> None:
        self._report.add(Finding.of(code, name, detail))

    def read_tags(self) -> dict[str, bytes]:
        tags: dict[str, bytes] = {}
        for name, limit in _LIMITS.items():
            try:
                tags[name] = self._source.read_member(name, limit)
            except FileNotFoundError:
                self._find(Code.MISSING, name, "a bundle has one, this has none")
            except VmsonarError as error:
                self._find(Code.CORRUPT, name, str(error))
        return tags

    def _listed(self, tags: dict[str, bytes], manifest: str) -> dict[str, str] | None:
        """Names and sums in a manifest; None where it is missing or no manifest."""
        try:
            return bag.decode_manifest(tags[manifest]) if manifest in tags else None
        except BadManifest as error:
            self._find(Code.CORRUPT, manifest, str(error))
            return None

    def check_tags(self, tags: dict[str, bytes]) -> None:
        """The tag manifest lists exactly what it must, with the right sums."""
        listed = self._listed(tags, bag.TAG_MANIFEST)
        if listed is None:
            return
        if tuple(listed) != bag.LISTED:
            self._find(Code.CORRUPT, bag.TAG_MANIFEST, "does not list what it must")
        for name, digest in listed.items():
            if name in tags and hashlib.sha256(tags[name]).hexdigest() != digest:
                self._find(Code.CORRUPT, name, "its SHA-256 differs from the tag manifest's")
        if tags.get(bag.BAGIT, bag.DECLARATION) != bag.DECLARATION:
            self._find(Code.CORRUPT, bag.BAGIT, "is not what it must be")

    def check_manifest(self, tags: dict[str, bytes]) -> dict[str, str]:
        """The payload is what the manifest lists, no file more and none less."""
        listed = self._listed(tags, bag.MANIFEST)
        if listed is None:
            return {}
        payload = [name for name in self._source.walked.members if name.startswith(bag.PAYLOAD)]
        for name in sorted(listed.keys() - set(payload)):
            self._find(Code.MISSING, name, "the manifest lists it, but it is not there")
        for name in sorted(set(payload) - listed.keys()):
            self._find(Code.UNLISTED, name, "the manifest does not list it")
        if listed.keys() == set(payload) and list(listed) != payload:
            self._find(Code.NOT_CANONICAL, bag.MANIFEST, "is not in the order of the files")
        return listed

    def check_record(self) -> BundleRecord | None:
        try:
            record = self._source.record()
        except FormatError as error:
            newer = isinstance(error, NewerFormat)
            self._find(Code.NEWER_FORMAT if newer else Code.CORRUPT, bag.BUNDLE, str(error))
            return None
        except VmsonarError:
            return None  # said already
        folder = self._source.walked.folder
        if record.folder is not None and record.folder != folder:
            detail = f"the bundle's folder was called {record.folder!a}, now it is {folder}"
            self._find(Code.CORRUPT, bag.BUNDLE, detail)
        if record.is_partial:
            self._find(Code.PARTIAL, bag.BUNDLE, f"partial by request: {record.told()}")
        return record

    def check_rest(self, listed: dict[str, str], progress: Progress) -> None:
        """Hashes what the journal does not vouch for with the same hash as the manifest."""
        for name, digest in listed.items():
            entry = self._ledger.current.get(name.removeprefix(bag.PAYLOAD))
            if name not in self._source.walked.members or (entry is not None and entry.sha256 == digest):
                continue
            with self._source.open_member(name) as stream:
                size, found = sha256_of_chunks(iter(partial(stream.read, _CHUNK), b""))
            progress.advance(size)
            if found != digest:
                self._find(Code.CORRUPT, name, "its SHA-256 differs from the manifest's")
            elif entry is not None:
                self._find(Code.CORRUPT, name, "the manifest's SHA-256 differs from the journal's")

    def check_against_journal(self, record: BundleRecord, tags: dict[str, bytes]) -> None:
        """What bundle.json and bag-info.txt say fits the archive inside."""
        if bag.BUNDLE in tags and record.head != self._ledger.head:
            detail = "was written for another journal: the heads differ"
            self._find(Code.CHAIN_BROKEN, bag.BUNDLE, detail)
        with suppress(VmsonarError):  # said already
            if self._source.identity().archive != record.archive:
                self._find(Code.CORRUPT, bag.BUNDLE, "names another archive than archive.json does")
        sizes = self._source.sizes()
        for path in sizes.keys() - self._ledger.current.keys() - {layout.ARCHIVE_FILE, layout.JOURNAL_FILE}:
            self._find(Code.UNLISTED, bag.PAYLOAD + path, "neither the journal nor bundle.json lists it")
        if bag.BAG_INFO in tags and tags[bag.BAG_INFO] != bag.bag_info(record.archive, sizes):
            self._find(Code.CORRUPT, bag.BAG_INFO, "does not fit the payload")


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
        with closing(BundleSource(path)) as source:
            record, current = source.record(), source.journal()[0].current
    except (VmsonarError, OSError):
        return None
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
