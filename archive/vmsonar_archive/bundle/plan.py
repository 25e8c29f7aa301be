"""What goes into a bundle, decided before its first byte is written: names, sizes, and where the bytes come from."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from vmsonar_archive import layout
from vmsonar_archive.bundle import names, tar
from vmsonar_archive.bundle.record import BUNDLE_FORMAT, LIVE, BundledFile, BundleRecord
from vmsonar_archive.bundle.snapshot import Held, Snapshot, chunks_of
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.identity import ArchiveIdentity
from vmsonar_archive.journal import Entry
from vmsonar_archive.layout import SegmentName


@dataclass(frozen=True, slots=True)
class Item:
    """One file of the payload."""

    path: str
    size: int
    #: Gives the same bytes each time it is called.
    content: Callable[[], Iterator[bytes]]
    #: What its hash must turn out to be; None where nobody knows yet.
    sha256: str | None = None


@dataclass(slots=True)
class Plan:
    """A bundle that can be written as often as it takes."""

    folder: str
    record: BundleRecord
    items: list[Item]
    findings: list[Finding] = field(default_factory=list)

    @property
    def payload_bytes(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def has_samples(self) -> bool:
        names = (SegmentName.parse(item.path) for item in self.items)
        return any(name.kind == layout.SAMPLE for name in names if name)


def plan_whole(snapshot: Snapshot) -> Plan:
    """Everything the archive holds: sealed files as they are, live ones up to their last whole record."""
    items = [fixed_item(layout.ARCHIVE_FILE, snapshot.archive_json)]
    items.append(fixed_item(layout.JOURNAL_FILE, snapshot.journal))
    described: list[BundledFile] = []
    findings = list(snapshot.findings)
    for path, held in sorted(snapshot.held.items()):
        if held.size > tar.MAX_SIZE:
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
    return Plan(bag_folder(snapshot.identity, first, last), record, items, findings)


def bag_folder(identity: ArchiveIdentity, first: datetime | None, last: datetime | None) -> str:
    """The bag's own name."""
    node = identity.hostname_short or identity.instance_id or identity.machine_id
    begin = first or identity.created
    return names.bag_name(node, identity.archive, begin, last or begin)


def span_of(snapshot: Snapshot, described: list[BundledFile]) -> tuple[datetime | None, datetime | None]:
    """Times of the first and the last record."""
    known: list[Entry | BundledFile] = [*snapshot.ledger.current.values(), *described]
    first = min((one.first for one in known if one.first), default=None)
    return first, max((one.last for one in known if one.last), default=None)


def fixed_item(path: str, content: bytes) -> Item:
    """A small file that is in memory."""
    return Item(path, len(content), lambda: iter((content,)))


def sealed_item(held: Held, entry: Entry) -> Item:
    """A file as it lies in the archive."""
    return Item(held.path, held.size, held.chunks, entry.sha256)


def live_item(held: Held, described: BundledFile) -> Item:
    """The whole records of a live segment."""
    return Item(held.path, described.bytes, lambda: live_chunks(held), described.sha256)


def live_chunks(held: Held) -> Iterator[bytes]:
    assert held.live is not None
    yield from chunks_of(held.descriptor, held.live.length)
    if held.live.closing:
        yield held.live.closing


def describe_live(held: Held) -> BundledFile:
    """What bundle.json says of a live segment."""
    assert held.live is not None
    digest = hashlib.sha256()
    for chunk in live_chunks(held):
        digest.update(chunk)
    tally = held.live.tally
    return BundledFile(
        path=held.path,
        operations=[LIVE],
        bytes=held.live.length + len(held.live.closing),
        sha256=digest.hexdigest(),
        records=tally.records,
        first=tally.first,
        last=tally.last,
        first_seq=tally.first_seq,
        last_seq=tally.last_seq,
    )
