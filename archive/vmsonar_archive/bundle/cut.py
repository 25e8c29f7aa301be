"""A segment written anew for a bundle: cut, filtered, redacted, with the info rows it needs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import msgspec

from vmsonar_archive.bundle.redact import Redactor
from vmsonar_archive.format.frames import FrameWriter, read_frames
from vmsonar_archive.format.journal import SegmentFacts, Tally
from vmsonar_archive.format.layout import SAMPLE
from vmsonar_archive.format.lines import (
    BadLine,
    decode_sample,
    decode_sysinfo,
    encode_row,
    finish,
    record_line,
)
from vmsonar_archive.records import Stamp
from vmsonar_archive.system.errors import NOT_JSON
from vmsonar_archive.system.files import sha256_of_chunks
from vmsonar_archive.write.rewrite import stamped

# A derived segment is made twice when it is too large to be kept: once for its size and hash, once for its bytes.
_LEVEL = 3
_STAMP = set(Stamp.__struct_fields__) | {"crc"}


class _Process(msgspec.Struct):
    pid: int
    start_ticks: int | None = None
    container_id: str | None = None

    def key(self) -> object:
        return "process_info", self.pid, self.start_ticks


class _Job(msgspec.Struct):
    pgid: int
    start_ticks: int
    container_id: str | None = None

    def key(self) -> object:
        return "job_info", self.pgid, self.start_ticks


class _Container(msgspec.Struct):
    container_id: str

    def key(self) -> object:
        return "container_info", self.container_id


class _Seen(msgspec.Struct):
    """The processes, jobs and containers that the rows of a sample are about."""

    process: list[_Process] = []
    gpu_process: list[_Process] = []
    job: list[_Job] = []
    container: list[_Container] = []


class _InfoRows(msgspec.Struct):
    process_info: list[msgspec.Raw] = []
    job_info: list[msgspec.Raw] = []
    container_info: list[msgspec.Raw] = []


_TYPES: dict[str, type[_Process] | type[_Job] | type[_Container]] = {
    "process_info": _Process,
    "job_info": _Job,
    "container_info": _Container,
}


def info_before_cut(
    lines: Iterable[tuple[bytes, Stamp]], keeps: Callable[[Stamp], bool]
) -> dict[str, list[bytes]]:
    """The info rows of dropped samples that later ones refer to: what to add to the first that stays, by kind."""
    rows: dict[object, _InfoRow] = {}
    seen: set[object] = set()
    in_first: set[object] | None = None
    for line, stamp in lines:
        if not keeps(stamp):
            if in_first is None:
                rows.update(_infos(line))
            continue
        if in_first is None:
            in_first = {key for key, _ in _infos(line)}
        with suppress(*NOT_JSON):
            about = msgspec.json.decode(line, type=_Seen)
            for found in (about.process, about.gpu_process, about.job, about.container):
                seen.update(row.key() for row in found)
    needed = rows.keys() & seen
    needed |= {("container_info", rows[key].container) for key in needed if rows[key].container}
    added: dict[str, list[bytes]] = {}
    for key, row in rows.items():
        if key in needed and key not in (in_first or ()):
            added.setdefault(row.kind, []).append(row.raw)
    return added


class _InfoRow(NamedTuple):
    """A row as it stands in a line, and the container that it names."""

    kind: str
    raw: bytes
    container: str | None


def _infos(line: bytes) -> Iterator[tuple[object, _InfoRow]]:
    with suppress(*NOT_JSON):
        infos = msgspec.json.decode(line, type=_InfoRows)
        for kind, struct in _TYPES.items():
            for raw in getattr(infos, kind):
                row = msgspec.json.decode(raw, type=struct)
                yield row.key(), _InfoRow(kind, bytes(raw), row.container_id)


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """What is done to the records of a segment."""

    keeps: Callable[[Stamp], bool]
    #: The kinds that stay; None for all.
    kinds: frozenset[str] | None = None
    redactor: Redactor | None = None
    #: Whether records are cut from the beginning, so that the others need the info rows there.
    adds_info: bool = False
    #: Gathers the kinds of which rows were kept, where kinds are chosen.
    found: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class DerivedSegment:
    """A segment that is made from another whenever it is asked for."""

    open: Callable[[], BinaryIO]
    kind: str
    change: SegmentChange

    def measure(self, path: str) -> SegmentFacts:
        """What the journal would say of it."""
        tally = Tally()
        return tally.facts(path, *sha256_of_chunks(self.chunks(tally)))

    def chunks(self, tally: Tally | None = None) -> Iterator[bytes]:
        """The new segment; its records are added to the tally."""
        tally = tally or Tally()
        frames = FrameWriter(_LEVEL, flush=False)
        for line, stamp in self._lines():
            tally.add(stamp.time, stamp.seq)
            if chunk := frames.add((line,)):
                yield chunk
        if end := frames.end():
            yield end

    def _lines(self) -> Iterator[tuple[bytes, Stamp]]:
        added: dict[str, list[bytes]] = {}
        if self.change.adds_info and self.kind == SAMPLE:
            added = info_before_cut(self._read(), self.change.keeps)
        for line, stamp in self._read():
            if self.change.keeps(stamp):
                try:
                    yield self._changed(line, stamp, added), stamp
                except BadLine:
                    continue
                added = {}

    def _read(self) -> Iterator[tuple[bytes, Stamp]]:
        last = 0
        with self.open() as stream:
            for found in read_frames(stream):
                for line, stamp in stamped(found.lines):
                    if stamp.seq > last:
                        last = stamp.seq
                        yield line, stamp

    def _changed(self, line: bytes, stamp: Stamp, added: dict[str, list[bytes]]) -> bytes:
        redactor = self.change.redactor
        if self.kind != SAMPLE:
            return record_line(redactor.sysinfo(decode_sysinfo(line))) if redactor else line + b"\n"
        if added or self.change.kinds is not None:
            line = _assembled(line, stamp, added, self.change)
        elif redactor is None:
            return line + b"\n"
        return record_line(redactor.sample(decode_sample(line))) if redactor else line


def _assembled(line: bytes, stamp: Stamp, added: dict[str, list[bytes]], change: SegmentChange) -> bytes:
    """A sample with rows added and kinds left out; what we do not know stays unless kinds are chosen."""
    try:
        members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except NOT_JSON as error:
        raise BadLine(str(error)) from None
    kinds = change.kinds
    parts = [encode_row(stamp)[:-1]]
    for name in dict.fromkeys((*members, *added)):
        if name in _STAMP or (kinds is not None and name not in kinds):
            continue
        raw = bytes(members.get(name, msgspec.Raw(b"[]")))
        if name in added:
            inside = raw.strip()[1:-1].strip()
            raw = b"[" + b",".join([*added[name], inside] if inside else added[name]) + b"]"
        if raw != b"[]":
            change.found.add(name)
        parts.append(b',"%b":%b' % (name.encode(), raw))
    return finish(b"".join(parts))
