"""`vmsonar` as a person runs it, and with its memory and time measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MEMORY = 200 * 1024  # kB
SECONDS = 10
ROOT = Path(__file__).parents[3]


def run_measured(folder: Path, *commands: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.archive.bundle.measured", json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def vmsonar(*arguments: str | Path, **settings: object) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "vmsonar", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **settings)  # type: ignore[call-overload, no-any-return]
