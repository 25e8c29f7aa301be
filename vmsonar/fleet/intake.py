"""The one way in for what machines ship: verified, filed, counted once by record id, and only then acknowledged."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from vmsonar_archive.bundle.cut import DerivedSegment, SegmentChange
from vmsonar_archive.format import bag, layout
from vmsonar_archive.format.bag import BundleRecord
from vmsonar_archive.format.journal import DERIVE, MERGE, RECOMPRESS, SEAL, JournalEntry, Ledger
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.read.source import BundleSource, NotABundle
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet, size
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import Locked, UsageError, VmsonarError
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.bundle import verify_bundle
from vmsonar_archive.verify.content import Checked, CheckedFiles
from vmsonar_archive.verify.signature import Trust, read_trust
from vmsonar_archive.write.deposit import LOCK_SECONDS, Deposit, OtherArchive

from vmsonar.config.shipping import FleetSection, Kept, Retention
from vmsonar.fleet.evidence import Evidence
from vmsonar.fleet.holdings import Holding, current_holding, read_holding, write_holding
from vmsonar.fleet.refusals import Refusal, Refusals
from vmsonar.fleet.store import Fleet

_CHUNK = 1024 * 1024
_REFUSED = Retention().refused
_SIGNATURE = (Code.UNSIGNED, Code.BAD_SIGNATURE, Code.UNTRUSTED_SIGNER)
_MAX_SMALL = 1024 * 1024


class Receipt(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of one bundle. `accepted`: it is on disk, and the sender may forget it."""

    accepted: bool
    name: str
    archive: str | None = None
    host: str | None = None
    #: The records that were new, and those that were here before.
    records: int = 0
    repeats: int = 0
    #: Of the machine's journal, as evidence of its history until now.
    head: str = ""
    #: Why it was refused, in a stable word and in a sentence.
    reason: str | None = None
    detail: str | None = None
    #: Where the reason stands: beside the bundle when that was set aside, refused or with a part that cannot be read.
    set_aside: str | None = None
    #: It was not set aside, and is still where it came from.
    stays: bool = False
    #: What is wrong with it: of an accepted one, what the machine itself had lost.
    findings: list[Finding] = []


