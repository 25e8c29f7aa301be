"""Who may write, when segments end, what clocks and clones do, and how the budget is kept."""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.journal import Ledger
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.read.reader import last_sample, open_archive
from vmsonar_archive.records import ProcessInfoRow
from vmsonar_archive.system.errors import FormatError, Locked
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.lock import holder

from tests.making.archives import (
    BOOT,
    NODE,
    START,
    check,
    codes,
    make_archive,
    open_writer,
    read_seqs,
    record,
    rows,
    segments,
)


def ledger(root: Path) -> Ledger:
    return Ledger.of((root / "journal.jsonl").read_bytes().splitlines())


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path):
    writer = open_writer(tmp_path)
    program = (
        "import sys; from pathlib import Path; from tests.making.archives import open_writer\n"
        "from vmsonar_archive.system.errors import Locked\n"
        "try: open_writer(Path(sys.argv[1]))\n"
        "except Locked as error: print(error); sys.exit(error.exit_code)"
    )
    second = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert second.returncode == 3
    assert f"is being written by process {holder(tmp_path)}" in second.stdout
    writer.close()
    assert holder(tmp_path) is None
    third = open_writer(tmp_path)
    with pytest.raises(Locked):
        open_writer(tmp_path)
    third.close()


def test_a_segment_ends_with_its_hour(tmp_path):
    root = make_archive(tmp_path, count=400)
    assert [path.name for path in segments(root)] == [
        "sample-140000-2.jsonl.zst",
        "sample-150000-362.jsonl.zst",
    ]
    assert check(root).samples == 400


def test_restarts_number_on(tmp_path):
    for _ in range(3):
        writer = open_writer(tmp_path)
        record(writer, 4)
        writer.close()
    assert read_seqs(tmp_path) == list(range(1, 13))
    last = last_sample(tmp_path)
    assert last is not None
    assert last.seq == 12


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(days=1), timedelta(days=-400)])
def test_a_clock_that_steps_overwrites_nothing_and_loses_nothing(tmp_path, step):
    writer = open_writer(tmp_path)
    record(writer, 5)
    record(writer, 5, start=START + step)
    record(writer, 5)
    writer.close()
    assert len(segments(tmp_path)) == 3
    assert read_seqs(tmp_path) == list(range(1, 16))
    assert check(tmp_path).ok


def test_a_clone_begins_a_new_archive_and_leaves_the_old_as_it_was(tmp_path):
    make_archive(tmp_path, count=5)
    before = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with open_archive(tmp_path) as archive:
        old = archive.identity
    writer = open_writer(tmp_path, node=NodeIdentity(machine_id="f" * 32))
    record(writer, 2)
    writer.close()
    assert read_seqs(tmp_path) == [1, 2]
    aside = tmp_path / "earlier" / old.archive
    moved = {path.relative_to(aside): path.read_bytes() for path in aside.rglob("*") if path.is_file()}
    del before[Path("writer.lock")]
    assert moved == before
    assert check(aside).ok
    assert check(aside).samples == 5


def test_another_instance_id_is_another_machine_but_an_unknown_one_is_not(tmp_path):
    def archive_of(instance: str | None) -> str:
        writer = open_writer(tmp_path, node=NodeIdentity(machine_id=NODE.machine_id, instance_id=instance))
        writer.close()
        return writer.identity.archive

    first = archive_of("i-1")
    assert archive_of("i-1") == first
    assert archive_of(None) == first
    assert archive_of("i-2") != first


def test_a_format_from_the_future_is_refused_in_words(tmp_path):
    make_archive(tmp_path, count=2)
    path = tmp_path / "archive.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(FormatError, match="written in format 2, this vmsonar reads up to 1: install a newer"):
        open_archive(tmp_path)
    with pytest.raises(FormatError):
        open_writer(tmp_path)
    report = check(tmp_path)
    assert not report.ok
    assert codes(report) == {"newer_format"}


def wait_until_idle(writer) -> None:
    deadline = time.monotonic() + 10
    while not writer._house.sync_thread.idle and time.monotonic() < deadline:
        time.sleep(0.001)


