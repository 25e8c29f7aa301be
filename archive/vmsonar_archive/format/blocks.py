"""Finds the frames of a segment and where their blocks end (RFC 8878), without decompressing anything."""

from dataclasses import dataclass
from typing import BinaryIO

import zstandard

from vmsonar_archive.format.lines import MAX_LINE

# With very many processes a frame ends earlier, so that a reader holds no more than this of it.
FRAME_BYTES = 16 * 1024 * 1024
MAX_WINDOW_LOG = 23
MAX_WINDOW = 1 << MAX_WINDOW_LOG
# What one frame of ours can hold: it ends when another line like the last one would be too much.
MAX_CONTENT = FRAME_BYTES + MAX_LINE

_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_BLOCK = 128 * 1024
_MAX_HEADER = 18
_BLOCK_HEADER = 3
# Far more than a frame of ours can need; they bound the work and the memory that a hostile file can cost.
_MAX_BLOCKS = 4096
_MAX_FRAME = MAX_CONTENT + _MAX_BLOCKS * _BLOCK_HEADER + _MAX_BLOCK
_CHUNK = 256 * 1024
_MAX_CHUNK = 4 * 1024 * 1024
# So many zeros would be a row of empty blocks, which nobody writes: it is where a power cut ended the frame.
_ZEROS = bytes(64)
_ONLY_ZEROS = "zeros in the place of a block"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it lies in the file."""

    offset: int
    data: memoryview
    #: Where each block ends, relative to the frame; the first entry is the end of the header.
    cuts: list[int]
    complete: bool
    #: Why what follows the data is not the rest of this frame; None when the data ends with the file.
    bad: str | None = None
    #: Where in the file that begins.
    bad_offset: int = 0


class LookAhead:
    """A window over a stream that can look ahead."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ended = False
        self._offset = 0
        self._buffer = b""
        self._position = 0

    @property
    def offset(self) -> int:
        """Where in the stream we stand."""
        return self._offset + self._position

    def has(self, size: int) -> bool:
        """Whether at least this many bytes follow."""
        held = len(self._buffer) - self._position
        if size > held and not self._ended:
            self._fill(size, held)
        return len(self._buffer) - self._position >= size

    def _fill(self, size: int, held: int) -> None:
        parts = [self._buffer[self._position :]]
        self._offset += self._position
        self._position = 0
        # The more is held, the more is read: joining small pieces to it one by one would cost its square.
        chunk = max(_CHUNK, min(held, _MAX_CHUNK))
        while held < size and (part := self._stream.read(max(size - held, chunk))):
            parts.append(part)
            held += len(part)
        self._buffer = b"".join(parts)
        self._ended = held < size

    def view(self, size: int | None = None) -> memoryview:
        """The bytes that follow, or the first `size` of them."""
        end = None if size is None else self._position + size
        return memoryview(self._buffer)[self._position : end]

    def skip(self, size: int) -> None:
        self._position += size

    def seek_frame(self, zeros_from: int) -> bool:
        """Moves to the next place that looks like a frame, or to the end.

        Tells whether that is the end, with something and nothing but zeros from the given offset on.
        """
        zeros = True
        self._position += 1
        while (found := self._buffer.find(_MAGIC, self._position)) < 0:
            scanned = max(self._position, len(self._buffer) - len(_MAGIC) + 1)
            zeros = zeros and self._only_zeros(zeros_from, scanned)
            self._position = scanned
            if not self.has(len(_MAGIC)):
                self._position = len(self._buffer)
                return zeros and self.offset > zeros_from and self._only_zeros(zeros_from, self._position)
        self._position = found
        return False

    def _only_zeros(self, offset: int, end: int) -> bool:
        begin = max(offset - self._offset, 0)
        return begin >= end or self._buffer.count(0, begin, end) == end - begin


def frame_at(ahead: LookAhead) -> Frame:
    """Follows the block headers of the frame that comes next, as far as there are bytes that can be such."""
    ahead.has(_MAX_HEADER)
    head = bytes(ahead.view(_MAX_HEADER))
    if not head.startswith(_MAGIC[: len(head)]):
        return _none(ahead, "not the beginning of a frame")
    try:
        parameters = zstandard.get_frame_parameters(head)
        position = zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        if len(head) < _MAX_HEADER:
            return Frame(ahead.offset, memoryview(head), [], complete=False)
        return _none(ahead, "bad frame header")
    if parameters.window_size > MAX_WINDOW:
        return _none(ahead, f"frame asks for a window of {parameters.window_size} bytes")
    return _walk_blocks(ahead, position, 4 * parameters.has_checksum)


def _none(ahead: LookAhead, reason: str) -> Frame:
    return Frame(ahead.offset, memoryview(b""), [], complete=False, bad=reason, bad_offset=ahead.offset)


def _walk_blocks(ahead: LookAhead, position: int, checksum: int) -> Frame:
    cuts = [position]
    last = False
    while not last:
        if not ahead.has(position + _BLOCK_HEADER):
            return Frame(ahead.offset, ahead.view(), cuts, complete=False)
        header = int.from_bytes(ahead.view(position + _BLOCK_HEADER)[position:], "little")
        reason = _refusal(ahead, header, cuts)
        if reason is not None:
            return _cut_off(ahead, cuts, reason)
        last = bool(header & 1)
        # A block of kind 1 is one byte, repeated.
        position += _BLOCK_HEADER + (1 if header >> 1 & 3 == 1 else header >> 3)
        cuts.append(position)
    cuts[-1] = position = position + checksum
    complete = ahead.has(position)
    return Frame(ahead.offset, ahead.view(position), cuts, complete)


def _refusal(ahead: LookAhead, header: int, cuts: list[int]) -> str | None:
    """Why this cannot be the next block of the frame."""
    if header >> 1 & 3 == 3 or header >> 3 > _MAX_BLOCK:
        return "bad block header"
    if len(cuts) > _MAX_BLOCKS:
        return "a frame of too many blocks"
    if cuts[-1] > _MAX_FRAME:
        return "a frame of too many bytes"
    if header == 0:
        ahead.has(cuts[-1] + len(_ZEROS))
        following = ahead.view(cuts[-1] + len(_ZEROS))[cuts[-1] :]
        if following == _ZEROS[: len(following)]:
            return _ONLY_ZEROS
    return None


def _cut_off(ahead: LookAhead, cuts: list[int], reason: str) -> Frame:
    """The frame up to what is no block of it."""
    bad_offset = ahead.offset + cuts[-1]
    # No block of text ends in a zero, compressed or not: one that does was not written whole.
    if reason is _ONLY_ZEROS and len(cuts) > 1 and ahead.view()[cuts[-1] - 1] == 0:
        cuts.pop()
    return Frame(ahead.offset, ahead.view(cuts[-1]), cuts, False, reason, bad_offset)
