"""What goes into a bundle, decided before its first byte is written: names, sizes, and where the bytes come from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from vmsonar_archive.bundle.snapshot import ArchiveSnapshot, HeldFile
from vmsonar_archive.format import bag, layout
from vmsonar_archive.format.bag import BUNDLE_FORMAT, BundledFile, BundleRecord
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.journal import ContentFacts
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding


@dataclass(frozen=True, slots=True)
class PayloadFile:
    """One file of the payload."""

    path: str
    size: int
    #: Gives the same bytes each time it is called.
    content: Callable[[], Iterator[bytes]]
    #: The expected hash; None where it is not known yet.
    sha256: str | None = None


@dataclass(slots=True)
class BundlePlan:
    """A bundle that can be written repeatedly."""

    folder: str
    record: BundleRecord
    items: list[PayloadFile]
    findings: list[Finding] = field(default_factory=list)

    @property
    def has_samples(self) -> bool:
        names = (SegmentName.parse(item.path) for item in self.items)
        return any(name.kind == layout.SAMPLE for name in names if name)


def plan_whole(snapshot: ArchiveSnapshot) -> BundlePlan:
    """Everything the archive holds: sealed files as they are, live ones up to their last whole record."""
    items: list[PayloadFile] = []
    described: list[BundledFile] = []
    findings = list(snapshot.findings)
    for path, held in sorted(snapshot.held.items()):
        if held.size > bag.MAX_SIZE:
            findings.append(Finding.of(Code.REFUSED, path, "is too large for a bundle"))
            continue
        items.append(held_item(held))
        if isinstance(held.facts, BundledFile):
            described.append(held.facts)
        elif held.size != held.facts.bytes:
            detail = f"has {held.size} bytes, the journal says {held.facts.bytes}"
            findings.append(Finding.of(Code.CORRUPT, path, detail))
    first, last = span_of([*snapshot.ledger.current.values(), *described])
    record = BundleRecord(
        format=BUNDLE_FORMAT,
        archive=snapshot.identity.archive,
        head=snapshot.ledger.head,
        first=first,
        last=last,
        files=described,
    )
    fixed = fixed_items(snapshot.archive_json, snapshot.journal)
    return BundlePlan(bag_folder(snapshot.identity, first, last), record, [*fixed, *items], findings)


def bag_folder(identity: ArchiveIdentity, first: datetime | None, last: datetime | None) -> str:
    """The bag's own name."""
    node = identity.hostname_short or identity.instance_id or identity.machine_id
    begin = first or identity.created
    return bag.bag_name(node, identity.archive, begin, last or begin)


def span_of(known: Sequence[ContentFacts]) -> tuple[datetime | None, datetime | None]:
    """Times of the first and the last record in some files."""
    first = min((one.first for one in known if one.first), default=None)
    return first, max((one.last for one in known if one.last), default=None)


def fixed_items(archive_json: bytes, journal: bytes) -> list[PayloadFile]:
    """The two files that every bundle begins with."""
    return [
        PayloadFile(layout.ARCHIVE_FILE, len(archive_json), lambda: iter((archive_json,))),
        PayloadFile(layout.JOURNAL_FILE, len(journal), lambda: iter((journal,))),
    ]


def held_item(held: HeldFile) -> PayloadFile:
    """A file as it lies in the archive, or the whole records of a live segment."""
    size = held.size if held.live is None else held.facts.bytes
    return PayloadFile(held.path, size, held.chunks, held.facts.sha256)
