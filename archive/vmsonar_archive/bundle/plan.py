"""What goes into a bundle, decided before its first byte is written: names, sizes, and where the bytes come from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from vmsonar_archive.bundle.snapshot import ArchiveSnapshot, HeldFile, chunks_of
from vmsonar_archive.format import bag, layout
from vmsonar_archive.format.bag import BUNDLE_FORMAT, LIVE, BundledFile, BundleRecord
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.journal import ContentFacts, JournalEntry
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.system.files import sha256_of_chunks


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
    def payload_bytes(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def has_samples(self) -> bool:
        bag = (SegmentName.parse(item.path) for item in self.items)
        return any(name.kind == layout.SAMPLE for name in bag if name)


def plan_whole(snapshot: ArchiveSnapshot) -> BundlePlan:
    """Everything the archive holds: sealed files as they are, live ones up to their last whole record."""
    items = [fixed_item(layout.ARCHIVE_FILE, snapshot.archive_json)]
    items.append(fixed_item(layout.JOURNAL_FILE, snapshot.journal))
    described: list[BundledFile] = []
    findings = list(snapshot.findings)
    for path, held in sorted(snapshot.held.items()):
        if held.size > bag.MAX_SIZE:
            findings.append(Finding.of(Code.REFUSED, path, "is too large for a bundle"))
        elif held.entry is not None:
            items.append(sealed_item(held, held.entry))
            if held.size != held.entry.bytes:
                detail = f"has {held.size} bytes, the journal says {held.entry.bytes}"
                findings.append(Finding.of(Code.CORRUPT, path, detail))
        else:
            described.append(describe_live(held))
            items.append(live_item(held, described[-1]))
    first, last = span_of(snapshot, described)
    record = BundleRecord(
        format=BUNDLE_FORMAT,
        archive=snapshot.identity.archive,
        head=snapshot.ledger.head,
        first=first,
        last=last,
        files=described,
    )
    return BundlePlan(bag_folder(snapshot.identity, first, last), record, items, findings)


def bag_folder(identity: ArchiveIdentity, first: datetime | None, last: datetime | None) -> str:
    """The bag's own name."""
    node = identity.hostname_short or identity.instance_id or identity.machine_id
    begin = first or identity.created
    return bag.bag_name(node, identity.archive, begin, last or begin)


def span_of(
    snapshot: ArchiveSnapshot, described: list[BundledFile]
) -> tuple[datetime | None, datetime | None]:
    """Times of the first and the last record."""
    known: list[ContentFacts] = [*snapshot.ledger.current.values(), *described]
    first = min((one.first for one in known if one.first), default=None)
    return first, max((one.last for one in known if one.last), default=None)


def fixed_item(path: str, content: bytes) -> PayloadFile:
    """A small file that is in memory."""
    return PayloadFile(path, len(content), lambda: iter((content,)))


def sealed_item(held: HeldFile, entry: JournalEntry) -> PayloadFile:
    """A file as it lies in the archive."""
    return PayloadFile(held.path, held.size, held.chunks, entry.sha256)


def live_item(held: HeldFile, described: BundledFile) -> PayloadFile:
    """The whole records of a live segment."""
    return PayloadFile(held.path, described.bytes, lambda: live_chunks(held), described.sha256)


def live_chunks(held: HeldFile) -> Iterator[bytes]:
    assert held.live is not None
    yield from chunks_of(held.descriptor, held.live.length)
    if held.live.closing:
        yield held.live.closing


def describe_live(held: HeldFile) -> BundledFile:
    """What bundle.json says of a live segment."""
    assert held.live is not None
    facts = held.live.tally.facts(held.path, *sha256_of_chunks(live_chunks(held)))
    return BundledFile(held.path, [LIVE], **facts.content())
