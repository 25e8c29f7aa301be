"""Parquet in bundles: made on request, compared with the records by a deep look, and bombs that are not read."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vmsonar_archive.bundle.make import BundleOptions, bundle_to_file
from vmsonar_archive.format.bag import BundledFile
from vmsonar_archive.read.source import BundleSource
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.path import verify_path

from tests.archive.bundle import hostile
from tests.archive.bundle.commands import MEMORY, SECONDS, run_measured


@pytest.fixture(scope="module")
def with_tables(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("tables")
    bundled = bundle_to_file(archive, output, options=BundleOptions(parquet=True))
    assert bundled.findings == []
    return Path(bundled.output)


def test_tables_are_made_and_equal_to_the_records(with_tables: Path) -> None:
    source = BundleSource(with_tables)
    tables = [path for path in source.sizes() if path.endswith(".parquet")]
    with source.open("2026/11/16/process.parquet") as stream:
        assert pq.read_table(stream).num_rows == 120
    assert {file.path for file in source.record().files} == set(tables)
    source.close()
    assert verify_path(with_tables).findings == []
    assert verify_path(with_tables, Depth.DEEP).findings == []


def test_tables_are_deterministic(archive: Path, with_tables: Path, tmp_path: Path) -> None:
    again = bundle_to_file(archive, tmp_path, options=BundleOptions(parquet=True))
    assert Path(again.output).read_bytes() == with_tables.read_bytes()


def _with_table(bundle: Path, table: bytes) -> bytes:
    """A bundle that is right in every hash, with its records and another process table."""
    source = BundleSource(bundle)
    payload, described = {}, []
    for path in (
        "archive.json",
        "journal.jsonl",
        *[path for path in source.sizes() if path.endswith(".zst")],
    ):
        with source.open(path) as stream:
            payload[path] = stream.read()
    path = "2026/11/16/process.parquet"
    described.append(
        BundledFile(
            path=path, operations=["derive"], bytes=len(table), sha256=hashlib.sha256(table).hexdigest()
        )
    )
    head, archive = source.record().head, source.record().archive
    source.close()
    payload = dict(sorted({**payload, path: table}.items(), key=lambda item: (item[0][0] == "2", item[0])))
    return hostile.canonical(payload, described, head=head, archive=archive)


def _table(columns: dict[str, pa.Array], tmp_path: Path) -> bytes:
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", compression="zstd")
    return (tmp_path / "t.parquet").read_bytes()


def test_table_that_differs_is_found(bundle: Path, with_tables: Path, tmp_path: Path) -> None:
    source = BundleSource(with_tables)
    with source.open("2026/11/16/process.parquet") as stream:
        table = pq.read_table(stream)
    source.close()
    values = table["user_ticks"].to_pylist()
    values[7] += 1
    place = table.schema.get_field_index("user_ticks")
    changed = table.set_column(place, table.schema.field(place), pa.array(values, table["user_ticks"].type))
    pq.write_table(changed, tmp_path / "t.parquet")
    (tmp_path / "x.tar").write_bytes(_with_table(bundle, (tmp_path / "t.parquet").read_bytes()))
    assert verify_path(tmp_path / "x.tar").ok
    report = verify_path(tmp_path / "x.tar", Depth.DEEP)
    assert [finding.detail for finding in report.findings] == ["differs from the records it was made from"]


@pytest.mark.parametrize("bomb", ["rows", "bytes", "random"])
def test_bombs(bomb: str, bundle: Path, tmp_path: Path) -> None:
    if bomb == "rows":
        table = _table({"pid": pa.array([1]).take(pa.array([0] * 5_000_000))}, tmp_path)
    elif bomb == "bytes":
        table = _table({"pid": pa.array(["x" * 500_000] * 120)}, tmp_path)
    else:
        table = b"PAR1" + b"\x00" * 500 + b"\xff\xff\xff\x7fPAR1"
    (tmp_path / "hostile.tar").write_bytes(_with_table(bundle, table))
    (tmp_path / "t.parquet").unlink(missing_ok=True)
    (run,) = run_measured(tmp_path, ["verify", "--deep", "--json", "hostile.tar"])
    assert run["code"] == 1, run["said"]
    (finding,) = json.loads(run["said"])["findings"]
    assert finding["path"] == "2026/11/16/process.parquet"
    assert run["seconds"] < SECONDS
    assert run["memory"] < MEMORY, run
