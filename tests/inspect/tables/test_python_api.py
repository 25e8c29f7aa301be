"""The Python API, and Parquet files read by pandas and Polars alone."""

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vmsonar_inspect
from vmsonar_archive.parquet.derive import derive_day, derive_due

from tests.making.worlds import make_days


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("api") / "a"
    make_days(root)
    list(derive_due(root, datetime(2026, 11, 16, 1, tzinfo=UTC)))
    return root


def test_arrow_pandas_and_polars(root: Path) -> None:
    with vmsonar_inspect.open_tables([root]) as tables:
        assert {"process", "job_usage", "samples", "job_day"} <= set(tables.names)
        assert tables.arrow("samples").num_rows == 119
        assert tables.arrow("SELECT count(*) AS n FROM node").to_pylist() == [{"n": 119}]
        frame = tables.pandas("job_usage").sort_values("pgid")
        assert list(frame["pgid"]) == [20, 30]
        assert tables.polars("job")["memory"].unique().to_list() == [100 * 2**20]
        assert len(tables.archives) == 1


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_without_its_package_says_which_one(root: Path, package: str) -> None:
    """In a child whose path finder does not know the package."""
    code = (
        "import sys, vmsonar_inspect\n"
        "from importlib.machinery import PathFinder\n"
        "class Without(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, *where):\n"
        f"        return None if name == {package!r} else PathFinder.find_spec(name, *where)\n"
        "sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]\n"
        "with vmsonar_inspect.open_tables([sys.argv[1]]) as tables:\n"
        f"    tables.{package}('job')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    words = f"VmsonarError: a frame of {package} needs an extra that is not installed: "
    assert words in ran.stderr.splitlines()[-1]
    assert f"vmsonar[{package}]" in ran.stderr.splitlines()[-1]


def test_parquet_is_read_without_us(root: Path) -> None:
    path = root / "2026/11/15/process.parquet"
    assert pandas.read_parquet(path)["user_ticks"].max() == 2 * (590 - 33) * 100
    assert polars.read_parquet(path)["user_ticks"].max() == 2 * (590 - 33) * 100


def test_units_and_meanings_travel_along(root: Path) -> None:
    schema = pq.read_schema(root / "2026/11/15/process.parquet")
    assert schema.field("resident").metadata[b"unit"] == b"bytes"
    assert schema.field("resident").metadata[b"meaning"].startswith(b"resident memory")


def test_rows_are_sorted_by_series_and_time(root: Path) -> None:
    rows = pq.read_table(root / "2026/11/15/process.parquet", columns=["pid", "boottime"]).to_pylist()
    keys = [(row["pid"], row["boottime"]) for row in rows]
    assert keys == sorted(keys)


def test_older_tables_merge_with_newer(tmp_path: Path) -> None:
    """A table that lacks a column of today and has one that we do not know; no journal lists another."""
    copy = tmp_path / "a"
    make_days(copy)
    derive_day(copy, date(2026, 11, 15))
    path = copy / "2026/11/15/process.parquet"
    table = pq.read_table(path)
    older = table.drop_columns(["resident"]).append_column("later", pa.array([1] * len(table)))
    metadata = pq.read_metadata(path).metadata
    older = older.replace_schema_metadata({b"vmsonar.footer": metadata[b"vmsonar.footer"]})
    pq.write_table(older, path)
    with vmsonar_inspect.open_tables([copy]) as tables:
        found = tables.sql(
            "SELECT time < '2026-11-16', bool_and(resident IS NULL), max(later) FROM process GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert found == [(False, False, None), (True, True, 1)]
