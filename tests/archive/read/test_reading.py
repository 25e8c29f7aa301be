"""No record is lost or read twice, whatever the clock and the writer did."""

import heapq
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import MERGE, Journal, JournalEntry
from vmsonar_archive.read.reader import merge_segments, open_archive
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.archive import Depth, verify
from vmsonar_archive.write.rewrite import examine

from tests.making.archives import BOOT, START, check, codes, open_writer, read_seqs, record, segments


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def small_segments(root: Path, count: int, distance: float = 5) -> Path:
    """Two records in each."""
    for number in range(count):
        writer = open_writer(root)
        record(writer, 2, start=START + minutes(number * distance))
        writer.close()
    return root


def interleaved(root: Path) -> Path:
    """14:05, back to 13:55, 14:01 again: and the two segments of 14 h in one file."""
    writer = open_writer(root)
    for start in (5, -5, 1):
        record(writer, 5, start=START + minutes(start))
    writer.close()
    first, third = (path for path in segments(root) if "-14" in path.name)
    if third.name.endswith("-1.jsonl.zst"):
        first, third = third, first
    first.write_bytes(first.read_bytes() + third.read_bytes())
    third.unlink()
    path, gone = (str(one.relative_to(root)) for one in (first, third))
    with first.open("rb") as stream:
        sealed, _ = examine(stream, path)
    journal = Journal(root, lambda _point: None)
    journal.append(JournalEntry.of(MERGE, sealed, START, [gone]))
    journal.close()
    return root


def test_segments_that_interleave_are_read_in_order(tmp_path):
    root = interleaved(tmp_path)
    assert len(segments(root)) == 2
    assert read_seqs(root) == list(range(1, 16))
    assert check(root).ok


def test_segments_that_interleave_need_no_journal(tmp_path):
    (interleaved(tmp_path) / "journal.jsonl").unlink()
    assert read_seqs(tmp_path) == list(range(1, 16))


def test_a_copy_of_a_segment_is_not_read_twice(tmp_path):
    root = small_segments(tmp_path, 1)
    (path,) = segments(root)
    (path.parent / "sample-150000-2.jsonl.zst").write_bytes(path.read_bytes())
    assert read_seqs(root) == [1, 2]


def stamp(seq: int, run: str = "r") -> Stamp:
    return Stamp(time=START, seq=seq, run=run, boot=BOOT, boottime=0)


def test_a_record_is_its_run_boot_and_number():
    seen = RecordSet()
    assert all(seen.add(stamp(seq)) for seq in (5, 6, 9, 1, 8, 7, 2))
    assert not any(seen.add(stamp(seq)) for seq in (1, 2, 5, 6, 7, 8, 9))
    assert seen.add(stamp(5, run="another"))
    assert seen.add(stamp(3))
    assert seen.add(stamp(4))
    assert seen._ranges["r", BOOT] == ([1], [9])


def test_segments_are_opened_one_after_the_other_unless_they_overlap():
    opened: list[int] = []
    held: list[int] = []

    def segment(first: int, *seqs: int):
        def lines():
            opened.append(first)
            held.append(first)
            for seq in seqs:
                yield stamp(seq), b"%d" % seq
            held.remove(first)

        return first, lines

    found = []
    most = 0
    for line in merge_segments([segment(1, 1, 2), segment(3, 3, 6), segment(4, 4, 5, 7), segment(8, 8, 9)]):
        found.append(int(line))
        most = max(most, len(held))
    assert found == list(range(1, 10))
    assert opened == [1, 3, 4, 8]
    assert most == 2
    many = [segment(1, *range(1 + number, 400, 20)) for number in range(20)]
    assert sorted(map(int, merge_segments(many))) == list(heapq.merge(range(1, 400)))


def test_times_are_found_in_a_segment_during_which_the_clock_was_set_back(tmp_path):
    writer = open_writer(tmp_path)
    record(writer, 10, start=START + minutes(40), seconds=60)
    record(writer, 5, start=START + minutes(20), seconds=60)
    writer.close()
    with open_archive(tmp_path) as archive:
        (segment,) = archive.segments(layout.SAMPLE)
        assert segment.entry is not None
        assert (segment.entry.first, segment.entry.last) == (START + minutes(20), START + minutes(49))
        assert len(list(archive.samples(since=START + minutes(42)))) == 8
        assert len(list(archive.samples(until=START + minutes(30)))) == 5


