"""What the writer does behind its appending never costs a record, whatever fails at which moment."""

import errno
import os
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import JournalEntry, Ledger
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.system import files
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.losses import AppendFailed
from vmsonar_archive.write.segment import SegmentWriter

from tests.making.archives import BOOT, START, check, make_archive, open_writer, read_seqs, record, segments
from tests.real.wait import wait_until


def small_segments(root: Path, count: int) -> None:
    """So many segments in one hour, as restarts leave them."""
    for number in range(count):
        writer = open_writer(root, now=lambda: START)
        record(writer, 1, start=START + timedelta(seconds=10 * number))
        writer.close()


def settle(writer) -> None:
    deadline = time.monotonic() + 20
    while not writer._house.sync_thread.idle and time.monotonic() < deadline:
        time.sleep(0.002)


def test_repairing_leaves_the_childs_work_alone(tmp_path):
    """A failing sync asks for repairs while the child writes; neither its file nor its sources may go."""
    small_segments(tmp_path, 8)
    writer = open_writer(tmp_path)
    deadline = time.monotonic() + 30
    while len(segments(tmp_path)) > 1 and time.monotonic() < deadline:
        writer._house.leftovers = writer._house.child is not None
        writer.maintain()
        time.sleep(0.005)
    writer.close()
    assert len(segments(tmp_path)) == 1
    assert read_seqs(tmp_path) == list(range(1, 9))
    assert check(tmp_path).ok


def test_sources_stay_until_what_took_them_in_is_whole(tmp_path):
    small_segments(tmp_path, 4)
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    writer = open_writer(tmp_path)
    writer.tidy()
    writer.close()
    (merged,) = segments(tmp_path)
    for path in segments(tmp_path.with_name("copy")):
        shutil.copy(path, merged.parent)
    merged.write_bytes(b"damaged")
    open_writer(tmp_path).close()
    assert len(segments(tmp_path)) == 4


def test_a_segment_being_created_is_not_taken_for_a_leftover(tmp_path, monkeypatch):
    """The repair runs between the creation of the file and its first record."""
    writer = open_writer(tmp_path)
    record(writer, 3)
    plain = files.create

    def and_repair(path: Path, *arguments: object):
        file = plain(path, *arguments)
        writer._house.sync_thread.run(writer._house.seal_leftovers)
        return file

    monkeypatch.setattr(files, "create", and_repair)
    record(writer, 2, start=START + timedelta(hours=1))
    monkeypatch.undo()
    writer.close()
    assert read_seqs(tmp_path) == [1, 2, 3, 4, 5]


def test_an_hour_that_comes_twice_is_not_merged_around_what_lies_between(tmp_path):
    for minutes in (5, -5, 1):
        writer = open_writer(tmp_path)
        record(writer, 5, start=START + timedelta(minutes=minutes))
        writer.close()
    writer = open_writer(tmp_path)
    writer.tidy()
    writer.close()
    assert read_seqs(tmp_path) == list(range(1, 16))


def test_the_sync_thread_outlives_a_vanished_folder(tmp_path):
    root = tmp_path / "a"
    writer = open_writer(root)
    record(writer, 2)
    away = root.rename(tmp_path / "away")
    for number in range(15):
        with pytest.raises(AppendFailed):
            record(writer, 1, start=START + timedelta(hours=1 + number))
        writer.maintain()
    settle(writer)
    away.rename(root)
    record(writer, 2, start=START + timedelta(hours=20))
    assert writer.close()
    assert writer.durable_seq == 4
    open_writer(root).close()
    assert read_seqs(root) == [1, 2, 3, 4]
    assert check(root).ok


def test_days_go_while_the_writer_runs(tmp_path):
    today = [START]
    writer = open_writer(
        tmp_path, now=lambda: today[0], budget=Budget(max_bytes=2**30, max_days=2, min_free=0)
    )
    for day in range(6):
        today[0] = START + timedelta(days=day)
        record(writer, 2, start=today[0])
        settle(writer)
        writer.maintain()
        settle(writer)
    writer.close()
    assert sorted({path.parent.name for path in segments(tmp_path)}) == ["19", "20", "21"]


