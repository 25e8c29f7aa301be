"""Lines come out of frames as they went in, whatever their length, and one buffer serves them all."""

import io
import random

import pytest
from vmsonar_archive.format.blocks import LookAhead, frame_at
from vmsonar_archive.format.frames import Contents, FrameWriter, read_frames, scan_frames
from vmsonar_archive.format.lines import finish

_BLOCK = 128 * 1024


def lines_of(sizes: list[int]) -> list[bytes]:
    chance = random.Random(7)
    return [finish(b'{"x":"' + chance.randbytes(size // 2).hex().encode() + b'"') for size in sizes]


def frames_of(lines: list[bytes]) -> bytes:
    writer = FrameWriter()
    return b"".join(writer.add([line]) for line in lines) + writer.end()


@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [_BLOCK - 25, _BLOCK, _BLOCK + 1, 3],
        # Around the size of the buffer and its half, and far beyond.
        [256 * 1024 + offset for offset in (-25, -24, -23, 0, 1)],
        [512 * 1024 + offset for offset in (-25, -24, -23, 0, 1)],
        [5 * 1024 * 1024, 10, 700 * 1024, 10],
        [100_000] * 130,
    ],
)
def test_every_line_comes_back(sizes: list[int]) -> None:
    lines = lines_of(sizes)
    found = list(read_frames(io.BytesIO(frames_of(lines))))
    assert all(one.intact for one in found)
    assert [line + b"\n" for one in found for line in one.lines] == lines


def test_lines_that_are_handed_over_are_those_that_are_kept() -> None:
    data = frames_of(lines_of([300_000, 5, 600_000, 40] * 20))
    taken: list[bytes] = []
    scanned = [
        one.frame.offset for one in scan_frames(io.BytesIO(data), lambda line: taken.append(bytes(line)))
    ]
    kept = list(read_frames(io.BytesIO(data)))
    assert taken == [line for one in kept for line in one.lines]
    assert scanned == [one.frame.offset for one in kept]


@pytest.mark.parametrize("block", [1, 5, 9, 12])
def test_what_lies_before_a_damaged_block_is_handed_over(block: int) -> None:
    lines = lines_of([100_000] * 14)
    data = bytearray(frames_of(lines))
    frame = frame_at(LookAhead(io.BytesIO(bytes(data))))
    begin = frame.cuts[block]
    data[begin + 20 : begin + 60] = bytes(40)
    taken: list[bytes] = []
    contents = Contents(lambda line: taken.append(bytes(line) + b"\n"))
    assert contents.read(frame_at(LookAhead(io.BytesIO(bytes(data))))) is not None
    assert taken == lines[: len(taken)]
    assert len(taken) >= block
    # The next frame begins with a clean buffer.
    taken.clear()
    assert contents.read(frame) is None
    assert taken == lines
