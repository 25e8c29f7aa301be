"""Whatever happens to the bytes of an archive, the rest of it stays readable, and verify says what happened."""

import io
import itertools
import random
from datetime import timedelta

from vmsonar_archive.format.frames import FrameWriter, read_frames
from vmsonar_archive.format.lines import decode_sample
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.verify.recover import recover

from tests.making.archives import (
    BOOT,
    START,
    check,
    codes,
    flip,
    make_archive,
    open_writer,
    read_seqs,
    record,
    segments,
)


def whole_lines(data: bytes) -> list[bytes]:
    return [line for found in read_frames(io.BytesIO(data)) for line in found.lines]


def test_every_length_of_a_live_segment_gives_back_every_whole_sample(tmp_path):
    writer = open_writer(tmp_path / "a")
    sizes = []
    for _ in range(65):
        record(writer, 1)
        sizes.append(writer.bytes_written)
    (path,) = segments(tmp_path / "a")
    live = path.read_bytes()
    writer.close()
    assert sizes[-1] == len(live)
    for length in range(len(live) + 1):
        lines = whole_lines(live[:length])
        # A frame's end belongs to the write of the next sample, hence "at least".
        assert len(lines) >= sum(size <= length for size in sizes)
        assert [decode_sample(line).seq for line in lines] == list(range(1, len(lines) + 1))


def test_every_cut_of_a_sealed_archive_is_read_and_reported(tmp_path):
    root = make_archive(tmp_path / "a", count=8)
    (path,) = segments(root)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        seqs = read_seqs(root)
        assert seqs == list(range(2, 2 + len(seqs)))
        report = check(root)
        assert not report.ok
        assert any(finding.path.endswith(path.name) for finding in report.findings)


def test_every_flipped_byte_is_reported_and_costs_no_other_frame(tmp_path):
    """Three frames of 60, 60 and 2 records; the flips of one frame leave the other two alone."""
    root = tmp_path / "a"
    writer = open_writer(root)
    for number in range(122):
        writer.append(START + timedelta(seconds=number), BOOT, number * 10**9, {})
    writer.close()
    (path,) = segments(root)
    borders = [found.frame.offset for found in read_frames(io.BytesIO(path.read_bytes()))] + [
        path.stat().st_size
    ]
    assert len(borders) == 4
    held = [set(range(1, 61)), set(range(61, 121)), {121, 122}]
    for offset in range(path.stat().st_size):
        restore = flip(path, offset, 1 << random.Random(offset).randrange(8))
        report = check(root)
        assert not report.ok, offset
        assert path.name in {finding.path.rpartition("/")[2] for finding in report.findings}
        seqs = set(read_seqs(root))
        for frame, (begin, end) in enumerate(itertools.pairwise(borders)):
            if not begin <= offset < end:
                assert held[frame] <= seqs, (offset, frame)
        restore()
    assert check(root).ok


def test_every_flipped_byte_of_a_sysinfo_segment_is_reported(tmp_path):
    root = make_archive(tmp_path / "a", count=1)
    (path,) = segments(root, "sysinfo")
    for offset in range(path.stat().st_size):
        restore = flip(path, offset)
        report = check(root)
        assert not report.ok, offset
        assert path.name in {finding.path.rpartition("/")[2] for finding in report.findings}
        restore()


def test_records_before_the_damage_in_a_live_frame_are_saved(tmp_path):
    root = make_archive(tmp_path / "a", count=40, processes=50)
    (path,) = segments(root)
    middle = path.stat().st_size // 2
    flip(path, middle)
    source = FolderSource(root)
    result = recover(source, tmp_path / "saved")
    source.close()
    seqs = read_seqs(tmp_path / "saved")
    assert 10 <= len(seqs) < 40
    assert seqs == list(range(2, 2 + len(seqs)))
    assert result.records == len(seqs) + 1
    assert [finding.code.value for finding in result.findings] == ["corrupt"]
    assert check(tmp_path / "saved").ok


def test_a_damaged_journal_is_named(tmp_path):
    root = make_archive(tmp_path / "a", count=5)
    journal = root / "journal.jsonl"
    assert len(journal.read_bytes().splitlines()) == 2
    flip(journal, 30)
    report = check(root)
    assert not report.ok
    assert "chain_broken" in codes(report)


def test_a_missing_and_an_unknown_file_are_named(tmp_path):
    root = make_archive(tmp_path / "a")
    (path,) = segments(root)
    path.unlink()
    (path.parent / "notes.txt").write_text("mine")
    report = check(root)
    found = {(finding.code.value, finding.severity.value) for finding in report.findings}
    assert found == {("missing", "error"), ("unlisted", "warning")}


def test_a_link_in_the_place_of_a_segment_is_refused(tmp_path):
    root = make_archive(tmp_path / "a")
    (path,) = segments(root)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    report = check(root)
    assert not report.ok
    assert "refused" in codes(report) or "corrupt" in codes(report)
    assert read_seqs(root) == []


def test_a_head_from_before_still_leads_to_the_present(tmp_path):
    root = make_archive(tmp_path / "a")
    head = check(root).head
    writer = open_writer(root)
    record(writer, 3)
    writer.close()
    assert check(root, head=head).ok
    report = check(root, head="f" * 64)
    assert codes(report) & {"head_differs"}
    assert not report.ok


def test_bombs_are_bounded():
    """A frame of endless zeros is given up as soon as a line grows beyond all bounds."""
    writer = FrameWriter(level=1, flush=False)
    bomb = b"".join(writer.add([b"0" * 2**20]) for _ in range(15)) + writer.end()
    assert len(bomb) < 10_000
    assert whole_lines(bomb * 20) == []


def test_garbage_is_not_a_segment():
    rng = random.Random(1)
    garbage = rng.randbytes(100_000) + b"\x28\xb5\x2f\xfd" * 5_000 + b"\0" * 100_000
    found = list(read_frames(io.BytesIO(garbage)))
    assert all(not part.lines and part.damage for part in found)
