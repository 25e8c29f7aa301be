"""Every option of `vmsonar inspect` does what it says, in every view that it concerns."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from vmsonar_archive.system.errors import UsageError
from vmsonar_archive.system.moments import parse_moment, zone_of
from vmsonar_inspect.facts.programs import load_programs
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened
from vmsonar_inspect.show.answers import csv_rows, json_rows
from vmsonar_inspect.show.order import SORTS, VIEWS

from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id, gpu_id
from vmsonar.cli import run

HOUR = 3600


def busy_machine() -> Machine:
    """Three jobs, each the first by another measure, in two containers and on two GPUs."""
    boxes = [Box(box_id(1), "zeta", user="anna"), Box(box_id(2), "alpha", user="bert")]
    cards = gpu_id(0), gpu_id(1)
    loads = [
        Load(300, "python3 fit.py", user="anna", begin=-500, end=600, cores=3.0, memory=2 * GIB, read=9 * MIB,
             container=boxes[0].container_id, gpu={cards[0]: 10.0}),
        Load(100, "./scan --deep", user="bert", begin=100, cores=1.0, memory=9 * GIB, read=1 * MIB, write=5 * MIB,
             container=boxes[1].container_id),
        Load(200, "timeout 5 ./render", user="bert", begin=10, cores=0.5, memory=1 * GIB, read=2 * MIB, write=1 * MIB,
             gpu={cards[1]: 80.0}),
    ]  # fmt: skip
    return Machine(loads=loads, boxes=boxes, gpus=cards, package_watts=80.0)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_machine().record(tmp_path_factory.mktemp("options") / "archive", HOUR)


def nothing(capsys: pytest.CaptureFixture[str], *arguments: object) -> bool:
    """Whether a wish leaves no row, and that is told."""
    code = run(["inspect", *map(str, arguments), "--json"])
    document = json.loads(capsys.readouterr().out)
    return code == 1 and document["rows"] == [] and document["nothing"].startswith("no jobs")


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert run(["inspect", *map(str, arguments), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def cells(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, str]]:
    assert run(["inspect", *map(str, arguments), "--csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


ORDERS = {
    "cpu": ["100", "300", "200"],
    "memory": ["100", "300", "200"],
    "gpu": ["200", "300", "100"],
    "runtime": ["200", "100", "300"],
    "start": ["300", "200", "100"],
    "session": ["300", "200", "100"],
    "read": ["200", "300", "100"],
    "write": ["100", "200", "300"],
    "name": ["100", "200", "300"],
}


@pytest.fixture(scope="module")
def inspection(archive: Path) -> Iterator[Inspection]:
    with opened([archive], InspectionSettings()) as opened_once:
        yield opened_once


def listed(inspection: Inspection, view: str, sort: str | None, top: int | None = None) -> list[Any]:
    """What --json lists; --csv lists the same."""
    _, found = json_rows(inspection, view, UTC, sort, top)
    if view != "advice":
        assert csv_rows(inspection, view, UTC, sort, top) == found
    return found


@pytest.mark.parametrize("key", SORTS)
def test_sort(key: str, inspection: Inspection) -> None:
    found = listed(inspection, "jobs", key)
    if key == "energy":
        joules = [job.energy.joules for job in found]
        assert joules == sorted(joules, reverse=True)
        assert joules[0] > joules[-1]
    else:
        assert [job.job for job in found] == ORDERS[key]


def test_sort_of_other_lists(inspection: Inspection) -> None:
    assert [box.name for box in listed(inspection, "containers", "name")] == ["alpha", "zeta"]
    assert [box.name for box in listed(inspection, "containers", "read")] == ["zeta", "alpha"]
    assert [user.name for user in listed(inspection, "users", "gpu")] == ["bert", "anna"]
    assert [gpu.index for gpu in listed(inspection, "gpus", "gpu")] == [1, 0]


@pytest.mark.parametrize(
    "view", [view for view in VIEWS if view not in ("summary", "gaps", "events", "shares", "links", "units")]
)
def test_top_cuts_every_list(view: str, inspection: Inspection) -> None:
    whole, cut = listed(inspection, view, None), listed(inspection, view, None, 1)
    assert len(whole) > 1
    assert cut == whole[:1]


def test_sort_and_top_are_options(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["job"] for row in cells(capsys, archive, "jobs", "--sort", "gpu", "--top", "2")] == [
        "200",
        "300",
    ]
    (summary,) = rows(capsys, archive, "--top", "1")
    assert [len(summary[name]) for name in ("jobs", "containers")] == [1, 1]
    assert run(["inspect", str(archive), "--top", "0"]) == 2


def test_user(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = ("--user", "anna")
    assert [job["job"] for job in rows(capsys, archive, "jobs", *only)] == ["300"]
    assert [box["name"] for box in rows(capsys, archive, "containers", *only)] == ["zeta"]
    assert [user["name"] for user in rows(capsys, archive, "users", *only)] == ["anna"]
    assert [program["name"] for program in rows(capsys, archive, "programs", *only)] == ["Python"]
    assert [about["name"] for about in rows(capsys, archive, "advice", *only)] == [
        "vm-one",
        "job 300 (Python in fit.py)",
    ]
    assert nothing(capsys, archive, "jobs", "--user", "nobody")


def test_command(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = ("--command", r"^\./scan|render$")
    assert [job["job"] for job in rows(capsys, archive, "jobs", *only)] == ["100", "200"]
    assert [user["name"] for user in rows(capsys, archive, "users", *only)] == ["bert"]
    assert {about["about"] for about in rows(capsys, archive, "advice", *only)} == {"machine", "job"}
    assert len(rows(capsys, archive, "advice", *only)) == 3


def test_min_runtime(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [job["job"] for job in rows(capsys, archive, "jobs", "--min-runtime", "20min")] == ["100", "200"]
    assert nothing(capsys, archive, "jobs", "--min-runtime", "2h")


def test_zone(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(archive), "timeline", "--tz", "Asia/Kolkata"]) == 0
    text = capsys.readouterr().out
    assert "2026-11-16 13:30 to 14:30 IST" in text
    assert "2026-11-16 13:30:00" in text
    # Times are also given in the zone.
    frame = ("--from", "2026-11-16T14:00", "--tz", "Asia/Kolkata")
    assert rows(capsys, archive, "timeline", *frame)[0]["time"] == "2026-11-16T08:30:00Z"


def test_the_frame_holds_for_every_list(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = ("--from", "2026-11-16T08:30", "--to", "2026-11-16T08:40:01")
    assert {job["job"]: round(job["cpu_seconds"]) for job in rows(capsys, archive, "jobs", *frame)} == {
        "100": 600,
        "200": 300,
    }
    assert [box["name"] for box in rows(capsys, archive, "containers", *frame)] == ["alpha"]
    assert round(sum(user["cpu_seconds"] for user in rows(capsys, archive, "users", *frame))) == 900
    programs = rows(capsys, archive, "programs", *frame)
    assert {program["name"]: round(program["cpu_seconds"]) for program in programs} == {
        "scan": 600,
        "Launcher": 300,
    }
    assert round(rows(capsys, archive, "gpus", *frame)[1]["gpu_seconds"]) == 480
    (summary,) = rows(capsys, archive, *frame)
    assert summary["coverage"]["samples"] == 61
    assert rows(capsys, archive, "advice", *frame)[0]["cores"]["mean"] == pytest.approx(1.5)


# ---- time frames of the programs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour a day of one more core each: 40 days ago, 8 days ago, yesterday and today, as the days are now."""
    folder = tmp_path_factory.mktemp("weeks")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for number, days in enumerate((40, 8, 1, 0), start=1):
        machine = Machine(loads=[Load(100, "./simulate", begin=0, cores=float(number))], interval=600)
        machine.start = today - timedelta(days=days)
        machine.hostname, machine.machine_id = f"vm-{number}", f"{number:032x}"
        machine.record(folder / str(number), HOUR)
    return folder


