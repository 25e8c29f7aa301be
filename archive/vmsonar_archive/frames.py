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

from vmsonar_archive.lines import MAX_LINE, BadLine, checked

FRAME_RECORDS = 60
# With very many processes a frame ends earlier, so that a reader holds no more than this of it.
FRAME_BYTES = 16 * 1024 * 1024
# The levels and windows were chosen by measurement: docs/benchmarks.md.
LIVE_LEVEL = 5
SEALED_LEVEL = 8

_MAGIC = b"\x28\xb5\x2f\xfd"
_MIN_WINDOW_LOG = 20
_MAX_WINDOW_LOG = 23
_MAX_WINDOW = 1 << _MAX_WINDOW_LOG
_MAX_BLOCK = 128 * 1024
_MAX_HEADER = 18
# Far more than a frame of ours can need; they bound the work a hostile file can cause.
_MAX_BLOCKS = 4096
_MAX_DAMAGED = 256
_CHUNK = 256 * 1024
# What one frame of ours can hold: it ends when another line like the last one would be too much.
_MAX_CONTENT = FRAME_BYTES + MAX_LINE
# At most 4 MiB can come out of one call to the decompressor.
_BLOCKS_PER_CALL = 32


class FrameWriter:
    """Compresses lines into frames; what each call returns is to be written at once."""

    def __init__(self, level: int = LIVE_LEVEL, *, flush: bool = True) -> None:
        """Without flush a line is readable only when its frame is closed, which compresses better."""
        self._level = level
        self._flush = flush
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
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
        window = min(max(self._line.bit_length() + 2, _MIN_WINDOW_LOG), _MAX_WINDOW_LOG)
        if window not in self._compressors:
            parameters = zstandard.ZstdCompressionParameters.from_level(
                self._level, window_log=window, hash_log=window - 4, search_log=1, write_checksum=True
            )
            self._compressors[window] = zstandard.ZstdCompressor(compression_params=parameters)
        return self._compressors[window]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that could not be read back as lines."""

    offset: int
    #: True when the file simply stops: what a crash leaves behind, as opposed to altered bytes.
    torn: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it lies in the file."""

    offset: int
    data: memoryview
    #: Where each block ends, relative to the frame; the first entry is the end of the header.
    cuts: list[int]
    complete: bool


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one frame that are whole, and whether the frame is closed and undamaged."""

    frame: Frame
    lines: list[bytes]
    damage: Damage | None

    @property
    def intact(self) -> bool:
        return self.frame.complete and self.damage is None


class _NotAFrame(Exception):
    pass


class _Cursor:
    """A window over a stream that can look ahead."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ended = False
        self._offset = 0
        self.buffer = b""
        self.position = 0

    @property
    def offset(self) -> int:
        """Where in the stream we stand."""
        return self._offset + self.position

    def has(self, size: int) -> bool:
        """Whether so many bytes follow."""
        missing = size - (len(self.buffer) - self.position)
        if missing > 0 and not self._ended:
            parts = [self.buffer[self.position :]]
            self._offset += self.position
            self.position = 0
            while missing > 0:
                part = self._stream.read(max(missing, _CHUNK))
                if not part:
                    self._ended = True
                    break
                parts.append(part)
                missing -= len(part)
            self.buffer = b"".join(parts)
        return len(self.buffer) - self.position >= size

    def view(self, size: int | None = None) -> memoryview:
        """The bytes that follow, or so many of them."""
        end = None if size is None else self.position + size
        return memoryview(self.buffer)[self.position : end]

    def skip(self, size: int) -> None:
        self.position += size

    def seek_frame(self) -> None:
        """Moves to the next place that looks like a frame, or to the end."""
        self.position += 1
        while (found := self.buffer.find(_MAGIC, self.position)) < 0:
            self.position = max(self.position, len(self.buffer) - len(_MAGIC) + 1)
            if not self.has(len(_MAGIC)):
                self.position = len(self.buffer)
                return
        self.position = found


def read_frames(stream: BinaryIO) -> Iterator[Lines]:
    """Every frame of a segment with its whole lines, in order, whatever state the segment is in."""
    cursor = _Cursor(stream)
    attempts = 0
    while cursor.has(1):
        result = _read_frame(cursor)
        if result.intact:
            cursor.skip(len(result.frame.data))
            yield result
            continue
        attempts += 1
        if attempts > _MAX_DAMAGED:
            yield _nothing(cursor.offset, "too many damaged frames, the rest is given up")
            return
        # Where a damaged frame ends cannot be trusted: look for the next one from its start.
        cursor.seek_frame()
        if result.damage is not None and result.damage.torn and cursor.has(1):
            cut = Damage(result.frame.offset, torn=False, detail="frame is cut short")
            result = Lines(result.frame, result.lines, cut)
        yield result


