"""`vmsonar sql`: formats, explanations, and what a query may not do."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.making.worlds import Job, Machine
from vmsonar.cli import run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sql") / "archive"
    machine = Machine(root)
    machine.jobs = [Job(20, start=123.0, end=1e9, cores=2.0, command="=cmd|' /C calc'!A0")]
    machine.start_daemon()
    machine.run(12)
    machine.stop_daemon()
    return root


def sql(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = run(["sql", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_table_for_people(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = sql(capsys, archive, "SELECT pgid, cores_p95, user_name FROM job_usage")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["pgid", "cores_p95", "user_name"],
        ["20", "2", "alice"],
    ]


def test_json(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = sql(
        capsys, archive, "SELECT time, seq, NULL AS nothing FROM samples ORDER BY seq LIMIT 2", "--json"
    )
    assert json.loads(out) == [
        {"time": "2026-11-16T14:00:10.000000Z", "seq": 2, "nothing": None},
        {"time": "2026-11-16T14:00:20.000000Z", "seq": 3, "nothing": None},
    ]
    assert json.loads(sql(capsys, archive, "SELECT 1 WHERE false", "--json")[1]) == []


def test_csv_that_a_spreadsheet_does_not_run(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = sql(capsys, archive, "SELECT command, -1 AS less FROM job_usage", "--format", "csv")
    assert list(csv.reader(io.StringIO(out))) == [["command", "less"], ["'=cmd|' /C calc'!A0", "-1"]]


def test_parquet(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "answer.parquet"
    code, _, _ = sql(capsys, archive, "SELECT seq FROM samples", "--format", "parquet", "-o", target)
    assert code == 0
    assert pq.read_table(target).num_rows == 12
    assert sql(capsys, archive, "SELECT 1", "--format", "parquet")[0] == 2


def test_a_frame(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = ("SELECT count(*) AS samples FROM samples", "--from", "2026-11-16T14:01:00Z", "--json")
    assert json.loads(sql(capsys, archive, *query)[1]) == [{"samples": 7}]
    assert sql(capsys, archive, "SELECT 1", "--from", "soon")[0] == 2


def test_every_table_and_column_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = sql(capsys, "--tables")
    assert "job_usage: Every job over its recorded life." in out
    assert "cores, 95th percentile" in out or "95th percentile" in out
    entries = {entry["name"]: entry for entry in json.loads(sql(capsys, "--tables", "--json")[1])}
    assert "node_rates" in entries
    assert all(all(entry["columns"].values()) for entry in entries.values())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '{tmp}/out.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM read_parquet('https://example.org/a.parquet')",
        "SET enable_external_access = true",
        "ATTACH '{tmp}/db' AS db",
        "SELECT * FROM nothing_here",
        "SELEC 1",
    ],
)
def test_what_a_query_may_not_do(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], query: str
) -> None:
    code, out, err = sql(capsys, archive, query.format(tmp=tmp_path))
    assert (code, out) == (2, "")
    assert err.startswith("vmsonar: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_too_few_arguments(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql(capsys, archive)[0] == 2
    assert sql(capsys)[0] == 2


def test_damage_is_named_and_the_rest_answered(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.tar").write_bytes(b"no bundle")
    code, out, err = sql(
        capsys, archive, tmp_path / "broken.tar", "SELECT count(*) AS n FROM samples", "--json"
    )
    assert code == 1
    assert json.loads(out) == [{"n": 12}]
    assert "broken.tar" in err
