"""The Python API, and Parquet files read by pandas and Polars alone."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vmsonar_inspect
from vmsonar_archive.parquet.days import derive_due

from tests.lake.test_sources import make_days


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


def test_older_tables_merge_with_newer(root: Path, tmp_path: Path) -> None:
    """A table that lacks a column of today and has one that we do not know."""
    copy = tmp_path / "a"
    shutil.copytree(root, copy)
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
