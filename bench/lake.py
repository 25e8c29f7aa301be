"""Tables: what a day costs to derive, and what rollups cost over a day and a month."""

import json
import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import Figure
from bench.model import START, make_archive

_SAMPLES = 8639
_PROCESSES = 500
_ROLLUP = "SELECT user_name, count(*), max(cores_p95), median(memory_median) FROM job_usage GROUP BY 1"

#: Runs a piece of work by itself and tells what it took.
_MEASURED = """
import json, resource, sys, time
begin = time.monotonic()
{work}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, time.monotonic() - begin]))
"""
_DERIVE = """
import pyarrow; pyarrow.set_cpu_count(1)
from datetime import date; from pathlib import Path
from vmsonar_archive.parquet.days import derive_day
derive_day(Path(sys.argv[1]), date(2026, 11, 1))
"""
_ASK = """
from pathlib import Path
from vmsonar_inspect.tables import open_tables
with open_tables([sys.argv[1]], cache=Path(sys.argv[2])) as tables:
    begin = time.monotonic()
    assert tables.sql(sys.argv[3]).fetchall()
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="vmsonar-bench-") as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> list[Figure]:
    archive = make_archive(folder / "day", _SAMPLES, _PROCESSES)
    fresh = _worked(_ASK, archive, folder / "cache-1", _ROLLUP)
    cpu, memory, _ = _worked(_DERIVE, archive)
    rows = _SAMPLES * _PROCESSES
    size = next(archive.glob("*/*/*/process.parquet")).stat().st_size
    day = _worked(_ASK, archive, folder / "cache-2", _ROLLUP)
    month = _month(archive, folder / "month")
    whole = _worked(_ASK, month, folder / "cache-3", _ROLLUP)
    return [
        Figure("Parquet, a process row of the model load", size / rows, "bytes", 8),
        Figure("a day (4.3 million process rows) to Parquet, CPU", cpu, "s", 20),
        Figure("a day to Parquet, peak resident memory", memory, "MB", 250),
        Figure("job rollup over one day, from its tables", day[2], "s", 1),
        Figure("job rollup over one day, first look without Parquet, CPU", fresh[0], "s"),
        Figure("job rollup over one day, first look, peak memory", fresh[1], "MB"),
        Figure("job rollup over 30 days, from daily tables", whole[2], "s", 10),
        Figure("job rollup over 30 days, peak memory", whole[1], "MB", 1000),
    ]


def _worked(work: str, *arguments: object) -> tuple[float, float, float]:
    code = _MEASURED.format(work=work)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, check=True
    )
    cpu, memory, wall = json.loads(done.stdout)
    return cpu, memory, wall


def _month(archive: Path, target: Path) -> Path:
    """Thirty days: the tables of the one, each a day later on both clocks, its counters higher, its numbers new."""
    source = next(archive.glob("*/*/*/series_day.parquet")).parent
    target.mkdir()
    shutil.copy(archive / "archive.json", target)
    for number in range(30):
        folder = target / f"{START + timedelta(days=number):%Y/%m/%d}"
        folder.mkdir(parents=True)
        for path in source.glob("*.parquet"):
            if path.stem in ("samples", "sysinfo", "job_info", "node", "series_day", "job"):
                _later(path, folder / path.name, number)
    return target


def _later(source: Path, target: Path, days: int) -> None:
    table = pq.read_table(source)
    for name in table.column_names:
        column = table[name]
        if name in ("boottime", "first_boottime", "last_boottime"):
            column = pc.add(column, days * 86_400 * 10**9)
        elif name in ("time", "first_time", "last_time"):
            column = pc.add(column, pa.scalar(timedelta(days=days)))
        elif name == "seq":
            column = pc.add(column, days * 10_000)
        elif name in ("first_value", "last_value", "highest_value"):
            column = pc.add(column, days * 1e6)
        else:
            continue
        table = table.set_column(table.column_names.index(name), name, column)
    known = pq.read_metadata(source).metadata or {}
    footer = json.loads(known[b"vmsonar.footer"])
    footer["spans"] = [
        [run, boot, a + days * 10_000, b + days * 10_000] for run, boot, a, b in footer["spans"]
    ]
    table = table.replace_schema_metadata({b"vmsonar.footer": json.dumps(footer).encode()})
    pq.write_table(table, target, compression="zstd")
