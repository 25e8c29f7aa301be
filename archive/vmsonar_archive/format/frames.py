"""Segments are rows of independent zstd frames (RFC 8878): writes them, and reads whatever is left of them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

import zstandard

from vmsonar_archive.format.blocks import (
    FRAME_BYTES,
    MAX_CONTENT,
    MAX_WINDOW,
    MAX_WINDOW_LOG,
    Frame,
    LookAhead,
    frame_at,
)
from vmsonar_archive.format.lines import BadLine, check_line

# Holds a few lines of an ordinary machine and stays in the processor's cache; it grows for longer lines.
_BUFFER = 512 * 1024

#: Takes a line that is whole and right, without its newline; the memory is used again afterwards.
Take = Callable[[memoryview], None]


class Contents:
    """Hands the lines of frames to whoever takes them."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        #: How many bytes are held of a line whose end is still to come; of a frame read to its end, lost.
        self.held = 0
        #: How many bytes of the frame that was read last could be decompressed.
        self.size = 0
        #: How many lines of the frame that was read last were handed over.
        self.lines = 0

    def read(self, frame: Frame) -> str | None:
        """Hands over every whole line of a frame, up to the first that is not right; returns what is wrong with it."""
        self.held = self.size = self.lines = 0
        try:
            if not (frame.complete and self._reads_through(frame)):
                # zstd's reader ends with its input: what the blocks of an unfinished or damaged frame
                # still hold is to be had one by one only.
                self._read_by_blocks(frame)
        except (zstandard.ZstdError, BadLine) as error:
            return str(error)
        return None

    def _reads_through(self, frame: Frame) -> bool:
        """Whether zstd took the frame as a whole; what it gave up to then is handed over."""
        try:
            with self._decompressor.stream_reader(frame.data) as reader:
                while size := reader.readinto(self._view[self.held :]):
                    self._split(size)
        except zstandard.ZstdError:
            return False
        return True

    def _read_by_blocks(self, frame: Frame) -> None:
        """Hands over what the blocks hold beyond the bytes that are known already."""
        machine = self._decompressor.decompressobj()
        known, begin = self.size, 0
        for end in dict.fromkeys((*frame.cuts[1:], len(frame.data))):
            block = machine.decompress(frame.data[begin:end])
            part, known, begin = block[known:], max(0, known - len(block)), end
            # A block holds at most 128 KiB: there is always room for one.
            self._view[self.held : self.held + len(part)] = part
            self._split(len(part))

    def _split(self, size: int) -> None:
        """Hands over the lines that are complete after bytes were added to the buffer."""
        self.size += size
        if self.size > MAX_CONTENT:
            raise BadLine(f"a frame holds more than {MAX_CONTENT} bytes")
        begin, filled = 0, self.held + size
        newline = self._buffer.find(b"\n", self.held, filled)
        while newline >= 0:
            line = self._view[begin:newline]
            check_line(line)
            self._take(line)
            self.lines += 1
            begin = newline + 1
            newline = self._buffer.find(b"\n", begin, filled)
        # The beginning of the next line goes to the front, where there is room for more of it.
        self.held = filled - begin
        if self.held > len(self._buffer) // 2:
            larger = bytearray(2 * len(self._buffer))
            larger[: self.held] = self._view[begin:filled]
            self._buffer, self._view = larger, memoryview(larger)
        elif begin:
            self._view[: self.held] = self._view[begin:filled]


FRAME_RECORDS = 60
# Levels, windows and the shortest match were chosen by measurement: docs/decisions/0002-levels-and-windows.md.
LIVE_LEVEL = 5
SEALED_LEVEL = 8

