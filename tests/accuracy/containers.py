"""What the tests of containers measure, for the page: lives that begin and end between two samples."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.parts import missing

#: Names the file to which these tests add what they found.
FIGURES = "VMSONAR_ACCURACY_FIGURES"
_ROOT = Path(__file__).parents[2]
_CASES = _ROOT / "tests/collectors/container/lives_alone.py"
#: What each container of these tests does.
KINDS = {
    "loop": "crash loop of lives of 1 s, begun again by the engine",
    "again": "killed, started again within an interval, and work by `docker exec`",
    "blink": "ends at once",
    "nap": "lives for 0.6 s",
    "hungry": "reaches its memory limit of 60 MiB within a second",
}


def measure() -> list[dict[str, Any]]:
    """Runs these tests at both intervals; nothing where there is no engine."""
    if why := missing("docker"):
        print("containers: not measured:", why)
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        path.touch()
        for interval in ("1s", "10s"):  # each in a process of its own: their children are forks
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", interval, _CASES]
            done = subprocess.run(
                command,
                cwd=_ROOT,
                env={**os.environ, FIGURES: str(path)},
                check=False,
                capture_output=True,
                text=True,
            )
            print(f"containers, {interval}:", (done.stdout.splitlines() or ["no tests ran"])[-1], flush=True)
        return [json.loads(line) for line in path.read_text().splitlines()]


def table(figures: Sequence[dict[str, Any]]) -> str:
    """CPU time and lives of each container, by interval."""
    intervals = sorted({one["interval"] for one in figures})
    heads = [f"CPU time at {each:g} s | Lives at {each:g} s" for each in intervals]
    lines = [f"| Container | {' | '.join(heads)} |", "|---" * (1 + 2 * len(intervals)) + "|"]
    for kind, about in KINDS.items():
        cells = []
        for interval in intervals:
            found = [one for one in figures if (one["kind"], one["interval"]) == (kind, interval)]
            cells += [_cpu(found[0]), _lives(found[0])] if found else ["", ""]
        lines.append(f"| {about} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cpu(one: dict[str, Any]) -> str:
    truth, value, high = one["truth"], one["value"] or 0.0, one["high"]
    if abs(value - truth) <= max(0.02 * truth, 0.03):
        return f"{value / truth - 1:+.1%}" if truth > 1 else f"{value - truth:+.2f} s"
    words = f"in {value:.3g} to {high or value:.3g} s"
    return words if value <= truth * 1.02 and truth <= (high or value) * 1.02 else f"**{words}**"


def _lives(one: dict[str, Any]) -> str:
    words = f"{one['lives']} of {one['starts']}"
    return words if one["lives"] == one["starts"] else f"**{words}**"
