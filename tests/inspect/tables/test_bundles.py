"""Bundles are read without unpacking, with tables in them and without."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from vmsonar_archive.parquet.derive import derive_due
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import USAGE, make_days
from vmsonar.cli import run


def usage(*paths: Path) -> list[tuple]:
    with open_tables(list(paths)) as tables:
        found = tables.sql(USAGE).fetchall()
        assert tables.findings == []
        return found


@pytest.mark.parametrize("derived", [False, True])
def test_a_bundle_answers_as_its_archive_does(tmp_path: Path, derived: bool) -> None:
    make_days(tmp_path / "a")
    if derived:
        list(derive_due(tmp_path / "a", datetime(2026, 11, 17, 1, tzinfo=UTC)))
    (tmp_path / "bundles").mkdir()
    assert run(["bundle", "--archive", str(tmp_path / "a"), "-o", str(tmp_path / "bundles" / "one.tar")]) == 0
    assert usage(tmp_path / "bundles") == usage(tmp_path / "a")
    assert usage(tmp_path / "bundles" / "one.tar", tmp_path / "a") == usage(tmp_path / "a")
