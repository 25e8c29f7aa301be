"""A segment written anew for a bundle: cut, some kinds left out, redacted. Gives the same bytes each time."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from vmsonar_archive.bundle import carry
from vmsonar_archive.bundle.redact import Redactor
from vmsonar_archive.errors import NOT_JSON
from vmsonar_archive.frames import FrameWriter, read_frames
from vmsonar_archive.layout import SAMPLE
from vmsonar_archive.lines import BadLine, decode_sample, decode_sysinfo, encode_row, finish, record_line
from vmsonar_archive.records import Stamp
from vmsonar_archive.rewrite import stamped
from vmsonar_archive.segment import Sealed, Tally

# It is made twice when it is too large to be kept: once for its size and hash, once for its bytes.
_LEVEL = 3
_STAMP = set(Stamp.__struct_fields__) | {"crc"}


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to the records of a segment."""

    keeps: Callable[[Stamp], bool]
    #: The kinds that stay; None for all.
    kinds: frozenset[str] | None = None
    redactor: Redactor | None = None
    #: Whether records go from the beginning, so that those which stay need what was said there.
    carries: bool = False


@dataclass(frozen=True, slots=True)
class DerivedSegment:
    """A segment that is made from another whenever it is asked for."""

    open: Callable[[], BinaryIO]
    kind: str
    change: Change

    def chunks(self) -> Iterator[bytes]:
        """The new segment."""
        yield from self._write(Tally())

    def measure(self, path: str) -> Sealed:
        """What the journal would say of it."""
        tally, digest, size = Tally(), hashlib.sha256(), 0
        for chunk in self._write(tally):
            digest.update(chunk)
            size += len(chunk)
        return tally.sealed(path, size, digest.hexdigest())

    def _write(self, tally: Tally) -> Iterator[bytes]:
        frames = FrameWriter(_LEVEL, flush=False)
        for line, stamp in self._lines():
            tally.add(stamp.time, stamp.seq)
            if chunk := frames.add((line,)):
                yield chunk
        if end := frames.end():
            yield end

    def _lines(self) -> Iterator[tuple[bytes, Stamp]]:
        added: dict[str, list[bytes]] = {}
        if self.change.carries and self.kind == SAMPLE:
            added = carry.collect(self._read(), self.change.keeps)
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
            line = _assembled(line, stamp, added, self.change.kinds)
        elif redactor is None:
            return line + b"\n"
        return record_line(redactor.sample(decode_sample(line))) if redactor else line


def _assembled(
    line: bytes, stamp: Stamp, added: dict[str, list[bytes]], kinds: frozenset[str] | None
) -> bytes:
    """A sample with rows added and kinds left out; what we do not know stays unless kinds are chosen."""
    try:
        members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except NOT_JSON as error:
        raise BadLine(str(error)) from None
    parts = [encode_row(stamp)[:-1]]
    for name in dict.fromkeys((*members, *added)):
        if name in _STAMP or (kinds is not None and name not in kinds):
            continue
        raw = bytes(members.get(name, msgspec.Raw(b"[]")))
        if name in added:
            inside = raw.strip()[1:-1].strip()
            raw = b"[" + b",".join([*added[name], inside] if inside else added[name]) + b"]"
        parts.append(b',"%b":%b' % (name.encode(), raw))
    return finish(b"".join(parts))
