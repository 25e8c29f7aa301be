"""Tables of an earlier version, which knew fewer fields and summed up otherwise, are compared as far as they go."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vmsonar_archive.parquet.compare import compare_tables
from vmsonar_archive.parquet.derive import derive_due
from vmsonar_archive.read.findings import Code, Severity
from vmsonar_archive.read.source import FolderSource

from tests.making.lives import make_lives


@pytest.fixture
def root(tmp_path: Path) -> Path:
    archive = make_lives(tmp_path / "archive")
    list(derive_due(archive, datetime(2026, 12, 1, tzinfo=UTC)))
    assert differing(archive) == []
    return archive


def differing(root: Path) -> list[str]:
    return [f"{Path(each.path).stem} {each.detail}" for each in compare_tables(FolderSource(root))]


def rewrite(path: Path, table: pa.Table, **footer: int) -> None:
    """Writes a table in the place of another, with that one's footer."""
    told = json.loads(pq.read_metadata(path).metadata[b"vmsonar.footer"]) | footer
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"vmsonar.footer": json.dumps(told)})


@pytest.mark.parametrize(("name", "says_nothing"), [("major_faults", True), ("memory_peak", False)])
def test_only_a_column_that_says_nothing_may_be_missing(root: Path, name: str, says_nothing: bool) -> None:
    (path,) = root.glob("*/*/*/job.parquet")
    rewrite(path, pq.read_table(path).drop_columns([name]))
    assert differing(root) == ([] if says_nothing else ["job lacks columns that its records have"])


def test_a_column_that_nobody_knows_is_no_part_of_it(root: Path) -> None:
    (path,) = root.glob("*/*/*/job.parquet")
    table = pq.read_table(path)
    rewrite(path, table.append_column("surprise", pa.array([1] * len(table))))
    assert differing(root) == ["job has other columns than its records give"]


def test_a_summary_by_an_earlier_rule_is_taken_as_it_is(root: Path) -> None:
    (path,) = root.glob("*/*/*/series_day.parquet")
    half = pq.read_table(path).slice(5)
    rewrite(path, half)
    assert [found.split()[:2] for found in differing(root)] == [["series_day", "has"]]
    rewrite(path, half, rule=1)
    (noted,) = compare_tables(FolderSource(root))
    assert (noted.code, noted.severity) == (Code.UNCHECKED_TABLES, Severity.NOTE)
