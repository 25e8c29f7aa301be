"""What a first screen costs: of a day, with tables derived already and on the first look, and of many machines."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import Figure
from bench.model import make_archive

_DAY = 8640
_HOUR = 360
_MACHINES = 500


def run() -> list[Figure]:
    """Wall time says little on a shared machine; CPU time is given beside it, and bounds go by what was promised."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        day = make_archive(root / "day", _DAY, 300)
        fleet = root / "fleet"
        fleet.mkdir()
        for number in range(_MACHINES):
            make_archive(fleet / f"vm{number}", _HOUR, 30, seed=number + 1)
        return [
            *_looks("summary of a day", [str(day)], root / "cache", first=5.0, again=1.0),
            *_looks(f"summary of {_MACHINES} machines", [str(fleet)], root / "cache", first=30.0, again=30.0),
            *_page(day, root),
        ]


def _looks(name: str, arguments: list[str], cache: Path, first: float, again: float) -> list[Figure]:
    wall, cpu, memory = _inspect(arguments, cache)
    wall_again, cpu_again, memory_again = _inspect(arguments, cache)
    return [
        Figure(f"{name}, first look: wall", wall, "s", first),
        Figure(f"{name}, first look: CPU", cpu, "s"),
        Figure(f"{name}, tables derived: wall", wall_again, "s", again),
        Figure(f"{name}, tables derived: CPU", cpu_again, "s"),
        Figure(f"{name}: memory", max(memory, memory_again), "MB", 1000),
    ]


def _page(day: Path, root: Path) -> list[Figure]:
    page = root / "page.html"
    _inspect([str(day), "--html", str(page)], root / "cache")
    return [Figure("page of a day", page.stat().st_size / 1e6, "MB", 5.0)]


def _inspect(arguments: list[str], cache: Path) -> tuple[float, float, float]:
    """Seconds of wall and CPU time, and megabytes, of one command line."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "vmsonar", "inspect", *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"vmsonar inspect {' '.join(arguments)} exited with {process.returncode}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000
