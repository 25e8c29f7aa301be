"""Tables: what a day costs to derive, and what rollups cost over a day, a month and a thousand bundles."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import Figure
from bench.fleets import add_tables, make_bundles, make_month, side_by_side
from tests.making.load import make_archive

_SAMPLES = 8639
_ROWS = _SAMPLES * 500
_BUNDLES = 1000
_ROLLUP = "SELECT user_name, count(*), max(cores_p95), median(memory_median) FROM job_usage GROUP BY 1"
#: What a job rollup reads.
_READ = ("samples", "sysinfo", "job_info", "node", "series_day")

#: Runs a piece of work by itself and tells what it and its helpers took.
_MEASURED = """
import json, resource, sys, time
begin = time.monotonic()
{work}
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu = sum(one.ru_utime + one.ru_stime for one in used)
print(json.dumps([cpu, sum(one.ru_maxrss for one in used) / 1024, time.monotonic() - begin]))
"""
_DERIVE = """
import pyarrow; pyarrow.set_cpu_count(1)
from datetime import date; from pathlib import Path
from vmsonar_archive.parquet.derive import derive_day
derive_day(Path(sys.argv[1]), date(2026, 11, 1))
"""
_ASK = """
from pathlib import Path
import duckdb, pyarrow.parquet
from vmsonar_inspect.tables.database import open_tables
begin = time.monotonic()
with open_tables(sys.argv[3:], cache=Path(sys.argv[1])) as tables:
    assert tables.sql(sys.argv[2]).fetchall()
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="vmsonar-bench-") as folder:
        root = Path(folder)
        side_by_side(_record, [(root / "large", 500), (root / "day", 300)])
        return [*_deriving(root), *_day_and_month(root), *_many(root)]


def _record(what: tuple[Path, int]) -> None:
    make_archive(what[0], _SAMPLES, what[1])


def _deriving(root: Path) -> list[Figure]:
    cpu, memory, _ = _worked(_DERIVE, root / "large")
    size = next((root / "large").glob("*/*/*/process.parquet")).stat().st_size
    return [
        Figure("Parquet, a process row of the model load", size / _ROWS, "bytes", 8),
        Figure("a day (4.3 million process rows) to Parquet, CPU", cpu, "s", 20),
        Figure("a day to Parquet, peak resident memory", memory, "MB", 250),
    ]


def _day_and_month(root: Path) -> list[Figure]:
    """A day and thirty of them with 300 processes: 2.6 and 78 million process rows."""
    day, month = root / "day", root / "month"
    make_month(day, month)
    first_day = _asked("one day, first look without Parquet", [day], root / "cache-1")
    first_month = _asked("30 days, first look without Parquet", [month], root / "cache-2", memory=1000)
    _worked(_DERIVE, day)
    add_tables(day, month, _READ)
    return [
        *_asked("one day, from its tables", [day], root / "cache-3", wall=1),
        *first_day,
        *_asked("30 days, from daily tables", [month], root / "cache-4", wall=10, memory=1000),
        *first_month,
    ]


def _many(root: Path) -> list[Figure]:
    bundles = sorted(make_bundles(root / "many", _BUNDLES).iterdir())
    figures = []
    for count in (_BUNDLES // 4, _BUNDLES // 2, _BUNDLES):
        name = f"{count} bundles of an hour, first look"
        figures += _asked(name, bundles[:count], root / f"cache-{count}", memory=1000)
    return figures


def _asked(
    name: str, paths: list[Path], cache: Path, wall: float | None = None, memory: float | None = None
) -> list[Figure]:
    cpu, peak, seconds = _worked(_ASK, cache, _ROLLUP, *paths)
    return [
        Figure(f"job rollup over {name}: wall", seconds, "s", wall),
        Figure(f"job rollup over {name}: CPU", cpu, "s"),
        Figure(f"job rollup over {name}: memory", peak, "MB", memory),
    ]


def _worked(work: str, *arguments: object) -> tuple[float, float, float]:
    """CPU seconds, megabytes and seconds of a piece of work."""
    code = _MEASURED.format(work=work)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, check=True
    )
    cpu, memory, wall = json.loads(done.stdout.splitlines()[-1])
    return cpu, memory, wall
