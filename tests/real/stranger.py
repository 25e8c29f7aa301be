"""A user who is neither root nor anybody, and a Python that they can run too."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

#: Neither has a name here.
STRANGER = 54321
ANOTHER = 54322
_PROBE = "import vmsonar, vmsonar_archive, vmsonar_inspect, msgspec, zstandard, pyarrow, duckdb"


@cache
def python() -> tuple[str, dict[str, str]] | None:
    """A Python and its environment in which everybody finds all of ours; None where there is none."""
    repository = Path(__file__).resolve().parents[2]
    known = [str(repository / name) for name in ("", "archive", "inspect")]
    known += [path for path in sys.path if path.endswith("site-packages")]
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": ":".join(known)}
    for place in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}"):
        try:
            done = subprocess.run(
                [place, "-P", "-c", _PROBE], env=environment, user=STRANGER, group=STRANGER, extra_groups=(),
                cwd="/", capture_output=True, timeout=60, check=False,
            )  # fmt: skip
        except OSError:
            continue
        if done.returncode == 0:
            return place, environment
    return None


def missing() -> str | None:
    """Why no command of ours can be tried as somebody else."""
    if os.geteuid() != 0:
        return "not root"
    return None if python() else "no Python that an ordinary user can run with our packages"


def vmsonar(*words: str) -> list[str]:
    """A command line of ours for that Python."""
    found = python()
    assert found is not None
    return [found[0], "-P", "-m", "vmsonar", *words]


def environment() -> dict[str, str]:
    found = python()
    assert found is not None
    return dict(found[1])