def test_the_budget_is_kept_within_a_day_and_told(tmp_path):
    limit = 5_000_000
    writer = open_writer(tmp_path, budget=Budget(max_bytes=limit, min_free=0))
    largest = 0
    for batch in range(60):
        # Numbers that do not repeat, so that the archive grows quickly.
        for number in range(100):
            body = [
                b'{"pid":%d,"start_ticks":%d}' % (pid, hash((batch, number, pid)) % 10**15)
                for pid in range(200)
            ]
            time_ = START + timedelta(seconds=batch * 100 + number)
            writer.append(time_, "boot", (batch * 100 + number) * 10**9, {"process": body})
            writer.maintain()
        # A hundred samples in a few milliseconds: only here must the sync thread be given the time to follow.
        for _ in range(3):
            wait_until_idle(writer)
            writer.maintain()
        wait_until_idle(writer)
        largest = max(largest, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    writer.close()
    one_segment = limit // 16
    assert limit * 0.8 < largest <= limit + one_segment
    report = check(tmp_path)
    assert report.ok
    assert "dropped" in codes(report)
    book = ledger(tmp_path)
    assert book.broken_at is None
    assert {entry.reason for entry in book.dropped} == {"max_bytes"}
    first_kept = min(entry.first_seq or 0 for entry in book.current.values())
    assert max(entry.last_seq or 0 for entry in book.dropped) < first_kept


def test_old_days_go_when_max_days_says_so(tmp_path):
    for day in range(5):
        writer = open_writer(tmp_path)
        record(writer, 3, start=START - timedelta(days=day))
        writer.close()
    writer = open_writer(tmp_path, budget=Budget(max_bytes=2**30, max_days=2, min_free=0))
    writer.close()
    assert sorted({path.parent.name for path in segments(tmp_path)}) == ["15", "16"]
    assert {entry.reason for entry in ledger(tmp_path).dropped} == {"max_days"}
    assert check(tmp_path).ok


def test_an_hours_small_segments_become_one(tmp_path):
    """What `vmsonar sample` run by cron leaves: a segment per minute."""
    for minute in range(10):
        writer = open_writer(tmp_path, now=lambda: START)
        record(writer, 1, start=START + timedelta(minutes=minute))
        writer.close()
    assert len(segments(tmp_path)) == 10
    writer = open_writer(tmp_path, now=lambda: START + timedelta(hours=1))
    writer.tidy()
    writer.close()
    assert [path.name for path in segments(tmp_path)] == ["sample-140000-1.jsonl.zst"]
    assert read_seqs(tmp_path) == list(range(1, 11))
    assert check(tmp_path).ok


def test_finished_hours_are_recompressed_by_a_child(tmp_path):
    root = make_archive(tmp_path, count=100, processes=100)
    (path,) = segments(root)
    before = path.stat().st_size
    writer = open_writer(root)
    deadline = time.monotonic() + 30
    while path.stat().st_size == before and time.monotonic() < deadline:
        writer.maintain()
        time.sleep(0.01)
    writer.close()
    assert path.stat().st_size < before
    assert len(read_seqs(root)) == 100
    assert check(root).ok
    assert ledger(root).current[str(path.relative_to(root))].op == "recompress"


LONG = ProcessInfoRow(series_id="", pid=1, start_ticks=1, command="x" * 2000)


@pytest.mark.parametrize(
    ("filler", "count"),
    [
        (LONG, 12_000),  # bytes
        (replace(LONG, command="{" * 2000), 200),  # what could be objects
        (replace(LONG, command="," * 2000), 700),  # what could be values
    ],
)
def test_what_no_line_can_hold_is_left_out_and_the_rest_recorded(tmp_path, filler, count):
    writer = open_writer(tmp_path)
    small = encode_row(ProcessInfoRow(series_id="", pid=2, start_ticks=1))
    given = rows(1, 3) | {"process_info": [small, *[encode_row(filler)] * count]}
    for number in range(2):
        writer.append(START + timedelta(seconds=number), BOOT, number, given)
    assert writer.close()
    with open_archive(tmp_path) as archive:
        samples = list(archive.samples())
    assert len(samples) == 2
    for sample in samples:
        assert len(sample.process) == 3
        kept = len(sample.process_info)
        assert count / 3 < kept < count
        assert sample.process_info[0].pid == 2
        (gap,) = sample.gap
        assert (gap.collector, gap.reason) == ("archive", "too_large")
        assert f"{count + 1 - kept} of {count + 1} rows of process_info" in gap.detail
    assert codes(check(tmp_path)) == set()


def test_a_large_sample_that_a_line_can_hold_is_whole(tmp_path):
    writer = open_writer(tmp_path)
    writer.append(START, BOOT, 1, {"process_info": [encode_row(LONG)] * 7000})
    assert writer.close()
    with open_archive(tmp_path) as archive:
        (sample,) = archive.samples()
    assert (len(sample.process_info), sample.gap) == (7000, [])
