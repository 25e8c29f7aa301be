"""What a first screen costs, of a day, a month and many machines, as archives and as bundles, at once and after it."""

import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from vmsonar_archive.bundle.make import BundleOptions, bundle_to_file
from vmsonar_archive.parquet.derive import derive_day

from bench import Figure
from bench.fleets import add_tables, make_bundles, make_month
from tests.making.load import make_archive

_DAY = 8639
_MACHINES = 500
#: What the first screen reads of tables that are there.
_READ = ("samples", "sysinfo", "node", "job", "job_info", "series_day")


def run() -> list[Figure]:
    """Wall time says little on a shared machine; CPU time is given beside it, and bounds go by what was promised."""
    with tempfile.TemporaryDirectory(prefix="vmsonar-bench-") as folder:
        root = Path(folder)
        return [*_day_and_month(root), *_fleet(root)]


def _day_and_month(root: Path) -> list[Figure]:
    day = make_archive(root / "day", _DAY, 300)
    month = make_month(day, root / "month")
    bundle_to_file(day, root / "day.tar")
    figures = [
        *_looks("summary of a day's archive", [str(day)], root / "cache-1", first=5.0, again=1.0),
        *_looks("summary of a day's bundle", [str(root / "day.tar")], root / "cache-2", first=5.0, again=1.0),
        *_look("summary of 30 days, first look", [str(month)], root / "cache-3"),
    ]
    derive_day(day, date(2026, 11, 1))
    add_tables(day, month, _READ)
    bundle_to_file(day, root / "tables.tar", options=BundleOptions(parquet=True))
    return [
        *figures,
        *_look("summary of a day, its own tables", [str(day)], root / "cache-4", 1.0),
        *_look("summary of a bundle with tables", [str(root / "tables.tar")], root / "cache-5", 1.0),
        *_look("summary of 30 days, their own tables", [str(month)], root / "cache-6", 10.0),
        *_page(day, root),
    ]


def _fleet(root: Path) -> list[Figure]:
    bundles = make_bundles(root / "fleet", _MACHINES)
    name = f"summary of {_MACHINES} bundles"
    return _looks(name, [str(bundles)], root / "cache-7", first=30.0, again=30.0)


def _looks(name: str, arguments: list[str], cache: Path, first: float, again: float) -> list[Figure]:
    return [
        *_look(f"{name}, first look", arguments, cache, first),
        *_look(f"{name}, then", arguments, cache, again),
    ]


def _look(name: str, arguments: list[str], cache: Path, bound: float | None = None) -> list[Figure]:
    wall, cpu, memory = _inspect(arguments, cache)
    return [
        Figure(f"{name}: wall", wall, "s", bound),
        Figure(f"{name}: CPU", cpu, "s"),
        Figure(f"{name}: memory", memory, "MB", 1000),
    ]


def _page(day: Path, root: Path) -> list[Figure]:
    page = root / "page.html"
    _inspect([str(day), "--html", str(page)], root / "cache")
    return [Figure("page of a day", page.stat().st_size / 1e6, "MB", 5.0)]


def _inspect(arguments: list[str], cache: Path) -> tuple[float, float, float]:
    """Seconds of wall and CPU time of one command line with its helpers, and megabytes of the largest of them."""
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