class Refused(Exception):
    """It does not verify, and will not verify when it is sent again."""

    def __init__(self, reason: str, detail: str, findings: list[Finding] | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.findings = findings or []


class Intake:
    """Takes bundles into a fleet; several processes and threads may at once."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        trust: Trust | None = None,
        refused: Kept = _REFUSED,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """With `trust`, only bundles that somebody trusted signed are taken."""
        self.fleet = fleet
        self.refusals = Refusals(fleet.refused, refused)
        self._trust = trust
        self.now = now
        self._fault = fault

    def take(
        self,
        path: Path,
        origin: str,
        *,
        name: str | None = None,
        machine: str | None = None,
        keep: bool = False,
        patience: float = LOCK_SECONDS,
    ) -> Receipt:
        """Files a bundle or sets it aside; the file is gone then, unless it is to be kept or its receipt says `stays`.

        `machine`: the only machine id that the sender may speak for. `patience`: how long to wait for another who
        files in the same archive. Raises FileNotFoundError where another took the file, OSError or VmsonarError where
        the fault is ours (a full disk, a lock): nothing is acknowledged, and the same file can be taken again.
        """
        name = name or path.name
        try:
            with closing(_opened(path)) as source:
                receipt = self._take(source, name, origin, machine, patience)
        except Refused as refused:
            return self._refuse(path, name, origin, refused, keep=keep)
        if receipt.findings:
            put = partial(self.refusals.set_aside, path, keep=True)
            self._set_aside(receipt, origin, path.stat().st_size, put)
        if not keep and not receipt.stays:
            path.unlink(missing_ok=True)
        return receipt

    def _take(
        self, source: BundleSource, name: str, origin: str, machine: str | None, patience: float
    ) -> Receipt:
        known: CheckedFiles = {}
        # A key may have become invalid since we began.
        trust = None if self._trust is None else replace(self._trust, now=self.now())
        with suppress(VmsonarError):  # said below
            evidence = Evidence(self.fleet.evidence / source.identity().archive)
            source.checked = evidence.journal()
        record, ledger, losses = _verified(source, known, trust)
        identity = source.identity()
        if machine not in (None, identity.machine_id):
            raise Refused(
                "other_machine", f"is of machine {identity.machine_id}, its sender may send {machine}"
            )
        receipt = Receipt(
            accepted=True,
            name=name,
            archive=identity.archive,
            host=identity.hostname_short,
            head=record.head,
            findings=losses,
        )
        archive_json = source.read(layout.ARCHIVE_FILE, _MAX_SMALL)
        with self.deposit(identity.archive, archive_json, patience) as deposit:
            redacted = bool(record.redacted)
            if contradiction := evidence.contradiction(source, ledger, redacted):
                raise Refused("other_history", contradiction)
            holding = current_holding(self.fleet, identity, deposit.journal)
            newest = _Filing(source, ledger, known, deposit, holding, receipt).run()
            self._fault("intake.before_evidence")
            if receipt.records or not evidence.has(source, redacted):
                evidence.keep(source, redacted, self.now().date())
                holding.bundles += 1
            holding.heard(self.now(), "bundle", origin, newest)
            write_holding(self.fleet, holding)
        self._fault("intake.before_receipt")
        return receipt

    def deposit(
        self, archive: str, archive_json: bytes, patience: float = LOCK_SECONDS, *, whole: bool = False
    ) -> Deposit:
        """The archive of that id, open for this process alone; raises Refused where it is another machine's, or broken.

        Unless it is wanted whole, it is only added to: its age costs nothing then. What is for a broken one is refused
        too: taken again and again, it would hold up others.
        """
        note = None if whole else read_holding(self.fleet, archive)
        known = None if note is None else note.mark
        try:
            return Deposit(self.fleet.archive(archive), archive_json, self.now, self._fault, patience, known)
        except OtherArchive as error:
            raise Refused("other_machine", str(error)) from None
        except Locked:
            raise
        except VmsonarError as error:
            raise Refused("broken_archive", f"cannot be filed: {error}") from None

    def _refuse(self, path: Path, name: str, origin: str, refused: Refused, *, keep: bool) -> Receipt:
        # Who sent it is told by the name that they know.
        detail = str(refused).removeprefix(f"{path} ").replace(str(path), name)
        receipt = Receipt(
            accepted=False, name=name, reason=refused.reason, detail=detail, findings=refused.findings
        )
        return self._set_aside(
            receipt, origin, path.stat().st_size, partial(self.refusals.set_aside, path, keep=keep)
        )

    def refuse_content(self, content: bytes, name: str, origin: str, refused: Refused) -> Receipt:
        """Sets aside what came without a file."""
        receipt = Receipt(accepted=False, name=name, reason=refused.reason, detail=str(refused))
        return self._set_aside(receipt, origin, len(content), partial(self.refusals.keep, content))

    def _set_aside(self, receipt: Receipt, origin: str, size: int, put: Callable[[Refusal], Path]) -> Receipt:
        refusal = Refusal(
            time=self.now(), origin=origin, name=receipt.name, bytes=size, reason=receipt.reason or "damaged",
            detail=receipt.detail or "the machine itself could not read a part of it; the rest was filed",
            archive=receipt.archive, findings=receipt.findings,
        )  # fmt: skip
        receipt.set_aside = str(put(refusal))
        receipt.stays = not refusal.kept
        return receipt


def intake_by(fleet: Fleet, settings: FleetSection) -> Intake:
    """The intake of a fleet as it is configured, whatever way bundles come."""
    trust = None
    if settings.allowed_signers_file is not None:
        if settings.signer is None:
            raise UsageError(
                "fleet.signer is not set: the name in allowed_signers_file that has to have signed"
            )
        trust = read_trust(Path(settings.allowed_signers_file), settings.signer)
    return Intake(fleet, trust=trust, refused=settings.retention.refused)


def _opened(path: Path) -> BundleSource:
    try:
        return BundleSource(path)
    except NotABundle as error:
        raise Refused("not_a_bundle", str(error)) from None
    except VmsonarError:
        path.lstat()  # another collector may have taken it
        raise


def _verified(
    source: BundleSource, known: CheckedFiles, trust: Trust | None
) -> tuple[BundleRecord, Ledger, list[Finding]]:
    """What a bundle says and holds, and what the machine had lost of it; raises where it does not verify."""
    try:
        report = verify_bundle(source, Depth.FULL, trust=trust, known=known)
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
        ledger, losses = source.journal()[0], []
        sums = source.sums() if errors else {}
        for finding in errors:
            if not _is_loss(finding, source, ledger, sums):
                detail = f"{finding.path} {finding.detail}".strip()
                reason = "untrusted" if finding.code in _SIGNATURE else "damaged"
                raise Refused(reason, f"does not verify: {detail}", errors)
            losses.append(finding)
        record = source.record()
    except Locked:
        raise
    except VmsonarError as error:
        raise Refused("damaged", str(error)) from None
    if record.only:
        kinds = ", ".join(record.only)
        raise Refused("only_some_kinds", f"has only rows of {kinds}: whole records could not follow them")
    for entry, checked in known.values():
        repeated = any(finding.code is Code.REPEATED for finding in checked.findings)
        if repeated or size(checked.held) != checked.records:
            raise Refused("damaged", f"{checked.path} has records that do not follow each other")
        if entry is not None and not _fits(entry, checked):
            raise Refused(
                "damaged", f"{checked.path} has records of other times or numbers than the journal says"
            )
    return record, ledger, losses


def _fits(entry: JournalEntry, checked: Checked) -> bool:
    """Whether the journal tells the truth of a segment's times and numbers: readers go by it."""
    first, last = checked.first, checked.last
    if first is None or last is None or checked.has_errors:
        return True
    numbers = entry.first_seq in (None, first.seq) and entry.last_seq in (None, last.seq)
    begins = entry.first is None or entry.first <= min(first.time, last.time)
    return numbers and begins and (entry.last is None or entry.last >= max(first.time, last.time))


def _is_loss(finding: Finding, source: BundleSource, ledger: Ledger, sums: dict[str, str]) -> bool:
    """Whether the machine itself had lost this before the bundle was made, and will not have it another time.

    Then the bundle holds what its manifest says, and the machine's journal says that this is damaged, or another file.
    """
    path = finding.path.removeprefix(bag.PAYLOAD)
    entry = ledger.current.get(path)
    if entry is None or finding.code not in (Code.MISSING, Code.CORRUPT):
        return False
    if path not in sums or finding.code is Code.MISSING:
        return path not in sums
    with source.open(path) as stream:
        as_sent = files.sha256_of(stream) == sums[path]
    return as_sent and (entry.damaged or entry.sha256 != sums[path])


class _Filing:
    """Files what a verified bundle has and the archive has not."""

    def __init__(
        self,
        source: BundleSource,
        ledger: Ledger,
        known: CheckedFiles,
        deposit: Deposit,
        holding: Holding,
        receipt: Receipt,
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._known = known
        self._deposit = deposit
        self._holding = holding
        self._receipt = receipt
        self._held = RecordSet(holding.spans)

    def run(self) -> Stamp | None:
        """Files whole segments as they are, of others the records that are new; then all of it is committed.

        Returns the stamp of the bundle's newest record.
        """
        sizes = self._source.sizes()
        sums = self._source.sums()
        # What is not as the machine's own journal says is set aside.
        present = {
            path: entry
            for path, entry in sorted(self._ledger.current.items())
            if path in sizes and sums.get(path) == entry.sha256
        }
        with_records = set()
        for path, entry in present.items():
            name = SegmentName.parse(path)
            if name is not None:
                with_records.add(name.day)
                self._file(name, entry, self._known[path][1])
        for path, entry in present.items():
            folder = path.rpartition("/")[0]
            # Where there are records their tables can be made again.
            if layout.is_parquet(path) and layout.day_of(folder) not in with_records:
                self._file_table(path, entry)
        self._deposit.commit()
        self._holding.spans = list(self._held)
        self._holding.mark = self._deposit.journal.mark
        ends = [self._known[path][1].last for path in present if path in self._known]
        return max(filter(None, ends), key=lambda stamp: stamp.seq, default=None)

    def _file(self, name: SegmentName, entry: JournalEntry, checked: Checked) -> None:
        spans = list(checked.held)
        count, common = size(spans), size(self._held.common(spans))
        self._receipt.repeats += common
        self._receipt.records += count - common
        if common == count:
            return
        opened = partial(self._source.open, name.path)
        if common or checked.has_errors:
            change = SegmentChange(self._held.misses, adds_info=True)
            derived = DerivedSegment(opened, name.kind, change)
            facts = derived.measure(name.path)
            if facts.records != count - common or facts.first is None or facts.first_seq is None:
                raise Refused("damaged", f"{name.path} has records that are no objects")
            path = SegmentName.of(name.kind, facts.first, facts.first_seq).path
            self._deposit.add(path, facts, derived.chunks())
            self._holding.cover(facts)
        else:
            operation = RECOMPRESS if entry.op in (RECOMPRESS, MERGE) else SEAL
            self._deposit.add(name.path, entry, _chunks(opened), operation)
            self._holding.cover(entry)
        self._held.update(spans)

    def _file_table(self, path: str, entry: JournalEntry) -> None:
        if not self._deposit.has(path):
            self._deposit.add(path, entry, _chunks(partial(self._source.open, path)), DERIVE)


def _chunks(opened: Callable[[], BinaryIO]) -> Iterator[bytes]:
    with opened() as stream:
        yield from iter(partial(stream.read, _CHUNK), b"")