def test_one_wrong_clock_does_not_make_everything_old(tmp_path):
    make_archive(tmp_path, count=5)
    budget = Budget(max_bytes=2**30, max_days=30, min_free=0)
    open_writer(tmp_path, now=lambda: datetime(2099, 1, 1, tzinfo=UTC), budget=budget).close()
    assert len(read_seqs(tmp_path)) == 5


def test_dropping_what_would_not_help_is_left_undone(tmp_path):
    make_archive(tmp_path, count=5)
    open_writer(tmp_path, budget=Budget(max_bytes=2**30, min_free=2**62)).close()
    assert len(read_seqs(tmp_path)) == 5


def test_failed_ticks_leave_no_empty_files(tmp_path, monkeypatch):
    writer = open_writer(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SegmentWriter, "_write", full)
    for number in range(20):
        with pytest.raises(AppendFailed):
            record(writer, 1, start=START + timedelta(hours=number))
    settle(writer)
    monkeypatch.undo()
    writer.close()
    assert segments(tmp_path) == []


def test_a_full_disk_can_still_journal_a_drop(tmp_path, monkeypatch):
    """The reserve in the lock file is given back, and the line is written."""
    make_archive(tmp_path, count=5)
    writer = open_writer(tmp_path)
    lock = tmp_path / layout.LOCK_FILE
    assert lock.stat().st_size == 64 * 1024
    plain = writer._house.journal.append

    def full_until_the_reserve_is_used(entry: JournalEntry) -> None:
        if lock.stat().st_size > 32:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(entry)

    monkeypatch.setattr(writer._house.journal, "append", full_until_the_reserve_is_used)
    writer._house.upkeep._drop(next(iter(writer._house.journal.ledger.current.values())), "min_free")
    assert len(writer._house.journal.ledger.dropped) == 1
    writer.close()


def test_what_was_not_kept_is_not_called_durable_and_is_told(tmp_path):
    failing = [False]

    def fdatasync(descriptor: int) -> None:
        if failing[0]:
            failing[0] = False
            raise OSError(errno.EIO, "Input/output error")
        os.fdatasync(descriptor)

    writer = open_writer(tmp_path, fdatasync=fdatasync)
    record(writer, 1)
    wait_until(lambda: writer.durable_seq == 1, 20, "the first sample", every=0.001)
    failing[0] = True
    record(writer, 1, start=START + timedelta(seconds=10))
    wait_until(lambda: writer.begins_segment(START + timedelta(seconds=20)), 20, "the failure", every=0.001)
    assert writer.durable_seq == 1
    record(writer, 1, start=START + timedelta(seconds=20))
    for _ in range(15):
        writer.maintain()
        settle(writer)
    writer.close()
    open_writer(tmp_path).close()
    assert read_seqs(tmp_path) == [1, 2, 3]
    with open_archive(tmp_path) as archive:
        gaps = [(gap.reason, gap.lost) for sample in archive.samples() for gap in sample.gap]
    assert gaps == [("io_error", None)]


def test_numbers_are_not_used_again_after_damage(tmp_path):
    writer = open_writer(tmp_path / "live")
    record(writer, 50)
    shutil.copytree(tmp_path / "live", tmp_path / "a")
    writer.close()
    (path,) = segments(tmp_path / "a")
    path.write_bytes(b"\xff" * 100 + path.read_bytes()[100:])
    writer = open_writer(tmp_path / "a")
    assert writer.last_seq >= 50
    writer.close()