_MIN_WINDOW_LOG = 19
_MIN_MATCH = 6
# Far more than any accident causes; it bounds the work a hostile file can cause.
_MAX_DAMAGED = 256
_MAX_WORK = 256 * 1024 * 1024
_MAGIC_BYTES = 4


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
        #: Length of the line that was added last.
        self.line_size = 0

    def add(self, pieces: Iterable[bytes]) -> bytes:
        """What is to be written for a line, which is given in pieces so that none of them need be large."""
        is_full = self._records >= FRAME_RECORDS or self._bytes + self.line_size > FRAME_BYTES
        written = [self.end()] if is_full else []
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
        self.line_size = size
        return b"".join(written)

    def end(self) -> bytes:
        """What closes the open frame, if there is one."""
        if self._frame is None:
            return b""
        closing = self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
        self._frame = None
        self._records = self._bytes = 0
        return closing

    def _compressor(self) -> zstandard.ZstdCompressor:
        """One whose window reaches back over the last few lines: what changed is measured against those."""
        window = min(max(self.line_size.bit_length() + 1, _MIN_WINDOW_LOG), MAX_WINDOW_LOG)
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
    ahead = LookAhead(stream)
    contents = Contents(take)
    attempts = 0
    while ahead.has(1):
        result, lines = _scan(frame_at(ahead), contents), contents.lines
        if result.intact:
            ahead.skip(len(result.frame.data))
            yield result
            continue
        attempts += 1
        if attempts > _MAX_DAMAGED:
            damage = Damage(ahead.offset, torn=False, detail="too many damaged frames, the rest is given up")
            yield Scanned(Frame(ahead.offset, memoryview(b""), [], complete=False), damage)
            return
        # Where a damaged frame ends cannot be trusted: look for the next one from its start.
        zeros = ahead.seek_frame(result.frame.bad_offset)
        yield _judged(result, lines, zeros, ahead.has(1))


def _judged(result: Scanned, lines: int, zeros: bool, more: bool) -> Scanned:
    """Whether damage is but a torn end depends on what follows it."""
    frame, damage = result.frame, result.damage
    if damage is None:
        return result
    if damage.torn and more:
        damage = Damage(frame.offset, torn=False, detail="frame is cut short")
    elif damage.torn and _is_altered(frame, lines):
        damage = Damage(frame.offset, torn=False, detail="a length in it was changed")
    elif zeros and damage.detail == frame.bad:
        # What a power cut leaves: the file had grown, but its last bytes never reached the disk.
        damage = Damage(frame.offset, torn=True, detail="nothing but zeros follow")
    return Scanned(frame, damage)


def _is_altered(frame: Frame, lines: int) -> bool:
    """Whether what looks like a torn end would go on if one bit of a header were another one.

    A header that claims more than there is looks like the end of a file that was being written. But what is torn
    has nothing after it, whereas here a record follows whose own checksum holds.
    """
    headers = [range(_MAGIC_BYTES, cut) for cut in frame.cuts[:1]]
    headers += [range(cut, cut + 3) for cut in frame.cuts[-2:]]
    contents, work, blocks = Contents(lambda _line: None), 0, _whole_blocks(frame)
    for place in (place for header in headers for place in header if place < len(frame.data)):
        for bit in range(8):
            data = bytearray(frame.data)
            data[place] ^= 1 << bit
            other = frame_at(LookAhead(BytesIO(data)))
            if _whole_blocks(other) <= blocks:
                continue
            contents.read(other)
            work += contents.size + len(data)
            if contents.lines > lines or work > _MAX_WORK:
                return contents.lines > lines
    return False


def _whole_blocks(frame: Frame) -> int:
    return bisect_right(frame.cuts, len(frame.data))


def _scan(frame: Frame, contents: Contents) -> Scanned:
    reason = contents.read(frame) or frame.bad
    torn = reason is None and not frame.complete
    if torn and (contents.held or frame.cuts[-1:] != [len(frame.data)]):
        reason = "the last record is not whole"
    elif reason is None and frame.complete and contents.held:
        reason = "frame ends inside a line"
    return Scanned(frame, None if reason is None else Damage(frame.offset, torn, reason))
