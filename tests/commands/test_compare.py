"""`vmsonar run`, `runs` and `compare` together: numbers, retention, gates on real repeats, jobs of archives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.commands import SECONDS, environment, run, runs
from vmsonar.daemon.run_folders import RunFolders

_BURN = "total = 0\nfor each in range({}): total += each * each % 7"


def _vmsonar(home, *words, code=0):
    line = [sys.executable, "-m", "vmsonar", *map(str, words)]
    done = subprocess.run(
        line, env=environment(home), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def test_runs_are_numbered_newest_first_and_kept_by_count(tmp_path):
    _vmsonar(tmp_path, "runs", code=1)
    for code in range(4):
        run(tmp_path, "--quiet", "--keep", 3, "--", "sh", "-c", f"exit {code}")
    assert len(runs(tmp_path)) == 3
    listed = _vmsonar(tmp_path, "runs").splitlines()[1:]
    assert [each.split()[0] for each in listed] == ["@1", "@2", "@3"]
    assert ["exit 3" in listed[0], "exit 1" in listed[2]] == [True, True]
    told = json.loads(_vmsonar(tmp_path, "runs", "--json"))
    assert [each["exit_code"] for each in told] == [3, 2, 1]
    assert "2 cores" in _vmsonar(tmp_path, "inspect", "@1") or "core" in _vmsonar(tmp_path, "inspect", "@1")
    _vmsonar(tmp_path, "compare", "@9", "@1", code=2)


def test_old_runs_go_by_size_too_and_never_one_that_is_written(tmp_path):
    folders = RunFolders(tmp_path)
    for number in range(3):
        folder = tmp_path / f"2026110{number}T000000-a-x"
        folder.mkdir()
        (folder / "archive.json").write_bytes(bytes(1000))
    import fcntl

    with (tmp_path / "20261100T000000-a-x" / "writer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folders.prune(keep=20, most=1500)
        assert [path.name[:8] for path in folders.newest_first()] == ["20261102", "20261100"]


@pytest.mark.slow
def test_a_gate_fails_on_a_planted_change_of_real_runs(tmp_path):
    """Five repeats of each: the same work passes, three times as much fails, also on a busy machine."""
    for work in (2_000_000, 2_000_000, 8_000_000):
        (tmp_path / f"burn{work}.py").write_text(_BURN.format(work))
        for _ in range(5):
            run(tmp_path, "--quiet", "--", sys.executable, tmp_path / f"burn{work}.py")
    newest = [f"@{number}" for number in range(1, 16)]
    more, same, first = (",".join(newest[begin : begin + 5]) for begin in (0, 5, 10))
    assert "kept" in _vmsonar(tmp_path, "compare", first, same, "--gate", "cpu<=+50%")
    assert "failed" in _vmsonar(tmp_path, "compare", same, more, "--gate", "cpu<=+10%", code=1)
    found = json.loads(
        _vmsonar(tmp_path, "compare", "@6", "@1", "--repeat", 5, "--gate", "cpu<=+10%", "--json", code=1)
    )
    assert [len(side["runs"]) for side in found["sides"]] == [5, 5]
    cpu = next(each for each in found["differences"] if each["measure"] == "cpu")
    assert cpu["change"] > 1
    assert cpu["p"] < 0.02


def test_files_that_were_asked_for_are_written(tmp_path):
    names = {name: tmp_path / f"out.{name}" for name in ("json", "markdown", "html", "bundle")}
    names["markdown"].write_text("before\n")
    options = [word for name, path in names.items() for word in (f"--{name}", path)]
    done = run(tmp_path, *options, "--", "sh", "-c", "echo `date`; exit 2")
    assert done.returncode == 2
    assert json.loads(names["json"].read_text())["exit_code"] == 2
    assert names["markdown"].read_text().startswith("before\n### ")
    assert "exit 2" in names["markdown"].read_text()
    assert names["html"].read_text().startswith("<!doctype html>")
    _vmsonar(tmp_path, "verify", names["bundle"])
    told = json.loads(_vmsonar(tmp_path, "compare", names["bundle"], "@1", "--json"))
    assert told["sides"][0]["runs"][0]["exit_code"] == 2


def test_a_file_that_cannot_be_written_is_told_and_the_code_is_still_the_commands(tmp_path):
    (tmp_path / "mine.json").write_text("precious")
    done = run(tmp_path, "--quiet", "--json", tmp_path / "mine.json", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    assert done.stderr.startswith(b"vmsonar: no --json: ")
    assert (tmp_path / "mine.json").read_text() == "precious"


def test_jobs_of_any_archive_can_be_compared(tmp_path):
    run(tmp_path, "--quiet", "--archive", tmp_path / "a", "--", "sh", "-c", "sleep 1.5")
    (job,) = json.loads(_vmsonar(tmp_path, "inspect", tmp_path / "a", "jobs", "--json"))["rows"]
    sides = tmp_path / "a", f"{tmp_path}/a#{job['job']}"
    found = json.loads(_vmsonar(tmp_path, "compare", *sides, "--json"))
    elapsed = next(each for each in found["differences"] if each["measure"] == "elapsed")
    assert elapsed["before"] == pytest.approx(elapsed["after"], abs=1.5)


def test_secrets_of_the_command_line_are_masked(tmp_path):
    run(tmp_path, "--quiet", "--", "echo", "--password=hunter2", "visible")
    folder = runs(tmp_path)[0]
    text = _vmsonar(tmp_path, "runs", "--json")
    assert "visible" in text
    assert "hunter2" not in text
    assert Path(folder).stat().st_mode & 0o077 == 0
    assert os.environ.get("HOME") != str(tmp_path)
