"""Anyone can read an archive without vmsonar: zstdcat, jq and DuckDB do."""

import json
import subprocess
from pathlib import Path

import pytest
from vmsonar_archive.records import KINDS, Stamp, SysInfo
from vmsonar_archive.records.fields import fields_of

from tests.making.archives import make_archive, open_writer, record, segments
from tests.parts import requires


@requires("zstd", "jq")
def test_zstdcat_and_jq_read_a_live_and_a_sealed_segment(tmp_path):
    root = make_archive(tmp_path, count=5)
    (path,) = segments(root)
    text = subprocess.run(["zstdcat", str(path)], capture_output=True, check=True).stdout
    seqs = subprocess.run(["jq", ".seq"], input=text, capture_output=True, check=True).stdout
    assert seqs.split() == [b"2", b"3", b"4", b"5", b"6"]
    writer = open_writer(root)
    record(writer, 3)
    live = segments(root)[-1]
    torn = subprocess.run(["zstdcat", str(live)], capture_output=True, check=False).stdout
    writer.close()
    assert [json.loads(line)["seq"] for line in torn.splitlines()] == [7, 8, 9]


def test_duckdb_reads_a_segment_with_plain_sql(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    root = make_archive(tmp_path, count=70)
    (path,) = segments(root)
    query = f"""
        select count(*), max(p.user_ticks) from (
          select unnest(process) as p from read_json('{path}', format='newline_delimited', compression='zstd'))
    """
    connection = duckdb.connect()
    assert connection.sql(query).fetchall() == [(210, 207)]


@pytest.mark.parametrize("kind", [*KINDS, "sysinfo"])
def test_every_name_can_be_selected_unquoted(kind):
    duckdb = pytest.importorskip("duckdb")
    names = [field.name for field in fields_of(KINDS.get(kind, SysInfo))]
    stamp = list(Stamp.__struct_fields__) if kind != "sysinfo" else []
    columns = ", ".join(f"1 as {name}" for name in names + stamp)
    connection = duckdb.connect()
    connection.sql(f"create table {kind} as select {columns}")
    for name in names:
        assert connection.sql(f"select {name} from {kind} where {name} = 1 group by {name}").fetchall() == [
            (1,)
        ]
        assert connection.sql(f"select {kind}.{name} as {name} from {kind}").columns == [name]


def test_the_guard_stands_against_shadowing_the_standard_library():
    assert not (Path(__file__).resolve().parents[3] / "inspect" / "__init__.py").exists()
