"""The tail gives every record once and in order, whatever happens to the files under it."""

import random
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.format.layout import temporary
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.write.budget import Budget

from tests.forward.place import seqs_of
from tests.making.archives import START, flip, segments
from tests.making.forwarded import Recorder
from vmsonar.forward.feed import Feed, before, locate
from vmsonar.forward.state import Cursor, Mark
from vmsonar.forward.tail import LedgerView, Record, Tail


@pytest.fixture
def follow():
    tails = []

    def begin(root: Path, after: int = 0) -> Tail:
        tails.append(Tail(root, "sample", LedgerView(root), Taken(up_to=after)))
        return tails[-1]

    yield begin
    for tail in tails:
        tail.close()


def drain(tail: Tail) -> list[Record]:
    """Everything there is by now."""
    found: list[Record] = []
    while batch := list(tail.read()):
        found += batch
    return found


def new(records: list[Record]) -> list[int]:
    return [record.stamp.seq for record in records if not record.passed]


@pytest.fixture
def recorder(tmp_path: Path):
    recorder = Recorder(tmp_path / "archive")
    yield recorder
    recorder.close()


def test_each_sample_is_there_as_soon_as_it_is_written(recorder: Recorder, follow) -> None:
    tail = follow(recorder.root)
    for number in range(150):
        recorder.record(1)
        assert new(drain(tail)) == [number + 2], "sysinfo is record 1"
    assert drain(tail) == []


def test_across_hours_restarts_and_merges(recorder: Recorder, follow) -> None:
    tail, found = follow(recorder.root), []
    for step in range(12):
        recorder.record(100)
        if step % 3 == 1:
            found += new(drain(tail))
        if step % 4 == 2:
            recorder.restart()
            recorder.writer.tidy()
    found += new(drain(tail))
    assert found == seqs_of(recorder.root)
    assert len(found) == 1200


def test_merging_what_is_being_read(recorder: Recorder, follow) -> None:
    for _ in range(3):
        recorder.record(50)
        recorder.restart()
    recorder.time = START + timedelta(hours=3)
    tail = follow(recorder.root)
    reading = tail.read()
    first = [next(reading) for _ in range(30)]
    recorder.writer.tidy()
    found = new(first) + new(list(reading)) + new(drain(tail))
    assert found == seqs_of(recorder.root)
    assert len(found) == 150


def test_at_random(tmp_path: Path, follow) -> None:
    """Writing, rolling over, restarting, recompressing and reading in any order; a new tail now and then."""
    for seed in range(10):
        draw = random.Random(seed)
        recorder = Recorder(tmp_path / str(seed), processes=2)
        tail, found, position = follow(recorder.root), [], 0
        for _ in range(60):
            match draw.choice(("record", "record", "restart", "tidy", "jump", "read", "part", "again")):
                case "record":
                    recorder.record(draw.randrange(1, 80))
                case "restart":
                    recorder.restart()
                case "tidy":
                    recorder.writer.tidy()
                case "jump":
                    recorder.time += timedelta(minutes=draw.randrange(90))
                case "read":
                    found += new(drain(tail))
                case "part":
                    for _, record in zip(range(draw.randrange(50)), tail.read(), strict=False):
                        found += new([record])
                case "again":
                    position = found[-1] if found else 0
                    tail = follow(recorder.root, position)
        found += new(drain(tail))
        recorder.close()
        assert found == seqs_of(recorder.root), f"seed {seed}"


def test_a_merge_between_the_journal_and_the_listing_hides_nothing(
    recorder: Recorder, monkeypatch, follow
) -> None:
    """The files change after the journal was read: what seems to be missing must not be jumped over."""
    for _ in range(2):
        recorder.record(20)
        recorder.restart()
    recorder.time = START + timedelta(hours=2)
    recorder.record(5)
    tail = follow(recorder.root)
    found = new(list(tail.read()))
    assert len(found) == 20
    listed = tail.names
    monkeypatch.setattr(tail, "names", lambda: (recorder.writer.tidy(), listed())[1])
    found += new(drain(tail))
    assert found == seqs_of(recorder.root)


def test_a_merge_that_was_journalled_but_not_yet_put_in_place(tmp_path: Path, follow) -> None:
    class Cut(Exception):
        pass

    def fault(point: str) -> None:
        if point == "rewrite.before_rename":
            raise Cut

    recorder = Recorder(tmp_path / "archive", fault=fault)
    for _ in range(2):
        recorder.record(20)
        recorder.restart()
    recorder.time = START + timedelta(hours=2)
    expected = seqs_of(recorder.root)
    with pytest.raises(Cut):
        recorder.writer.tidy()
    first = segments(recorder.root)[0]
    assert (recorder.root / temporary(str(first.relative_to(recorder.root)))).exists()
    assert new(drain(follow(recorder.root))) == expected
    recorder.writer.close()


def test_going_on_teaches_what_was_passed(recorder: Recorder, follow) -> None:
    recorder.record(30)
    records = drain(follow(recorder.root, after=11))
    assert [record.stamp.seq for record in records if record.passed] == list(range(2, 12))
    assert new(records) == list(range(12, 32))


