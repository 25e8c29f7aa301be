"""A bundle of a part of an archive: a span of time, some kinds, what is new, or with names hidden."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

import msgspec

from vmsonar_archive.bundle.cut import DerivedSegment, SegmentChange
from vmsonar_archive.bundle.plan import BundlePlan, PayloadFile, bag_folder, fixed_items, held_item, span_of
from vmsonar_archive.bundle.redact import Redactor
from vmsonar_archive.bundle.snapshot import ArchiveSnapshot, HeldFile
from vmsonar_archive.format import layout
from vmsonar_archive.format.bag import (
    BUNDLE_FORMAT,
    CUT,
    LIVE,
    REDACT,
    SELECT,
    BundledFile,
    BundleRecord,
)
from vmsonar_archive.format.journal import SEAL, ContentFacts, Ledger, line_of
from vmsonar_archive.format.layout import SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.records import KINDS, Stamp
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system.errors import AnswerIsNo, UsageError
from vmsonar_archive.system.files import sha256_of_chunks
from vmsonar_archive.system.moments import span_words

_INFO = {
    "process": ("process_info",),
    "gpu_process": ("process_info",),
    "job": ("job_info",),
    "container": ("container_info",),
}
# Derived segments up to this are kept from measuring to writing; larger ones are made twice.
_KEPT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BundleSelection:
    """The part of an archive that was asked for."""

    since: datetime | None = None
    until: datetime | None = None
    after_seq: int | None = None
    only: tuple[str, ...] = ()
    redactor: Redactor | None = None
    #: What earlier increments hold; `after_seq` is the short form of it.
    taken: Taken | None = None

    def keeps(self, stamp: Stamp) -> bool:
        """Whether a record is asked for."""
        return self.keeps_time(stamp.time) and not (self.taken is not None and self.taken.has(stamp))

    def keeps_time(self, time: datetime) -> bool:
        """Whether records of a time are asked for."""
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)

    @property
    def is_whole(self) -> bool:
        return self == BundleSelection()

    @property
    def kinds(self) -> frozenset[str] | None:
        """The kinds to keep: those asked for, their info rows, and gaps."""
        if not self.only:
            return None
        infos = (info for kind in self.only for info in _INFO.get(kind, ()))
        return frozenset((*self.only, *infos, "gap"))


def parse_only(text: str) -> tuple[str, ...]:
    """`node,cpu`."""
    names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise UsageError(f"--only knows {', '.join(KINDS)}, not {', '.join(unknown) or 'nothing'}")
    return names


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    items: list[PayloadFile] = field(default_factory=list)
    files: list[BundledFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    kept_bytes: int = 0
    #: Kinds of which there are rows, where kinds are chosen.
    found: set[str] = field(default_factory=set)

    def take(self, held: HeldFile) -> None:
        """Takes a file as it is."""
        self.items.append(held_item(held))
        if isinstance(held.facts, BundledFile):
            self.files.append(held.facts)

    def leave_out(self, held: HeldFile) -> None:
        """Says that a file is missing on purpose; of a live one the journal does not know."""
        if held.live is None:
            self.left_out.append(held.path)


def plan_selected(snapshot: ArchiveSnapshot, selection: BundleSelection) -> BundlePlan:
    """What goes into a bundle of the selected part."""
    draft = _Draft(findings=list(snapshot.findings))
    keeps = {SAMPLE: selection.keeps, SYSINFO: _keeps_sysinfo(snapshot, selection)}
    for name, held in snapshot.segments():
        _place(draft, name, held, selection, keeps[name.kind])
    _leave_tables(draft, snapshot)
    plan = _finish(snapshot, selection, draft)
    if selection.only and plan.has_samples and draft.found.isdisjoint(selection.only):
        span = span_words(selection.since, selection.until)
        asked = f"no rows of {' or '.join(selection.only)} {span}".rstrip()
        raise AnswerIsNo(f"{asked}: the archive has only other kinds, leave out --only")
    return plan


def _keeps_sysinfo(snapshot: ArchiveSnapshot, selection: BundleSelection) -> Callable[[Stamp], bool]:
    """A description of the machine counts until the next one: the last one before the cut stays too."""
    since, taken = selection.since, selection.taken
    if since is None and taken is None:
        return selection.keeps
    before = (
        stamp.seq
        for name, held in snapshot.segments()
        if name.kind == SYSINFO
        for stamp in held.stamps()
        if (since is None or stamp.time < since) and (taken is None or taken.has(stamp))
    )
    last = max(before, default=0)
    return lambda stamp: stamp.seq == last or selection.keeps(stamp)


def _place(
    draft: _Draft,
    name: SegmentName,
    held: HeldFile,
    selection: BundleSelection,
    keeps: Callable[[Stamp], bool],
) -> None:
    """Takes a segment as it is, in part, or not at all."""
    inside, outside = _coverage(held.facts, selection)
    is_sample = name.kind == SAMPLE
    if outside and is_sample:
        draft.leave_out(held)
        return
    asked = {CUT: not inside, SELECT: selection.only and is_sample, REDACT: selection.redactor}
    operations = [operation for operation, is_asked in asked.items() if is_asked]
    if not operations:
        draft.take(held)
        return
    change = SegmentChange(
        keeps, selection.kinds, selection.redactor, adds_info=not inside, found=draft.found
    )
    _derive(draft, name, held, operations, change)


def _coverage(known: ContentFacts, selection: BundleSelection) -> tuple[bool, bool]:
    """Whether all, and whether none, of its records are asked for, as far as known without reading them."""
    first, last, first_seq, last_seq = known.first, known.last, known.first_seq, known.last_seq
    if first is None or last is None or first_seq is None or last_seq is None:
        return False, False
    too_old = selection.since is not None and last < selection.since
    too_new = selection.until is not None and first >= selection.until
    taken = selection.taken or Taken()
    inside = selection.keeps_time(first) and selection.keeps_time(last) and first_seq > taken.highest
    return inside, too_old or too_new or last_seq <= taken.up_to


def _derive(
    draft: _Draft, name: SegmentName, held: HeldFile, operations: list[str], change: SegmentChange
) -> None:
    """Makes a segment anew; one that turns out to lie inside is taken as it is."""
    if held.live is None and sha256_of_chunks(held.chunks())[1] != held.facts.sha256:
        detail = "its SHA-256 differs from the journal's; what is readable is taken along"
        draft.findings.append(Finding.of(Code.CORRUPT, held.path, detail))
    segment = DerivedSegment(held.open, name.kind, change)
    sealed = segment.measure(held.path)
    if operations == [CUT] and sealed.records == held.facts.records:
        draft.take(held)
        return
    draft.leave_out(held)
    if not sealed.records or sealed.first is None or sealed.first_seq is None:
        return
    cut_path = SegmentName.of(name.kind, sealed.first, sealed.first_seq).path
    path = cut_path if CUT in operations else held.path
    content: Callable[[], Iterator[bytes]] = segment.chunks
    if draft.kept_bytes + sealed.bytes <= _KEPT_BYTES:
        draft.kept_bytes += sealed.bytes
        kept = b"".join(segment.chunks())
        content = lambda: iter((kept,))  # noqa: E731 - it takes the place of a method
    source = held.facts.sha256
    draft.files.append(
        BundledFile(
            path,
            operations if held.live is None else [LIVE, *operations],
            source=held.path,
            source_sha256=change.redactor.identifier(source) if change.redactor else source,
            **sealed.content(),
        )
    )
    draft.items.append(PayloadFile(path, sealed.bytes, content, sealed.sha256))


def _leave_tables(draft: _Draft, snapshot: ArchiveSnapshot) -> None:
    """A table holds a whole day of every kind; while its day has records, they are what is taken."""
    days = {layout.day_path(name.day) for name, _ in snapshot.segments()}
    for path, held in snapshot.held.items():
        if SegmentName.parse(path) is None:
            draft.leave_out(held)
            if path.rpartition("/")[0] not in days:
                detail = (
                    "is left out: only whole tables of this day are left, and they cannot be cut or redacted"
                )
                draft.findings.append(Finding.of(Code.PARTIAL, path, detail, Severity.WARNING))


def _finish(snapshot: ArchiveSnapshot, selection: BundleSelection, draft: _Draft) -> BundlePlan:
    draft.items.sort(key=lambda item: item.path)
    draft.files.sort(key=lambda one: one.path)
    first, last = _span(snapshot, draft)
    journal, identity, head = snapshot.journal, snapshot.identity, snapshot.ledger.head
    archive_json = snapshot.archive_json
    if selection.redactor is not None:
        identity = selection.redactor.identity(identity)
        archive_json = msgspec.json.encode(identity) + b"\n"
        journal, head = _new_journal(draft.files, archive_json)
        draft.left_out.clear()
    record = BundleRecord(
        format=BUNDLE_FORMAT,
        archive=identity.archive,
        head=head,
        first=first,
        last=last,
        since=selection.since,
        until=selection.until,
        after_seq=selection.after_seq,
        only=list(selection.only),
        redacted=sorted(kind.value for kind in selection.redactor.kinds) if selection.redactor else [],
        files=draft.files,
        left_out=sorted(draft.left_out),
    )
    items = [*fixed_items(archive_json, journal), *draft.items]
    return BundlePlan(bag_folder(identity, first, last), record, items, draft.findings)


def _span(snapshot: ArchiveSnapshot, draft: _Draft) -> tuple[datetime | None, datetime | None]:
    """Times of the first and the last sample in the bundle, or of what there is without one."""
    known = {**snapshot.ledger.current, **{one.path: one for one in draft.files}}
    found = {item.path: known[item.path] for item in draft.items}
    names = (SegmentName.parse(path) for path in found)
    samples = [found[name.path] for name in names if name and name.kind == SAMPLE]
    return span_of(samples or [*found.values()])


def _new_journal(described: list[BundledFile], archive_json: bytes) -> tuple[bytes, str]:
    """A journal of what is in a redacted bundle: the old one's hashes would tell whose it is."""
    ledger, lines = Ledger(), []
    for one in described:
        entry = msgspec.structs.replace(one.entry(), op=SEAL, identity=sha256(archive_json).hexdigest())
        lines.append(line_of(entry, ledger.head))
        ledger.add(lines[-1])
    return b"".join(line + b"\n" for line in lines), ledger.head