def test_a_journal_with_its_times_the_wrong_way_round_hides_nothing(tmp_path):
    """As it was written before."""
    writer = open_writer(tmp_path)
    record(writer, 2, start=START)
    writer.close()
    journal = tmp_path / "journal.jsonl"
    first, last = '"first":"2026-11-16T14:00:00Z"', '"last":"2026-11-16T14:00:10Z"'
    text = journal.read_text()
    assert first in text
    assert last in text
    journal.write_text(text.replace(last, '"last":"2026-11-16T13:50:00Z"'))
    with open_archive(tmp_path) as archive:
        assert len(list(archive.samples(since=START))) == 2


def test_reading_goes_on_in_the_file_that_took_in_the_rest(tmp_path):
    root = small_segments(tmp_path, 12)
    writer = open_writer(root)
    with open_archive(root) as archive:
        samples = archive.samples()
        found = [next(samples).seq]
        writer.tidy()
        assert len(segments(root)) == 1
        found += [sample.seq for sample in samples]
        assert found == list(range(1, 25))
        assert archive.findings == []
    writer.close()


def test_a_merge_between_journal_and_listing_hides_nothing(tmp_path):
    root = small_segments(tmp_path, 12)
    writer = open_writer(root)
    with open_archive(root) as archive:
        (*_, last) = archive.segments(layout.SAMPLE)
        writer.tidy()
        assert [sample.seq for sample in archive.samples(since=START + minutes(30))] == list(range(13, 25))
        assert len(list(archive.lines(last))) == 2
        assert archive.findings == []
    writer.close()


def test_what_is_dropped_during_reading_is_no_damage(tmp_path):
    root = small_segments(tmp_path, 4, distance=24 * 60)
    with open_archive(root) as archive:
        samples = archive.samples()
        found = [next(samples).seq]
        drop(root, segments(root)[:3])
        found += [sample.seq for sample in samples]
        assert found == [1, 2, 7, 8]
        assert archive.findings == []


def drop(root: Path, paths: list[Path]) -> None:
    """As a writer drops: the journal's line first."""
    journal = Journal(root, lambda _point: None)
    for path in paths:
        entry = journal.ledger.current[str(path.relative_to(root))]
        journal.append(replace(entry, op="drop", reason="max_bytes"))
        path.unlink()
    journal.close()


def verify_during(root: Path, work: Callable[[], None], depth: Depth = Depth.FULL):
    """Verifies, with this done as soon as the first file is read; the other thread waits for it."""
    lock, left = threading.Lock(), [work]

    class Working(Progress):
        def advance(self, steps: int = 1) -> None:
            with lock:
                if left:
                    left.pop()()

    source = FolderSource(root)
    report = verify(source, depth, progress=Working())
    source.close()
    assert not left
    return report


def tidy(root: Path) -> None:
    writer = open_writer(root)
    writer.tidy()
    writer.close()


@pytest.mark.parametrize("depth", [Depth.FULL, Depth.DEEP])
@pytest.mark.parametrize(("mode", "samples"), [("merge", 24), ("recompress", 24), ("drop", 12)])
def test_verification_of_a_live_archive_raises_no_false_alarm(tmp_path, mode, samples, depth):
    root = small_segments(tmp_path, 12, distance=5 if mode == "merge" else 60)
    before = segments(root)
    report = verify_during(root, lambda: drop(root, before[:6]) if mode == "drop" else tidy(root), depth)
    assert report.ok, report.findings
    assert report.samples == samples
    assert len(segments(root)) == {"merge": 1, "recompress": 12, "drop": 6}[mode]
    assert check(root).ok


def test_damage_is_still_damage_while_a_writer_works(tmp_path):
    root = small_segments(tmp_path, 6, distance=60)
    first, *_, last = segments(root)
    last.write_bytes(last.read_bytes()[:-9])
    report = verify_during(root, lambda: drop(root, [first]))
    assert not report.ok
    assert codes(report) >= {"corrupt", "dropped"}
    wrong = {finding.path for finding in report.findings if finding.severity == "error"}
    assert wrong == {str(last.relative_to(root))}
