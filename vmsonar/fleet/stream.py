"""Records that come one by one: gathered, made whole where they came in parts, and filed as segments.

What add() took is safe once flush() has returned and does not hold its origin, and only then; a record that came before
is passed over. What cannot be filed in one archive keeps no other from being filed.
"""

import base64
import binascii
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta
from vmsonar_archive.format.frames import LIVE_LEVEL, FrameWriter
from vmsonar_archive.format.identity import ArchiveIdentity, parse_identity
from vmsonar_archive.format.journal import Tally
from vmsonar_archive.format.layout import ARCHIVE_FILE, SAMPLE, SegmentName, hour_of
from vmsonar_archive.format.lines import (
    BadLine,
    check_line,
    decode_sample,
    decode_stamp,
    decode_sysinfo,
    encode_row,
    finish,
)
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.ids import ArchiveId, Sha256, StampId, told
from vmsonar_archive.records.sets import RecordSet
from vmsonar_archive.system.errors import NOT_JSON, FormatError, VmsonarError
from vmsonar_archive.system.files import sha256_of_chunks
from vmsonar_archive.write.deposit import Deposit

from vmsonar.fleet.evidence import Evidence
from vmsonar.fleet.holdings import current_holding, write_holding
from vmsonar.fleet.intake import Intake, Receipt, Refused

_MOST_PARTS = 10_000
_STAMP = {*Stamp.__struct_fields__, "crc"}


class RecordHeaders(msgspec.Struct, kw_only=True, frozen=True):
    """The headers of a message of the native dialect."""

    archive: ArchiveId
    run: StampId
    boot: StampId
    seq: int
    head: Sha256 = ""
    identity: str = ""
    #: `2/3`: the second of three messages of one record; `2/3.1/2`: the first half of that.
    part: Annotated[str, Meta(pattern=r"^\d{1,5}/\d{1,5}(\.\d{1,5}/\d{1,5}){0,20}$")] | None = None


def read_headers(given: Mapping[str, str]) -> RecordHeaders:
    """Raises BadLine where they are none of a record's."""
    try:
        return msgspec.convert(given, RecordHeaders, strict=False)
    except msgspec.ValidationError as error:
        raise BadLine(f"its headers are none of a record: {told(error)}") from None


@dataclass(slots=True)
class _Record:
    kind: str
    stamp: Stamp
    line: bytes


@dataclass(slots=True)
class _Archive:
    """What came of one archive and is not filed."""

    identity: ArchiveIdentity
    records: list[_Record] = field(default_factory=list)
    #: The messages of records in parts, by kind and number.
    parts: dict[tuple[str, str, int], dict[str, bytes]] = field(default_factory=dict)
    head: tuple[str, int] = ("", 0)
    #: Where its messages came from.
    origins: set[Hashable] = field(default_factory=set)


@dataclass(slots=True)
class Filed:
    """What became of what was gathered."""

    records: int = 0
    repeats: int = 0
    refused: list[Receipt] = field(default_factory=list)
    #: Origins of which something is not safe yet: a part of a record is to come, or an archive could not be opened.
    held: set[Hashable] = field(default_factory=set)
    #: What kept us from filing it, where that is our fault.
    failure: Exception | None = None


