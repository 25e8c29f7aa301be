"""Segments are rows of independent zstd frames (RFC 8878); this writes them and reads whatever is left of them.

Invariants:
- A frame carries a checksum and holds at most FRAME_RECORDS lines, flushed one by one while it is written live.
- Reading never raises on bad bytes: damage is a value, and costs what it hits and what follows in that frame.
- Block headers are walked before anything is decompressed, so that memory is bounded by what we allow, not by
  what a file declares.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import zstandard

from vmsonar_archive.blocks import FRAME_BYTES, MAX_WINDOW_LOG, Cursor, walk
from vmsonar_archive.blocks import Frame as Frame
from vmsonar_archive.contents import Contents, Take

FRAME_RECORDS = 60
# Levels, windows and the shortest match were chosen by measurement: docs/decisions/0002-levels-and-windows.md.
LIVE_LEVEL = 5
SEALED_LEVEL = 8

_MIN_WINDOW_LOG = 19
_MIN_MATCH = 6
# Far more than any accident causes; it bounds the work a hostile file can cause.
_MAX_DAMAGED = 256


class FrameWriter:
    """Compresses lines into frames; what each call returns is to be written at once."""

    def __init__(self, level: int = LIVE_LEVEL, *, flush: bool = True) -> None:
        """Without flush a line is readable only when its frame is closed, which compresses better."""
        self._level = level
        self._flush = flush
        self._machine: zstandard.ZstdCompressor | None = None
        self._window = 0
        self._frame: zstandard.ZstdCompressionObj | None = None
        self._records = 0
        self._bytes = 0
        self._line = 0

    def add(self, pieces: Iterable[bytes]) -> bytes:
        """What is to be written for a line, which is given in pieces so that none of them need be large."""
        written = [self.end()] if self._is_full() else []
        if self._frame is None:
            self._frame = self._compressor().compressobj()
        size = 0
        for piece in pieces:
            size += len(piece)
            written.append(self._frame.compress(piece))
        if self._flush:
            written.append(self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        self._records += 1
        self._bytes += size
        self._line = size
        return b"".join(written)

    @property
    def line_size(self) -> int:
        """How long the line was that was added last."""
        return self._line

    def end(self) -> bytes:
        """What closes the open frame, if there is one."""
        if self._frame is None:
            return b""
        closing = self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
        self._frame = None
        self._records = self._bytes = 0
        return closing

    def _is_full(self) -> bool:
        return self._records >= FRAME_RECORDS or self._bytes + self._line > FRAME_BYTES

    def _compressor(self) -> zstandard.ZstdCompressor:
        """One whose window reaches back over the last few lines: what changed is measured against those."""
        window = min(max(self._line.bit_length() + 1, _MIN_WINDOW_LOG), MAX_WINDOW_LOG)
        if self._machine is None or window != self._window:
            # Never two of them: each holds its window and more.
            self._machine = None
            parameters = zstandard.ZstdCompressionParameters.from_level(
                self._level,
                window_log=window,
                hash_log=window - 3,
                search_log=1,
                min_match=_MIN_MATCH,
                write_checksum=True,
            )
            self._machine = zstandard.ZstdCompressor(compression_params=parameters)
            self._window = window
        return self._machine


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that could not be read back as lines."""

    offset: int
    #: True when the file simply stops: what a crash leaves behind, as opposed to altered bytes.
    torn: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Scanned:
    """One frame whose lines were handed over, and whether it is closed and undamaged."""

    frame: Frame
    damage: Damage | None

    @property
    def intact(self) -> bool:
        return self.frame.complete and self.damage is None


@dataclass(frozen=True, slots=True)
class Lines(Scanned):
    """One frame with its lines that are whole."""

    lines: list[bytes]


def read_frames(stream: BinaryIO) -> Iterator[Lines]:
    """Every frame of a segment with its whole lines, in order, whatever state the segment is in."""
    lines: list[bytes] = []
    for found in scan_frames(stream, lambda line: lines.append(bytes(line))):
        yield Lines(found.frame, found.damage, lines.copy())
        lines.clear()


def scan_frames(stream: BinaryIO, take: Take) -> Iterator[Scanned]:
    """The same without keeping the lines: each is handed over when it was read, a frame's before the frame."""
    cursor = Cursor(stream)
    contents = Contents(take)
    attempts = 0
    while cursor.has(1):
        result = _scan(walk(cursor), contents)
        if result.intact:
            cursor.skip(len(result.frame.data))
            yield result
            continue
        attempts += 1
        if attempts > _MAX_DAMAGED:
            yield _given_up(cursor.offset)
            return
        # Where a damaged frame ends cannot be trusted: look for the next one from its start.
        zeros = cursor.seek_frame(result.frame.bad_offset)
        yield _judged(result, zeros, more=cursor.has(1))


def _judged(result: Scanned, zeros: bool, more: bool) -> Scanned:
    """Whether damage is but a torn end depends on what follows it."""
    frame, damage = result.frame, result.damage
    if damage is None:
        return result
    if damage.torn and more:
        damage = Damage(frame.offset, torn=False, detail="frame is cut short")
    elif zeros and damage.detail == frame.bad:
        # What a power cut leaves: the file had grown, but its last bytes never reached the disk.
        damage = Damage(frame.offset, torn=True, detail="nothing but zeros follow")
    return Scanned(frame, damage)


def _given_up(offset: int) -> Scanned:
    damage = Damage(offset, torn=False, detail="too many damaged frames, the rest is given up")
    return Scanned(Frame(offset, memoryview(b""), [], complete=False), damage)


def _scan(frame: Frame, contents: Contents) -> Scanned:
    reason = contents.read(frame) or frame.bad
    if reason is not None:
        return Scanned(frame, Damage(frame.offset, torn=False, detail=reason))
    if not frame.complete and (contents.ends_inside_a_line or not _ends_at_a_block(frame)):
        return Scanned(frame, Damage(frame.offset, torn=True, detail="the last record is not whole"))
    if frame.complete and contents.ends_inside_a_line:
        return Scanned(frame, Damage(frame.offset, torn=False, detail="frame ends inside a line"))
    return Scanned(frame, None)


def _ends_at_a_block(frame: Frame) -> bool:
    return bool(frame.cuts) and frame.cuts[-1] == len(frame.data)