def _read_frame(cursor: _Cursor) -> Lines:
    try:
        return _lines_of(_walk(cursor))
    except _NotAFrame as error:
        return _nothing(cursor.offset, str(error))


def _nothing(offset: int, detail: str) -> Lines:
    return Lines(
        Frame(offset, memoryview(b""), [], complete=False), [], Damage(offset, torn=False, detail=detail)
    )


def _walk(cursor: _Cursor) -> Frame:
    """Follows the block headers of the frame at the cursor, as far as there are bytes."""
    cursor.has(_MAX_HEADER)
    head = bytes(cursor.view(_MAX_HEADER))
    if not head.startswith(_MAGIC[: len(head)]):
        raise _NotAFrame("not the beginning of a frame")
    try:
        parameters = zstandard.get_frame_parameters(head)
        position = zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        if len(head) < _MAX_HEADER:
            return Frame(cursor.offset, memoryview(head), [], complete=False)
        raise _NotAFrame("bad frame header") from None
    if parameters.window_size > _MAX_WINDOW:
        raise _NotAFrame(f"frame asks for a window of {parameters.window_size} bytes")
    cuts = [position]
    last = False
    while not last:
        if not cursor.has(position + 3):
            return Frame(cursor.offset, cursor.view(), cuts, complete=False)
        last, size = _block(cursor.view(position + 3)[position:])
        position += 3 + size
        cuts.append(position)
        if len(cuts) > _MAX_BLOCKS:
            raise _NotAFrame("a frame of too many blocks")
    cuts[-1] = position = position + 4 * parameters.has_checksum
    complete = cursor.has(position)
    return Frame(cursor.offset, cursor.view(position), cuts, complete)


def _block(header: memoryview) -> tuple[bool, int]:
    """Whether a block is the last one, and how many bytes follow its header."""
    number = int.from_bytes(header, "little")
    kind, size = number >> 1 & 3, number >> 3
    if kind == 3 or size > _MAX_BLOCK:
        raise _NotAFrame("bad block header")
    return bool(number & 1), 1 if kind == 1 else size


def _lines_of(frame: Frame) -> Lines:
    lines: list[bytes] = []
    rest: list[bytes] = []
    skip = 0
    reason: str | None = None
    for blocks_per_call in (_BLOCKS_PER_CALL, 1):
        try:
            for part in _decompress(frame, blocks_per_call, skip):
                skip += len(part)
                if skip > _MAX_CONTENT:
                    raise BadLine(f"a frame holds more than {_MAX_CONTENT} bytes")
                rest.append(part)
                if b"\n" in part:
                    *whole, end = b"".join(rest).split(b"\n")
                    rest = [end] if end else []
                    # One by one: those before a bad one are kept.
                    lines.extend(map(checked, whole))
        except zstandard.ZstdError as error:
            # Once more, block by block, to get at what lies before the damage.
            reason = str(error)
            continue
        except BadLine as error:
            reason = str(error)
        break
    if reason is not None:
        return Lines(frame, lines, Damage(frame.offset, torn=False, detail=reason))
    if not frame.complete and (rest or not _ends_at_a_block(frame)):
        return Lines(frame, lines, Damage(frame.offset, torn=True, detail="the last record is not whole"))
    if frame.complete and rest:
        return Lines(frame, lines, Damage(frame.offset, torn=False, detail="frame ends inside a line"))
    return Lines(frame, lines, None)


def _ends_at_a_block(frame: Frame) -> bool:
    return bool(frame.cuts) and frame.cuts[-1] == len(frame.data)


def _decompress(frame: Frame, blocks_per_call: int, skip: int) -> Iterator[bytes]:
    """What the frame holds, in bounded pieces, without the first `skip` bytes."""
    machine = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
    begin = 0
    ends = frame.cuts[blocks_per_call::blocks_per_call]
    if not ends or ends[-1] != len(frame.data):
        ends.append(len(frame.data))
    for end in ends:
        part = machine.decompress(frame.data[begin:end])
        begin = end
        if skip >= len(part):
            skip -= len(part)
            continue
        yield part[skip:]
        skip = 0
