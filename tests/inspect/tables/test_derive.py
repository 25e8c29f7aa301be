"""A large day is divided and derived by several processes: the answers are those of one process and one piece."""

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from vmsonar_inspect.tables import derive, plan
from vmsonar_inspect.tables.database import open_tables

from tests.making.load import START, Recorder
from tests.real.wait import wait_until

pytestmark = pytest.mark.slow

QUERY = "SELECT * FROM job_usage ORDER BY pgid"
SCRIPT = """
import sys
from vmsonar_inspect import open_tables
from vmsonar_inspect.tables import derive, plan
plan._LARGE = derive._WORTH_BYTES = 0
with open_tables([sys.argv[1]], cache=False) as tables:
    print(len(tables.sql("SELECT * FROM job_usage").fetchall()))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes before noon and ten after it."""
    root = tmp_path_factory.mktemp("noon") / "archive"
    recorder = Recorder(root, 12, start=START + timedelta(hours=11, minutes=50))
    recorder.record(120)
    recorder.close()
    return root


def asked(path: Path, cache: Path | bool = False, since: datetime | None = None) -> list[dict[str, Any]]:
    with open_tables([path], cache=cache, since=since) as tables:
        answer = tables.arrow(QUERY).to_pylist()
        assert not tables.findings
        assert len(answer) == 4
        return list(answer)


def divide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_LARGE", 0)
    monkeypatch.setattr(derive, "_WORTH_BYTES", 0)


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name, value in other.items():
            wanted = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert one[name] == wanted, name


def test_halves_and_helpers_give_the_same(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = asked(recorded)
    divide(monkeypatch)
    started = []
    start = derive._start
    monkeypatch.setattr(derive, "_start", lambda *given: started.append(given) or start(*given))
    same(asked(recorded, tmp_path / "cache"), whole)
    assert len(started) == 1
    assert len(list(tmp_path.glob("cache/2026-11-01-*/job_day-*.parquet"))) == 2
    same(asked(recorded, tmp_path / "cache"), whole)
    assert len(started) == 1


def test_a_part_of_a_day_is_divided_too(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    since = START + timedelta(hours=11, minutes=55)
    whole = asked(recorded, since=since)
    assert [row["samples"] for row in whole] == [91] * 4
    divide(monkeypatch)
    same(asked(recorded, since=since), whole)


def test_a_helper_that_cannot_help_is_made_up_for(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(recorded)
    divide(monkeypatch)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    same(asked(recorded), whole)


def test_a_script_is_not_run_again_by_its_helpers(recorded: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    # What lies in the current folder is none of the helper's business.
    (tmp_path / "pickle.py").write_text("raise SystemExit('not this one')")
    done = subprocess.run(
        [sys.executable, "-P", str(script), str(recorded)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "4\n"
    assert done.stderr == ""


def test_what_is_sealed_is_kept_while_the_day_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "archive", 12, start=START + timedelta(hours=10, minutes=50))
    recorder.record(120)
    wait_until(lambda: recorder.writer._house.sync_thread.idle, 20, "the sealed hour")
    cache = tmp_path / "cache"
    first = asked(tmp_path / "archive", cache)
    (kept,) = cache.glob("2026-11-01-*/job_day-*.parquet")
    derived = kept.stat().st_mtime_ns
    recorder.record(10)
    then = asked(tmp_path / "archive", cache)
    recorder.close()
    assert (kept.stat().st_mtime_ns, list(cache.glob("2026-11-01-*/job_day-*.parquet"))) == (derived, [kept])
    assert [(row["samples"], later["samples"]) for row, later in zip(first, then, strict=True)] == [
        (120, 130)
    ] * 4
