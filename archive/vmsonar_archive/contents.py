"""What a frame holds, line by line, decompressed into one buffer that is used again.

Copying whole frames, and then their lines, took more time than checking them
(docs/decisions/0014-verify-in-one-buffer.md).
"""

from collections.abc import Callable, Iterator

import zstandard

from vmsonar_archive.blocks import MAX_CONTENT, MAX_WINDOW, Frame
from vmsonar_archive.lines import BadLine, check_line

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
        #: The beginning of a line whose end is still to come.
        self._held = 0
        self._total = 0

    def read(self, frame: Frame) -> str | None:
        """Hands over every whole line of a frame, up to the first that is not right; returns what is wrong with it."""
        self._held = self._total = 0
        try:
            try:
                self._read_through(frame)
            except zstandard.ZstdError:
                # Once more, block by block, to get at what lies before the damage.
                self._read_by_blocks(frame, self._total)
        except (zstandard.ZstdError, BadLine) as error:
            return str(error)
        return None

    @property
    def ends_inside_a_line(self) -> bool:
        """Whether what was read last stopped before a newline."""
        return self._held > 0

    def _read_through(self, frame: Frame) -> None:
        with self._decompressor.stream_reader(frame.data) as reader:
            while size := reader.readinto(self._view[self._held :]):
                self._split(size)

    def _read_by_blocks(self, frame: Frame, known: int) -> None:
        for part in _blocks(self._decompressor, frame, known):
            # A block holds at most 128 KiB: there is always room for one.
            self._view[self._held : self._held + len(part)] = part
            self._split(len(part))

    def _split(self, size: int) -> None:
        """Hands over the lines that are whole now that so many bytes were added to what is held."""
        self._total += size
        if self._total > MAX_CONTENT:
            raise BadLine(f"a frame holds more than {MAX_CONTENT} bytes")
        begin, filled = 0, self._held + size
        newline = self._buffer.find(b"\n", self._held, filled)
        while newline >= 0:
            line = self._view[begin:newline]
            check_line(line)
            self._take(line)
            begin = newline + 1
            newline = self._buffer.find(b"\n", begin, filled)
        self._keep(begin, filled)

    def _keep(self, begin: int, filled: int) -> None:
        """Moves the beginning of the next line to the front, and makes room for more of it."""
        self._held = filled - begin
        if self._held > len(self._buffer) // 2:
            larger = bytearray(2 * len(self._buffer))
            larger[: self._held] = self._view[begin:filled]
            self._buffer, self._view = larger, memoryview(larger)
        elif begin:
            self._view[: self._held] = self._view[begin:filled]


def _blocks(decompressor: zstandard.ZstdDecompressor, frame: Frame, known: int) -> Iterator[bytes]:
    """What each block of the frame holds, without the first bytes that are known."""
    machine = decompressor.decompressobj()
    begin = 0
    ends = frame.cuts[1:]
    if not ends or ends[-1] != len(frame.data):
        ends.append(len(frame.data))
    for end in ends:
        part = machine.decompress(frame.data[begin:end])
        begin = end
        if known < len(part):
            yield part[known:]
        known = max(0, known - len(part))
