"""Clocks at either end of the calendar: an answer, never a traceback."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.making.archives import BOOT, START, boottime_at, open_writer, record
from tests.making.scenes import healthy
from vmsonar.cli import run

STARTS = {"first": datetime(1, 1, 1, tzinfo=UTC), "last": datetime(9999, 12, 31, 23, 50, tzinfo=UTC)}
VIEWS = ["summary", "jobs", "containers", "gpus", "users", "programs", "timeline", "advice", "gaps"]


@pytest.fixture(scope="module", params=STARTS)
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("calendar") / "archive"
    return replace(healthy(), start=STARTS[request.param]).record(root, 300)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_every_view(archive: Path, capsys: pytest.CaptureFixture[str], zone: str) -> None:
    for view in VIEWS:
        assert run(["inspect", str(archive), view, "--tz", zone]) == 0, view
    assert "31 samples" in capsys.readouterr().out


def test_every_other_command(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = {name: str(tmp_path / name) for name in ("page.html", "b.tar", "saved", "csv", "sonar", "lake")}
    assert run(["inspect", str(archive), "--html", out["page.html"], "--tz", "Asia/Tokyo"]) == 0
    assert run(["inspect", str(archive), "jobs", "--json"]) == 0
    assert run(["inspect", str(archive), "jobs", "--csv"]) == 0
    assert run(["verify", str(archive)]) == 0
    assert run(["bundle", "--archive", str(archive), "-o", out["b.tar"]]) == 0
    assert run(["verify", out["b.tar"]]) == 0
    assert run(["recover", out["b.tar"], "-o", out["saved"]]) == 0
    capsys.readouterr()
    assert run(["sql", out["b.tar"], "SELECT count(*) AS n, min(time) FROM samples"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("31 ")
    for layout in ("csv", "sonar"):
        assert run(["export", out["b.tar"], "--to", layout, "-o", out[layout]]) == 0
    assert run(["export", out["b.tar"], "--to", "parquet", "-o", out["lake"]]) == 0
    assert run(["sql", out["lake"], "SELECT count(*) FROM samples", "--from", "0001-01-01"]) == 0


@pytest.mark.parametrize("start", STARTS)
def test_a_clock_that_was_far_away_once(
    start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = open_writer(tmp_path / "archive")
    record(writer, 3)
    writer.append(STARTS[start], BOOT, boottime_at(START) + 60 * 10**9, {"node": [b"{}"]})
    writer.close()
    for view in VIEWS:
        assert run(["inspect", str(tmp_path / "archive"), view]) == 0, view
    assert run(["inspect", str(tmp_path / "archive"), "--html", str(tmp_path / "page.html")]) == 0
    assert "4 samples" in capsys.readouterr().out