def test_what_retention_dropped_is_counted(tmp_path: Path, follow) -> None:
    recorder = Recorder(tmp_path / "archive", processes=30, budget=Budget(max_bytes=400_000, min_free=0))
    recorder.record(10)
    tail = follow(recorder.root)
    sent = new(drain(tail))[-1]
    while seqs_of(recorder.root)[0] < 2000:
        recorder.record(200)
        recorder.restart()
    recorder.close()
    records = drain(follow(recorder.root, sent))
    first = next(record for record in records if not record.passed)
    gone = [seq for seq in recorder.samples if sent < seq < first.stamp.seq]
    assert first.dropped_before == len(gone) > 1000
    assert sum(record.dropped_before for record in records) == first.dropped_before
    assert new(records) == seqs_of(recorder.root)


def test_a_deleted_file_is_counted_as_well(recorder: Recorder, follow) -> None:
    recorder.record(1000)
    recorder.close()
    middle = segments(recorder.root)[1]
    middle.unlink()
    records = drain(follow(recorder.root))
    assert sum(r.dropped_before for r in records) == 360
    assert len(new(records)) == 640


def test_damage_costs_a_frame_and_is_counted(recorder: Recorder, follow) -> None:
    recorder.record(800)
    recorder.close()
    whole = seqs_of(recorder.root)
    damaged = segments(recorder.root)[0]
    # The segment has six frames: not between two of them, where a checksum can be hit that nobody misses.
    flip(damaged, damaged.stat().st_size * 5 // 12)
    records = drain(follow(recorder.root))
    assert new(records) == seqs_of(recorder.root)
    missing = len(whole) - len(records)
    assert 0 < missing <= 60
    assert sum(record.unreadable_before for record in records) == missing


def test_a_number_that_was_used_twice(tmp_path: Path, follow) -> None:
    """A record was sent, then lost with the power; the next run gives its number to another one."""
    recorder = Recorder(tmp_path / "archive")
    recorder.record(20)
    run = recorder.writer.run
    recorder.restart()
    recorder.record(10)
    tail = follow(recorder.root)
    lost = Mark(seq=24, run=run, boot="b")
    assert locate(tail, lost) == 21, "the last record of that run which the archive holds"
    assert locate(tail, Mark(seq=15, run=run, boot="b")) == 15
    assert locate(tail, Mark(seq=25, run=recorder.writer.run, boot="b")) == 25
    assert locate(tail, Mark(seq=15, run="never seen", boot="b")) is None
    assert locate(tail, Mark()) == 0
    recorder.close()


def twice(root: Path) -> list[tuple[str, int]]:
    """An archive in which a run gave numbers again that an unsealed one has, as earlier versions did; its records."""
    recorder = Recorder(root)
    recorder.record(20)
    recorder.time += timedelta(hours=1)
    recorder.writer._next_seq = 5
    recorder.writer.run = "f" * 32
    recorder.record(30)
    recorder.close()
    with open_archive(root) as archive:
        return [(sample.run, sample.seq) for sample in archive.samples()]


def test_numbers_that_two_runs_have_given(tmp_path: Path, follow) -> None:
    everything = twice(tmp_path / "archive")
    assert len(set(everything)) == 50
    assert len({seq for _, seq in everything}) < 50
    found = [(record.stamp.run, record.stamp.seq) for record in drain(follow(tmp_path / "archive"))]
    assert sorted(found) == sorted(everything)


@pytest.mark.parametrize("form", ["old", "new"])
@pytest.mark.parametrize("sent", range(1, 50, 6))
def test_going_on_where_two_runs_have_given_the_same_numbers(tmp_path: Path, form: str, sent: int) -> None:
    """Wherever it stopped: what the cursor does not prove to be sent is sent, and in its new form nothing again."""
    root = tmp_path / "archive"
    everything = twice(root)
    identity = read_identity(root)
    cursor = Cursor(archive=identity.archive)
    passed = []

    def send(count: int) -> None:
        feed = Feed(root, identity, cursor, pytest.fail)
        for record in feed.records():
            if record is None or len(passed) >= count:
                break
            if not record.passed:
                if record.kind == "sample":
                    passed.append((record.stamp.run, record.stamp.seq))
                cursor.move(record.kind, Mark.of(record.stamp), record.up_to)
        feed.close()

    send(sent)
    cursor = msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
    if form == "old":
        cursor.taken.clear()
    send(1000)
    assert set(passed) == set(everything)
    assert form == "old" or len(passed) == len(everything)


def test_where_a_time_begins(recorder: Recorder, follow) -> None:
    recorder.record(800)
    tail = follow(recorder.root)
    assert before(tail, START) == 0
    since = START + timedelta(seconds=10 * 500)
    at = before(tail, since)
    later = follow(recorder.root, at)
    times = [record.stamp.time for record in drain(later) if not record.passed]
    assert times[0] == since
    assert len(times) == 300
