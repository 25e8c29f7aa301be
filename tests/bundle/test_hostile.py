"""Hostile bundles: each is refused in one clear line, with bounded memory and time, and writes nowhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bundle.hostile import CASES

MEMORY = 200 * 1024  # kB
SECONDS = 10
ROOT = Path(__file__).parents[2]


def _write(path: Path, case: str, good: Path) -> None:
    made = CASES[case](good)
    with path.open("wb") as file:
        for part in [made] if isinstance(made, bytes) else made:
            file.write(part)


def _run(folder: Path, *commands: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bundle.measured", json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES)
def test_refused_and_bounded(case: str, bundle: Path, tmp_path: Path) -> None:
    _write(tmp_path / "hostile.tar", case, bundle)
    recover = ["recover", "hostile.tar", "-o", "target"]
    runs = _run(tmp_path, ["verify", "hostile.tar"], ["verify", "--deep", "hostile.tar"], recover)
    for run in runs:
        assert run["seconds"] < SECONDS, run
        assert run["memory"] < MEMORY, run
        assert "\x1b" not in run["said"]
    for run in runs[:2]:
        assert run["code"] in (1, 2), run["said"]
        errors = [text for text in run["said"].splitlines() if text.startswith(("error: ", "vmsonar: "))]
        assert errors
        assert all(len(text) < 400 for text in errors)
    assert runs[2]["code"] in (0, 1, 2), runs[2]["said"]
    assert {path.name for path in tmp_path.iterdir()} <= {"hostile.tar", "target"}
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert not Path("/tmp/evil").exists()


def test_many_at_once_name_the_one_that_is_no_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "random").write_bytes(os.urandom(5000))
    (run,) = _run(tmp_path, ["verify", str(bundle), "random"])
    assert run["code"] == 1
    assert "error: not_a_bundle: random: is not a bundle: it is no tar file" in run["said"]
