"""Many small files of a table are put into a few: the answers stay the same, column by column."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vmsonar_inspect.tables import duckdb as engine
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import Job, Machine


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("compact")
    roots = [folder / f"vm-{number}" for number in range(3)]
    for number, root in enumerate(roots):
        machine = Machine(root, machine_id=f"{number:032x}")
        machine.jobs = [Job(20, start=50.0, end=1e9, cores=number / 10)]
        machine.start_daemon()
        machine.run(4)
        machine.stop_daemon()
    return roots


def answers(paths: list[Path]) -> tuple[dict[str, pa.Table], int]:
    """Everything that can be asked, and how many compact files that took."""
    with open_tables(paths, cache=False) as tables:
        found = {name: tables.arrow(f"SELECT * FROM {name} ORDER BY ALL") for name in tables.names}
        return found, len(list(tables._scratch.glob("compact-*")))


def test_the_answers_stay_the_same(fleet, monkeypatch):
    expected, none = answers(fleet)
    monkeypatch.setattr(engine, "_MANY", 2)
    monkeypatch.setattr(engine, "_AT_ONCE", 2)
    found, some = answers(fleet)
    assert none == 0
    assert some >= 2 * 5
    for name, table in expected.items():
        assert found[name].equals(table), name


def test_files_of_an_older_format_lack_a_column(tmp_path, monkeypatch):
    import duckdb

    monkeypatch.setattr(engine, "_MANY", 2)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "old.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["new"]}), tmp_path / "new.parquet")
    with duckdb.connect() as connection:
        paths = engine.compact(
            connection, "some", [tmp_path / "old.parquet", tmp_path / "new.parquet"], tmp_path
        )
        rows = connection.execute(f"SELECT a, b FROM {engine.source(paths)} ORDER BY a").fetchall()
    assert (len(paths), rows) == (1, [(1, None), (2, "new")])


def test_large_files_stay_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_MANY", 2)
    monkeypatch.setattr(engine, "_SMALL_BYTES", 3)
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_bytes(b"large")
    assert engine.compact(None, "some", paths, tmp_path) == paths