class Stream:
    """Gathers records and files them."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        #: By what their headers say whose they are: somebody may send under another's id.
        self._archives: dict[str, _Archive] = {}
        #: Records whose parts were not all there when the last batch was filed.
        self._waited: set[tuple[str, tuple[str, str, int]]] = set()
        self.bytes = 0
        self.messages = 0

    def add(self, kind: str, headers: RecordHeaders, value: bytes, origin: Hashable = None) -> None:
        """Takes in a message; raises BadLine for one that is none of ours."""
        check_line(value)
        stamp = decode_stamp(value)
        if (stamp.run, stamp.boot, stamp.seq) != (headers.run, headers.boot, headers.seq):
            raise BadLine("its headers name another record than it holds")
        # As a whole, so that nothing is filed that cannot be read.
        (decode_sample if kind == SAMPLE else decode_sysinfo)(value)
        archive = self._archives.get(headers.identity)
        if archive is None or archive.identity.archive != headers.archive:
            archive = self._archives[headers.identity] = _Archive(_identity(headers))
        archive.origins.add(origin)
        self._settle(archive, kind, stamp)
        if headers.part is None:
            archive.records.append(_Record(kind, stamp, value))
        else:
            key = (kind, stamp.run, stamp.seq)
            archive.parts.setdefault(key, {})[headers.part] = value
            if is_complete(archive.parts[key]):
                archive.records.append(_joined(kind, archive.parts.pop(key)))
        if headers.head and stamp.seq > archive.head[1]:
            archive.head = headers.head, stamp.seq
        self.bytes += len(value)
        self.messages += 1

    def _settle(self, archive: _Archive, kind: str, stamp: Stamp) -> None:
        """A record after which a later one came will not get the rest of its parts: the sender has given it up."""
        for key in [key for key in archive.parts if key[:2] == (kind, stamp.run) and key[2] < stamp.seq]:
            archive.records.append(_joined(kind, archive.parts.pop(key)))

    def _settle_old(self) -> None:
        for name, key in self._waited:
            archive = self._archives.get(name)
            if archive is not None and key in archive.parts:
                archive.records.append(_joined(key[0], archive.parts.pop(key)))
        self._waited = {(name, key) for name, archive in self._archives.items() for key in archive.parts}

    def flush(self) -> Filed:
        """Files what is whole."""
        done = Filed()
        self._settle_old()
        for name, archive in list(self._archives.items()):
            if archive.records:
                self._try(archive, done)
            if archive.parts or archive.records:
                done.held |= archive.origins
            else:
                del self._archives[name]
        self.bytes = self.messages = 0
        return done

    def _try(self, archive: _Archive, done: Filed) -> None:
        try:
            new, repeats = self._file(archive)
        except Refused as refused:
            receipt = self._set_aside(archive, refused)
            if receipt.stays:
                done.failure = VmsonarError(f"{receipt.detail}; {self._intake.fleet.refused} is full")
                return
            done.refused.append(receipt)
        except (OSError, VmsonarError) as error:
            done.failure = error
            return
        else:
            done.records += new
            done.repeats += repeats
        archive.records.clear()

    def _set_aside(self, archive: _Archive, refused: Refused) -> Receipt:
        content = b"".join(one.line + b"\n" for one in archive.records)
        name = f"{archive.identity.archive}.jsonl"
        return self._intake.refuse_content(content, name, "kafka", refused)

    def _file(self, archive: _Archive) -> tuple[int, int]:
        intake, identity = self._intake, archive.identity
        content = msgspec.json.encode(identity) + b"\n"
        with intake.deposit(identity.archive, content) as deposit:
            holding = current_holding(intake.fleet, identity, deposit.journal)
            held = RecordSet(holding.spans)
            ordered = sorted(archive.records, key=lambda one: (one.kind, one.stamp.seq))
            fresh = [one for one in ordered if held.add(one.stamp)]
            for (kind, _), some in groupby(fresh, key=lambda one: (one.kind, hour_of(one.stamp.time))):
                holding.cover(_add(deposit, kind, list(some)))
            deposit.commit()
            Evidence(intake.fleet.evidence / identity.archive).add_head(*archive.head)
            holding.spans = list(held)
            holding.mark = deposit.journal.mark
            newest = max((one.stamp for one in archive.records), key=lambda stamp: stamp.seq)
            holding.heard(intake.now(), "kafka", "kafka", newest)
            write_holding(intake.fleet, holding)
        return len(fresh), len(ordered) - len(fresh)


def _identity(headers: RecordHeaders) -> ArchiveIdentity:
    try:
        content = base64.b64decode(headers.identity, validate=True)
        identity = parse_identity(content, ARCHIVE_FILE)
    except (FormatError, binascii.Error, *NOT_JSON):
        raise BadLine("it does not say whose it is (header identity): its sender is too old") from None
    if identity.archive != headers.archive:
        raise BadLine("its headers name two archives")
    return identity


def is_complete(parts: Mapping[str, object], above: str = "") -> bool:
    """Whether all parts of a record are there, each of them whole or in parts itself."""
    counts = {int(name[len(above) :].split(".")[0].split("/")[1]) for name in parts if name.startswith(above)}
    if len(counts) != 1 or (count := counts.pop()) > _MOST_PARTS:
        return False
    names = (f"{above}{number}/{count}" for number in range(1, count + 1))
    return all(name in parts or is_complete(parts, f"{name}.") for name in names)


def _joined(kind: str, parts: Mapping[str, bytes]) -> _Record:
    """One record of several messages: their rows, in the order of the parts."""
    values = [parts[name] for name in sorted(parts, key=_place)]
    stamp = decode_stamp(values[0])
    rows: dict[str, list[bytes]] = {}
    for value in values:
        for name, raw in msgspec.json.decode(value, type=dict[str, msgspec.Raw]).items():
            inside = b"" if name in _STAMP else bytes(raw).strip()[1:-1].strip()
            if inside:
                rows.setdefault(name, []).append(inside)
    joined = (b',"%b":[%b]' % (name.encode(), b",".join(some)) for name, some in rows.items())
    line = finish(encode_row(stamp)[:-1] + b"".join(joined))[:-1]
    return _Record(kind, stamp, line)


def _place(part: str) -> list[int]:
    return [int(step.split("/")[0]) for step in part.split(".")]


def _add(deposit: Deposit, kind: str, records: list[_Record]) -> Tally:
    tally = Tally()
    for one in records:
        tally.add(one.stamp.time, one.stamp.seq)
    path = SegmentName.of(kind, records[0].stamp.time, records[0].stamp.seq).path
    facts = tally.facts(path, *sha256_of_chunks(_compressed(records)))
    deposit.add(path, facts, _compressed(records))
    return tally


def _compressed(records: list[_Record]) -> Iterator[bytes]:
    frames = FrameWriter(LIVE_LEVEL, flush=False)
    for one in records:
        yield frames.add((one.line, b"\n"))
    yield frames.end()
