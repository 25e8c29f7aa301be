"""A segment that is still being written, up to its last whole record, closed so that any zstd reads it (RFC 8878)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import zstandard

from vmsonar_archive.bundle.walk import Slice
from vmsonar_archive.frames import Damage, Frame, Lines, read_frames
from vmsonar_archive.rewrite import stamped
from vmsonar_archive.segment import Tally

# Header of an empty raw block that is the last one of its frame.
_LAST_BLOCK = b"\x01\x00\x00"


@dataclass(slots=True)
class LivePart:
    """How much of a live segment is whole, and what closes it."""

    length: int = 0
    closing: bytes = b""
    tally: Tally = field(default_factory=Tally)
    #: Altered bytes, as opposed to an end that is not written yet.
    damage: Damage | None = None


def examine_live(descriptor: int, size: int) -> LivePart:
    """Looks at the first `size` bytes of a segment that nobody has sealed."""
    part = LivePart()
    for found in read_frames(cast(BinaryIO, Slice(descriptor, 0, size))):
        if found.damage is not None and not found.damage.torn:
            part.damage = found.damage
        for _, stamp in stamped(found.lines):
            part.tally.add(stamp.time, stamp.seq)
        _extend(part, found)
    if part.damage is not None:
        part.length, part.closing = size, b""
    return part


def _extend(part: LivePart, found: Lines) -> None:
    if found.frame.complete:
        part.length = found.frame.offset + len(found.frame.data)
        part.closing = b""
    elif found.lines:
        cut, checksum = _whole_blocks(found.frame)
        part.length = found.frame.offset + cut
        part.closing = _LAST_BLOCK + checksum


def _whole_blocks(frame: Frame) -> tuple[int, bytes]:
    """Where in an open frame the last whole record ends, and the checksum of the content up to there."""
    machine = zstandard.ZstdDecompressor(max_window_size=2**23).decompressobj()
    begin, best = 0, 0
    parts: list[bytes] = []
    kept = 0
    for cut in frame.cuts:
        if cut > len(frame.data):
            break
        parts.append(machine.decompress(frame.data[begin:cut]))
        begin = cut
        if parts[-1].endswith(b"\n"):
            best, kept = cut, len(parts)
    if not zstandard.get_frame_parameters(bytes(frame.data[:18])).has_checksum:
        return best, b""
    return best, _checksum(parts[:kept])


def _checksum(parts: Iterable[bytes]) -> bytes:
    """The four bytes that end a frame of this content: those of any frame of it, and this is the fastest."""
    frame = zstandard.ZstdCompressor(level=-5, write_checksum=True).compressobj()
    for part in parts:
        frame.compress(part)
    return frame.flush()[-4:]