def test_a_file_that_cannot_be_read_does_not_keep_the_writer_from_starting(tmp_path, monkeypatch):
    writer = open_writer(tmp_path / "live")
    record(writer, 5)
    shutil.copytree(tmp_path / "live", tmp_path / "a")
    writer.close()
    plain = Path.open

    def broken(path: Path, *arguments: object, **settings: object):
        if path.name.startswith("sample-"):
            raise OSError(errno.EIO, "Input/output error")
        return plain(path, *arguments, **settings)

    monkeypatch.setattr(Path, "open", broken)
    writer = open_writer(tmp_path / "a")
    monkeypatch.undo()
    assert writer.last_seq >= 1
    record(writer, 2, start=START + timedelta(hours=1))
    writer.close()
    open_writer(tmp_path / "a").close()
    assert check(tmp_path / "a").ok


def test_a_missing_file_does_not_stop_the_rest_from_being_written_anew(tmp_path):
    for hour in range(3):
        writer = open_writer(tmp_path)
        record(writer, 3, start=START + timedelta(hours=hour))
        writer.close()
    segments(tmp_path)[0].unlink()
    writer = open_writer(tmp_path)
    writer.tidy()
    writer.close()
    operations = [
        entry.op
        for entry in Ledger.of((tmp_path / "journal.jsonl").read_bytes().splitlines()).current.values()
    ]
    assert sorted(operations) == ["recompress", "recompress", "seal"]


def test_a_child_that_cannot_be_started_is_no_reason_to_stop(tmp_path, monkeypatch):
    make_archive(tmp_path, count=3)
    writer = open_writer(tmp_path)

    def refused(_work: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(writer._house.upkeep, "start", refused)
    for _ in range(25):
        writer.maintain()
    record(writer, 1)
    writer.close()
    assert len(read_seqs(tmp_path)) == 4


def test_half_a_journal_line_that_could_not_be_undone_is_undone_later(tmp_path):
    writer = open_writer(tmp_path)
    record(writer, 2)
    os.write(writer._house.journal._descriptor, b'{"op":"se')
    writer.close()
    assert check(tmp_path).ok


@pytest.mark.parametrize("path", ["../victim", "/etc/passwd", "2026/11/16/../../../../victim", "victim"])
def test_a_journal_cannot_name_files_that_are_not_the_archives(tmp_path, path):
    root = make_archive(tmp_path / "a", count=2)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    line = (
        b'{"op":"drop","path":"%b","time":"2026-11-16T00:00:00Z","bytes":1,"sha256":"00"}\n' % path.encode()
    )
    with (root / "journal.jsonl").open("ab") as journal:
        journal.write(line)
    open_writer(root).close()
    assert victim.read_text() == "mine"
    assert not check(root).ok


def test_tables_that_somebody_derives_are_left_alone(tmp_path):
    root = make_archive(tmp_path, count=2)
    temporary = segments(root)[0].parent / ".process.parquet.tmp"
    temporary.write_bytes(b"half a table")
    open_writer(root).close()
    assert temporary.exists()


def test_an_interrupted_line_ends_its_segment(tmp_path):
    writer = open_writer(tmp_path)
    record(writer, 2)
    with pytest.raises(TypeError):
        writer.append(START + timedelta(seconds=60), BOOT, 1, {"process": [b'{"pid":1}', None]})  # type: ignore[list-item]
    record(writer, 2, start=START + timedelta(seconds=90))
    for _ in range(15):
        writer.maintain()
        settle(writer)
    writer.close()
    assert read_seqs(tmp_path) == [1, 2, 3, 4]


def test_the_archive_can_be_opened_again_when_a_stalled_disk_has_answered(tmp_path):
    entered, answered = threading.Event(), threading.Event()

    def fdatasync(_descriptor: int) -> None:
        entered.set()
        answered.wait(60)

    writer = open_writer(tmp_path, fdatasync=fdatasync)
    record(writer, 2)
    assert entered.wait(20)
    assert not writer.close()
    answered.set()
    writer._house.sync_thread._thread.join(10)
    open_writer(tmp_path).close()
    assert read_seqs(tmp_path) == [1, 2]
