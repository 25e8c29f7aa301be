"""Overlaps, clones, reused names, damage and time frames: nothing is counted twice, nothing is mixed up."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.parquet.derive import derive_day, derive_due
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import START, USAGE, Job, Machine, make, make_days


def ask(paths: list[Path], query: str = USAGE, **settings: object) -> list[tuple]:
    with open_tables(paths, **settings) as tables:  # type: ignore[arg-type]
        return tables.sql(query).fetchall()


def test_overlapping_copies_count_once(tmp_path: Path) -> None:
    machine = make(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "early")
    machine.start_daemon()
    machine.run(30)
    machine.stop_daemon()
    whole = ask([tmp_path / "whole"])
    assert whole[0][2:] == (58, 2.0 * (700 - 123))
    assert ask([tmp_path / "early", tmp_path / "whole"]) == whole
    assert ask([tmp_path / "whole", tmp_path / "early"]) == whole
    assert ask([tmp_path]) == whole


def test_a_hole_in_one_copy_is_filled_from_the_other(tmp_path: Path) -> None:
    make(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    for segment in (tmp_path / "damaged").glob("2026/*/*/sample-*"):
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0xFF
        segment.write_bytes(content)
    assert ask([tmp_path / "damaged", tmp_path / "whole"]) == ask([tmp_path / "whole"])


def test_machines_of_one_name_stay_apart(tmp_path: Path) -> None:
    for number in range(2):
        make(tmp_path / str(number), machine_id=f"{number:032x}", hostname="vm")
    assert [row[1:] for row in ask([tmp_path])] == [(20, 28, 554.0)] * 2
    assert len({row[0] for row in ask([tmp_path])}) == 2


def test_a_copied_archive_that_both_machines_went_on_with(tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    second = Machine(tmp_path / "second", boot="99999999-1111-2222-3333-444444444444", uptime=500.0)
    second.jobs = [Job(20, start=505.0, end=1e9, cores=1.0)]
    for machine in (first, second):
        machine.start_daemon()
        machine.run(10)
        machine.stop_daemon()
    rows = ask([tmp_path], "SELECT boot, samples, round(cpu_seconds, 3) FROM job_usage ORDER BY ALL")
    assert [row[1:] for row in rows] == [(38, 2.0 * (500 - 123)), (10, 90.0)]


def test_one_that_is_damaged_is_named_and_the_others_answer(tmp_path: Path) -> None:
    for number in range(5):
        make(tmp_path / str(number), machine_id=f"{number:032x}")
    (tmp_path / "3" / "archive.json").write_bytes(b"not JSON")
    with open_tables([tmp_path]) as tables:
        assert len(tables.sql("SELECT DISTINCT archive FROM samples").fetchall()) == 4
        assert [str(tmp_path / "3") in finding.path for finding in tables.findings] == [True]


def test_damage_inside_is_told_each_time(tmp_path: Path) -> None:
    make(tmp_path / "a")
    segment = next((tmp_path / "a").glob("2026/*/*/sample-*"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    for _ in range(2):
        with open_tables([tmp_path / "a"]) as tables:
            tables.sql("SELECT count(*) FROM samples").fetchall()
            assert [finding.code for finding in tables.findings] == ["corrupt"]


@pytest.mark.parametrize("derived", ["none", "first", "both"])
def test_a_night_is_bridged(tmp_path: Path, derived: str) -> None:
    root = tmp_path / "a"
    make_days(root)
    if derived != "none":
        list(derive_due(root, datetime(2026, 11, 16 if derived == "first" else 17, 1, tzinfo=UTC)))
        assert (root / "2026/11/16/process.parquet").exists() is (derived == "both")
    rows = ask(
        [root], "SELECT pgid, cpu_seconds, cores_peak, samples, write_bytes FROM job_usage ORDER BY pgid"
    )
    assert rows == [
        (20, pytest.approx(2.0 * (1190 - 33)), pytest.approx(2.0), 116, 1000 * (1190 - 33)),
        (30, pytest.approx(1190 - 593), pytest.approx(1.0), 60, 0),
    ]


def test_tables_stand_in_when_the_records_were_dropped(tmp_path: Path) -> None:
    root = tmp_path / "a"
    make_days(root)
    before = ask([root])
    list(derive_due(root, datetime(2026, 11, 17, 1, tzinfo=UTC)))
    for segment in root.glob("2026/*/*/*.jsonl.zst"):
        segment.unlink()
    assert ask([root]) == before


def test_damaged_tables_are_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "a"
    make_days(root)
    before = ask([root])
    list(derive_due(root, datetime(2026, 11, 17, 1, tzinfo=UTC)))
    (root / "2026/11/15/samples.parquet").write_bytes(b"PAR1 no more")
    with open_tables([root]) as tables:
        assert tables.sql(USAGE).fetchall() == before
        assert [finding.code for finding in tables.findings] == ["corrupt"]


@pytest.mark.parametrize("derived", [False, True])
def test_a_time_frame(tmp_path: Path, derived: bool) -> None:
    root = tmp_path / "a"
    make_days(root)
    if derived:
        list(derive_due(root, datetime(2026, 11, 17, 1, tzinfo=UTC)))
    since = datetime(2026, 11, 15, 23, 55, tzinfo=UTC)
    frame = {"since": since, "until": since + timedelta(seconds=100)}
    rows = ask([root], "SELECT pgid, cpu_seconds, samples, command FROM job_usage", **frame)
    assert rows == [(20, pytest.approx(2.0 * 90), 10, "python3 train.py")]
    assert ask([root], "SELECT count(*) FROM node", **frame) == [(10,)]


def test_a_live_archive(tmp_path: Path) -> None:
    machine = make(tmp_path / "a", samples=5)
    machine.start_daemon()
    machine.run(5)
    assert ask([tmp_path / "a"], "SELECT count(*) FROM samples") == [(10,)]
    machine.run(5)
    assert ask([tmp_path / "a"], "SELECT count(*) FROM samples") == [(15,)]
    machine.stop_daemon()


def test_what_is_derived_is_journalled_by_the_next_writer(tmp_path: Path) -> None:
    machine = make(tmp_path / "a")
    derive_day(tmp_path / "a", START.date())
    machine.start_daemon()
    machine.stop_daemon()
    journal = (tmp_path / "a" / "journal.jsonl").read_text()
    assert '"op":"derive","path":"2026/11/16/process.parquet"' in journal
