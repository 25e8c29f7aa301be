"""What people read at the end of a command, and the short forms in which they may ask."""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import UsageError
from vmsonar_archive.system.moments import on_the_day
from vmsonar_inspect.facts import units

from tests.daemon.running import NODE, daemon, stop
from tests.inspect.conftest import known_machine
from tests.making.machines import START, Load, Machine
from tests.parts import requires
from tests.real.terminal import Terminal
from vmsonar import cli

VMSONAR = [sys.executable, "-m", "vmsonar"]
PROCESSES = 'Entry("process", "vmsonar.collectors.process.collector")'


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known_machine().record(tmp_path_factory.mktemp("people") / "archive", 3600)


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(word) for word in arguments])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_time_is_one_of_the_recordings_day(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = shown(capsys, "inspect", archive, "--from", "08:20", "--to", "08:30")
    assert code == 0
    assert "2026-11-16 08:20 to 08:29 UTC" in out
    _, out, _ = shown(capsys, "inspect", archive, "--tz", "Europe/Berlin", "--from", "9:20", "--to", "9:30")
    assert "2026-11-16 09:20 to 09:29 CET" in out
    code, out, _ = shown(
        capsys, "sql", archive, "select count(*) from samples", "--from", "08:59:30", "--json"
    )
    assert code == 0
    assert re.search(r":[1-5]\b", out)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("23:55", "2026-11-15T23:55:00+00:00"),
        ("00:05", "2026-11-16T00:05:00+00:00"),
        ("12:00", "2026-11-16T12:00:00+00:00"),
        ("2026-11-01", "2026-11-01"),
    ],
)
def test_the_day_is_the_last_one_that_holds_the_time(text: str, meant: str) -> None:
    covered = datetime(2026, 11, 15, 23, 50, tzinfo=UTC), datetime(2026, 11, 16, 0, 10, tzinfo=UTC)
    assert on_the_day(text, UTC, lambda: covered) == meant


def test_a_time_needs_a_record() -> None:
    with pytest.raises(UsageError, match="needs a date"):
        on_the_day("11:20", UTC, lambda: (None, None))
    with pytest.raises(UsageError, match="23:59:59"):
        on_the_day("25:20", UTC, lambda: (START, START))


def test_nothing_left_says_what_there_is(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = shown(capsys, "inspect", archive, "--from", "2026-11-17")
    assert (code, out) == (1, "")
    assert err.startswith(
        "vmsonar: no samples from 2026-11-17 00:00:00 UTC on: the archive covers 2026-11-16"
    )
    code, _, err = shown(capsys, "inspect", archive, "sessions", "--user", "nobody")
    assert code == 1
    assert "no jobs of user nobody" in err
    assert "of anna, bert" in err or "of bert, anna" in err


def test_no_figure_is_written_in_powers_of_ten() -> None:
    assert units.grams(3.8e-08) == "<1 mg"
    assert units.grams(0.012) == "12 mg"
    assert units.grams(12.0) == "12 g"
    assert units.energy(5e-07) == "<0.001 Wh"
    assert "e-" not in units.hours(2e-06)
    assert units.energy(900.0, like=43 * 3600.0) == "0.2 Wh", "one unit per sentence"


@requires("tmux")
def test_a_query_with_many_columns_has_a_field_per_line(archive: Path) -> None:
    query = "select * from job_usage order by cpu_seconds desc limit 2"
    with Terminal([*VMSONAR, "sql", str(archive), query], 80, 200) as terminal:
        text = terminal.until("[exit 0]")
    assert "-- row 2" in text
    assert re.search(r"^user_name +anna$", text, re.M)
    with Terminal(
        [*VMSONAR, "sql", str(archive), "select user_name, pgid from job_usage"], 80, 40
    ) as terminal:
        assert "-- row" not in terminal.until("[exit 0]"), "what fits is a table"


@requires("tmux")
def test_a_bundle_ends_in_one_line_and_programs_get_the_path(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Terminal([*VMSONAR, "bundle", "--archive", str(archive)], 200, 20, tmp_path) as terminal:
        text = terminal.until("[exit 0]")
    (bundle,) = tmp_path.glob("*.tar")
    assert re.fullmatch(r"vm-one_20261116T0900_[0-9a-f]{8}\.tar", bundle.name)
    line = rf"bundle of \d+ files, [\d.]+ [KM]iB: {bundle.name} \(next: vmsonar verify {bundle.name}\)"
    assert re.match(line, text)
    code, out, _ = shown(capsys, "bundle", "--archive", archive, "-o", tmp_path / "b.tar")
    assert (code, out) == (0, f"{tmp_path}/b.tar\n")


def test_derive_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Machine(loads=[Load(100, "work")]).record(tmp_path / "archive", 60)
    code, out, _ = shown(capsys, "derive", "--archive", root)
    assert code == 0
    assert re.fullmatch(
        rf"tables of 1 day, [\d.]+ [KM]iB: {root} \(next: vmsonar inspect {root}\)", out.splitlines()[-1]
    )


def test_after_a_planned_end_status_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(tmp_path / "archive", "--interval=100ms", entries=(NODE, PROCESSES)) as process:
        text = stop(process)
    assert "cannot see here" not in str(text), "what is optional is for doctor"
    code, out, _ = shown(capsys, "status", "--archive", tmp_path / "archive")
    assert code == 1
    assert "stopped as asked, 20" in out
    assert "NOT HEALTHY" not in out
    assert "it stopped as asked: start it with" in out


def test_the_story_of_a_job_groups_its_programs(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workers = Machine(loads=[Load(100, "make", begin=0, cores=4.0, workers=(1.0,) * 24)])
    root = workers.record(archive.parent / "workers", 300)
    _, out, _ = shown(capsys, "inspect", root, "--job", "100")
    assert re.search(r"^make \u00d7 24 +\d", out, re.M)
    assert "Processes (20 busiest of 24)" in out
    assert "machine waited for CPU" in out
    assert "\nwaited for" not in out, "whose waiting it is stands before it"
