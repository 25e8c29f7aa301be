"""What lies before a bad place in a frame is read, and what a hostile frame costs is bounded."""

import io
import time

import pytest
from vmsonar_archive.format.frames import Damage, Lines, read_frames

from tests.making.archives import check, make_archive, open_writer, read_seqs, record, segments

RECORDS = 50


@pytest.fixture(scope="module")
def sealed(tmp_path_factory) -> bytes:
    """One frame of 50 records, a block each."""
    root = make_archive(tmp_path_factory.mktemp("blocks") / "a", RECORDS, processes=30)
    return segments(root)[0].read_bytes()


@pytest.fixture(scope="module")
def cuts(sealed) -> list[int]:
    (found,) = read_frames(io.BytesIO(sealed))
    assert len(found.lines) == RECORDS
    return found.frame.cuts


def read(data: bytes) -> list[Lines]:
    return list(read_frames(io.BytesIO(data)))


@pytest.mark.parametrize("bit", range(24))
def test_a_bad_block_header_costs_nothing_before_it(sealed, cuts, bit):
    altered = bytearray(sealed)
    altered[cuts[40] + bit // 8] ^= 1 << bit % 8
    found = read(bytes(altered))
    assert sum(len(part.lines) for part in found) == 40
    assert any(part.damage for part in found)


def test_a_bad_block_header_is_damage_and_not_a_torn_end(sealed, cuts):
    altered = bytearray(sealed)
    altered[cuts[40]] |= 6
    (found,) = read(bytes(altered))
    assert found.damage == Damage(0, torn=False, detail="bad block header")


@pytest.mark.parametrize("zeros", [1, 100, 8192, 16384, 1_000_000])
@pytest.mark.parametrize("into", [0, 1, 2, 3, 30])
def test_zeros_after_a_power_cut_are_a_torn_end(sealed, cuts, zeros, into):
    """The file had grown, its last bytes had not arrived; where they begin is not where a block does."""
    (found,) = read(sealed[: cuts[45] + into] + bytes(zeros))
    assert len(found.lines) == 45
    assert found.damage is None or found.damage.torn


def test_zeros_after_a_whole_frame_are_a_torn_end(sealed):
    whole, rest = read(sealed + bytes(5000))
    assert whole.intact
    assert rest.damage is not None
    assert rest.damage.torn


def test_zeros_in_the_middle_are_damage(sealed, cuts):
    first, second = read(sealed[: cuts[45]] + bytes(16384) + sealed)
    assert len(first.lines) == 45
    assert first.damage is not None
    assert not first.damage.torn
    assert second.intact


def test_the_next_start_takes_off_the_zeros(tmp_path):
    writer = open_writer(tmp_path)
    record(writer, 10)
    (path,) = segments(tmp_path)
    live = path.read_bytes()
    writer.close()
    (tmp_path / "journal.jsonl").unlink()
    path.write_bytes(live + bytes(20_000))
    assert read_seqs(tmp_path) == list(range(1, 11))
    open_writer(tmp_path).close()
    assert check(tmp_path).ok
    assert read_seqs(tmp_path) == list(range(1, 11))


class Endless:
    """Raw blocks of 128 KiB, none of them the last; counts what is asked of it."""

    def __init__(self, blocks: int) -> None:
        self._left = blocks
        self._rest = b"\x28\xb5\x2f\xfd\x04\x58"
        self._block = (131072 << 3).to_bytes(3, "little") + b"x" * 131072
        self.largest = 0

    def read(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        while len(self._rest) < size and self._left:
            self._rest += self._block
            self._left -= 1
        part, self._rest = self._rest[:size], self._rest[size:]
        return part


def test_a_frame_without_end_is_not_held(monkeypatch):
    """512 MiB took seven seconds and as much memory."""
    held = []
    from vmsonar_archive.format.blocks import LookAhead

    fill = LookAhead._fill

    def noting(ahead, missing, size):
        fill(ahead, missing, size)
        held.append(len(ahead._buffer))

    monkeypatch.setattr(LookAhead, "_fill", noting)
    stream = Endless(4000)
    began = time.process_time()
    (found,) = read_frames(stream)
    assert time.process_time() - began < 5
    assert not found.lines
    assert found.damage is not None
    assert max(held) < 40 * 2**20
    assert stream.largest <= 4 * 2**20
    # Each time everything held is copied: so often and no more, until the bound is reached.
    assert len([size for size in held if size > 2**20]) < 200
