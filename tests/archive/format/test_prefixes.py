"""Whatever a kill leaves of a segment, every record whose write had returned is read, by whoever reads segments."""

import io
import itertools
import os
import random
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vmsonar_archive.bundle.snapshot import examine_live
from vmsonar_archive.format.frames import LIVE_LEVEL, FrameWriter, read_frames
from vmsonar_archive.format.lines import decode_stamp, record_line
from vmsonar_archive.records import GapRow, Sample, SysInfo
from vmsonar_archive.write.rewrite import examine, rewrite

from tests.making.archives import BOOT, START, check, open_writer, read_seqs, record, segments
from vmsonar.forward.tail import LineStream

KINDS = ("sample", "sysinfo")
# As a machine with few processes writes them, with many, and far beyond; 17, 50 and 100 kB are ordinary.
SIZES = [100, 1_000, 17_000, 50_000, 100_000, 131_072, 300_000, 524_288, 700_000, 2_000_000]


def text(size: int, compressible: bool, chance: random.Random) -> str:
    if compressible:
        # What a sample is: much like the one before, with other figures.
        return "".join(f"pid {chance.randrange(100)} cmd worker;" for _ in range(size // 20))
    return chance.randbytes(size // 2).hex()


def line(seq: int, size: int, compressible: bool, kind: str, chance: random.Random) -> bytes:
    """A record of about that many bytes."""
    stamp = {"time": START + timedelta(seconds=seq), "seq": seq, "run": "r", "boot": "b", "boottime": seq}
    words = text(size, compressible, chance)
    if kind == "sysinfo":
        return record_line(SysInfo(**stamp, cpu_model=words))
    return record_line(Sample(**stamp, gap=[GapRow(collector="process", reason="denied", detail=words)]))


class Live:
    """A segment as it is written live, with its length when the write of each record returned."""

    def __init__(self, lines: Iterable[bytes], closed: bool = False) -> None:
        frames = FrameWriter(LIVE_LEVEL)
        self.lines = list(lines)
        pieces = [frames.add((line,)) for line in self.lines]
        #: A frame's end belongs to the write of the next record.
        self.flushed = list(itertools.accumulate(map(len, pieces)))
        self.data = b"".join(pieces) + (frames.end() if closed else b"")

    def cuts(self, chance: random.Random, between: int) -> list[int]:
        """Every length at which a write returned, those around it, and some in between."""
        ends = [end + offset for end in self.flushed for offset in (-1, 0, 1, 2, 3, 7)]
        others = [
            chance.randrange(low, high)
            for low, high in itertools.pairwise([0, *self.flushed])
            for _ in range(between)
        ]
        return sorted({cut for cut in (*ends, *others) if 0 <= cut <= len(self.data)})

    def durable(self, cut: int) -> list[bytes]:
        return [line[:-1] for line, end in zip(self.lines, self.flushed, strict=True) if end <= cut]


def read(data: bytes) -> list[bytes]:
    return [line for found in read_frames(io.BytesIO(data)) for line in found.lines]


def check_prefix(live: Live, cut: int) -> None:
    """What comes out begins with all that was durable, and is never anything that was not written."""
    found, durable = read(live.data[:cut]), live.durable(cut)
    assert len(found) >= len(durable), (
        f"{len(durable) - len(found)} records lost at {cut} of {len(live.data)}"
    )
    assert found == [line[:-1] for line in live.lines[: len(found)]]


@pytest.mark.parametrize("compressible", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_every_record_is_read_at_every_flush(size, compressible):
    chance = random.Random(size)
    count = max(4, min(130, 3_000_000 // size))
    live = Live(line(seq, size, compressible, "sample", chance) for seq in range(1, count + 1))
    for cut in live.flushed:
        check_prefix(live, cut)


segments_of = given(
    sizes=st.lists(st.integers(100, 200_000) | st.sampled_from(SIZES), min_size=1, max_size=12),
    compressible=st.booleans(),
    kind=st.sampled_from(sorted(KINDS)),
    closed=st.booleans(),
    seed=st.integers(0, 2**32),
)


def check_prefixes(
    sizes: list[int], compressible: bool, kind: str, closed: bool, seed: int, cuts: int
) -> None:
    chance = random.Random(seed)
    live = Live((line(seq, size, compressible, kind, chance) for seq, size in enumerate(sizes, 1)), closed)
    candidates = live.cuts(chance, between=2)
    for cut in chance.sample(candidates, min(cuts, len(candidates))):
        check_prefix(live, cut)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@segments_of
def test_every_record_is_read_at_any_prefix(sizes, compressible, kind, closed, seed):
    check_prefixes(sizes, compressible, kind, closed, seed, cuts=12)


@pytest.mark.chaos
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@segments_of
def test_every_record_is_read_at_any_of_very_many_prefixes(sizes, compressible, kind, closed, seed):
    check_prefixes(sizes, compressible, kind, closed, seed, cuts=60)


@pytest.mark.parametrize("size", [17_000, 50_000, 100_000, 700_000])
def test_everybody_reads_the_same(tmp_path, size):
    """Repair, bundle and forward go through the bytes each in their own way."""
    chance = random.Random(size)
    live = Live(line(seq, size, True, "sample", chance) for seq in range(1, 3 + min(77, 4_000_000 // size)))
    path = tmp_path / "segment"
    for cut in chance.sample(live.cuts(chance, between=1), 5):
        path.write_bytes(live.data[:cut])
        found = [decode_stamp(line).seq for line in read(live.data[:cut])]
        assert found[: len(live.durable(cut))] == list(range(1, len(live.durable(cut)) + 1))
        assert repaired(path, tmp_path / "repaired") == found
        assert bundled(path) == found
        assert forwarded(path) == found


def repaired(path: Path, target: Path) -> list[int]:
    with path.open("rb") as source:
        counted = examine(source, "x")[0].records
        source.seek(0)
        target.unlink(missing_ok=True)
        assert rewrite([source], target, "x", LIVE_LEVEL).records == counted
    return [decode_stamp(line).seq for line in read(target.read_bytes())]


def bundled(path: Path) -> list[int]:
    with path.open("rb") as source:
        part = examine_live(source.fileno(), os.fstat(source.fileno()).st_size)
        found = list(read_frames(io.BytesIO(source.read()[: part.length] + part.closing)))
    assert all(one.intact for one in found)
    seqs = [decode_stamp(line).seq for one in found for line in one.lines]
    assert part.tally.records == len(seqs)
    return seqs


def forwarded(path: Path) -> list[int]:
    stream = LineStream("x", path.open("rb", buffering=0))
    lines = list(itertools.chain.from_iterable(iter(stream.next_lines, None)))
    stream.close()
    return [decode_stamp(line).seq for line in lines]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_next_start_keeps_every_durable_record(tmp_path, kind):
    """As the writer does it: killed after any of its writes, repaired, and read."""
    writer = open_writer(tmp_path / "live")
    lengths = []
    for number in range(40):
        if kind == "sample":
            record(writer, 1, start=START + timedelta(seconds=number), processes=350)
        else:
            info = SysInfo(
                time=START, seq=0, run="", boot=BOOT, boottime=number, cpu_model="x" * (50_000 + number)
            )
            writer.append_sysinfo(info)
        lengths.append(writer.bytes_written)
    (path,) = segments(tmp_path / "live", kind)
    live, name = path.read_bytes(), path.relative_to(tmp_path / "live")
    for count, length in enumerate(lengths, 1):
        root = tmp_path / str(count)
        open_writer(root).close()
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(live[:length])
        assert check(root).ok
        again = open_writer(root)
        assert again.last_seq == count
        assert again.close()
        assert [decode_stamp(line).seq for line in read((root / name).read_bytes())] == list(
            range(1, count + 1)
        )
        if kind == "sample":
            assert read_seqs(root) == list(range(1, count + 1))
    assert writer.close()