@pytest.mark.parametrize(
    ("frame", "hours"),
    [
        ([], 10),
        (["--from", "today"], 4),
        (["--from", "yesterday"], 7),
        (["--from", "yesterday", "--to", "today"], 3),
        (["--from", "30d"], 9),
        (["--from", "6w", "--to", "9d"], 1),
    ],
)
def test_programs_over_any_time_frame(
    frame: list[str], hours: int, weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = rows(capsys, weeks, "programs", *frame)
    # Of a frame that begins with a sample, the first interval lies before it.
    assert program["cpu_seconds"] == pytest.approx(hours * HOUR, rel=0.2)
    assert sum(program["cpu_seconds_by_hour"]) == pytest.approx(program["cpu_seconds"])


def test_programs_by_hour_and_weekday(weeks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = rows(capsys, weeks, "programs")
    today = datetime.now(UTC).weekday()
    assert program["cpu_seconds_by_hour"] == pytest.approx([10 * HOUR, *[0.0] * 23])
    expected = [0.0] * 7
    for hours, days in ((1, 40), (2, 8), (3, 1), (4, 0)):
        expected[(today - days) % 7] += hours * HOUR
    assert program["cpu_seconds_by_weekday"] == pytest.approx(expected)
    # In another zone it is another hour, and for some another day.
    (program,) = rows(capsys, weeks, "programs", "--tz", "Pacific/Honolulu")
    assert program["cpu_seconds_by_hour"][14] == pytest.approx(10 * HOUR, rel=0.01)
    assert program["cpu_seconds_by_weekday"] == pytest.approx([*expected[1:], expected[0]])


NOW = datetime(2026, 11, 18, 14, 30, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("now", "UTC", NOW),
        ("today", "UTC", datetime(2026, 11, 18, tzinfo=UTC)),
        ("today", "Asia/Tokyo", datetime(2026, 11, 17, 15, tzinfo=UTC)),
        ("yesterday", "UTC", datetime(2026, 11, 17, tzinfo=UTC)),
        ("week", "UTC", datetime(2026, 11, 16, tzinfo=UTC)),
        ("month", "UTC", datetime(2026, 11, 1, tzinfo=UTC)),
        ("90min", "UTC", datetime(2026, 11, 18, 13, tzinfo=UTC)),
        ("36h", "UTC", datetime(2026, 11, 17, 2, 30, tzinfo=UTC)),
        ("30d", "UTC", NOW - timedelta(days=30)),
        ("4w", "UTC", NOW - timedelta(days=28)),
        ("2026-11-16", "UTC", datetime(2026, 11, 16, tzinfo=UTC)),
        ("2026-11-16T08:30", "Europe/Berlin", datetime(2026, 11, 16, 7, 30, tzinfo=UTC)),
        ("2026-11-16T08:30Z", "Europe/Berlin", datetime(2026, 11, 16, 8, 30, tzinfo=UTC)),
    ],
)
def test_moments(text: str, zone: str, expected: datetime) -> None:
    assert parse_moment(text, zone_of(zone), lambda: NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "5", "-3d", "999999w", "today+1"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_moment(text, ZoneInfo("Europe/Berlin"), lambda: NOW)


# ---- the program map ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3 train.py", "Python"),
        ("/usr/bin/python3.12 -m ipykernel_launcher -f x.json", "Jupyter"),
        ("torchrun --nproc 8 train.py", "PyTorch"),
        ("bash", "Shell"),
        ("-bash", "Shell"),
        ("timeout 5 ./x", "Launcher"),
        ("/opt/site/solver --all", "solver"),
        ("", "unknown"),
    ],
)
def test_the_default_map(command: str, name: str) -> None:
    assert load_programs().of(command).name == name


def test_a_sites_rows_come_first_and_the_first_that_matches_wins(
    tmp_path: Path, archive: Path, capsys
) -> None:
    table = tmp_path / "programs.tsv"
    table.write_text("# ours\n^python3 fit\tFitting\tours, gpu\nfit\tNever\n")
    found = {row["name"]: row["tags"] for row in rows(capsys, archive, "programs", "--programs", table)}
    assert found == {"Fitting": ["gpu", "ours"], "scan": [], "Launcher": ["shell"]}


def test_the_map_is_asked_once_per_command() -> None:
    programs = load_programs()
    for _ in range(1000):
        programs.of("python3 train.py")
    assert programs.of.cache_info().misses == 1
