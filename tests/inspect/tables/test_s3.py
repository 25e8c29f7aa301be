"""Bundles and a lake in an object store: written, added to, and read by every way in."""

import json
from pathlib import Path
from typing import Any

import pytest
import vmsonar_inspect
from vmsonar_inspect.tables import stores
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import USAGE, make
from tests.parts import requires
from tests.real.s3 import S3Server
from vmsonar.cli import run

pytestmark = requires("moto")


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An address in a bucket of this test."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = request.node.name.replace("_", "-").lower()[:50]
    s3_server.client().create_bucket(Bucket=bucket)
    return f"s3://{bucket}/fleet"


def keys(server: S3Server, store: str) -> list[str]:
    found = server.client().list_objects_v2(Bucket=store.split("/")[2])
    return [entry["Key"] for entry in found.get("Contents", [])]


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any, str]:
    code = run([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out.startswith(("{", "[")) else out, err


def test_a_lake_grows(
    tmp_path: Path, s3_server: S3Server, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    export = ("export", tmp_path / "a", "--to", "parquet", "-o", store, "--json")
    machine = make(tmp_path / "a")
    assert ask(capsys, *export)[:2] == (0, {"days": 1, "files": 13, "bytes": pytest.approx(2e5, rel=1)})
    assert ask(capsys, *export)[:2] == (0, {"days": 0, "files": 0, "bytes": 0})
    before = keys(s3_server, store)
    machine.start_daemon()
    machine.run(10)
    machine.stop_daemon()
    assert ask(capsys, *export)[1]["days"] == 1
    after = keys(s3_server, store)
    assert set(before) < set(after)
    assert len([key for key in after if key.startswith("fleet/kind=job/date=2026-11-16/")]) == 2
    with open_tables([tmp_path / "a"]) as here, open_tables([store]) as there:
        assert there.sql(USAGE).fetchall() == here.sql(USAGE).fetchall()


def test_a_lake_is_verified(
    tmp_path: Path, s3_server: S3Server, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "a")
    assert ask(capsys, "export", tmp_path / "a", "--to", "parquet", "-o", store)[0] == 0
    code, report, _ = ask(capsys, "verify", store, "--json")
    assert (code, report["ok"], report["findings"]) == (0, True, [])
    bucket, client = store.split("/")[2], s3_server.client()
    (key,) = (key for key in keys(s3_server, store) if "/kind=job/" in key)
    content = bytearray(client.get_object(Bucket=bucket, Key=key)["Body"].read())
    content[len(content) // 2] ^= 1
    client.put_object(Bucket=bucket, Key=key, Body=bytes(content))
    code, report, _ = ask(capsys, "verify", store, "--json")
    assert code == 1
    found = [(one["code"], one["path"]) for one in report["findings"]]
    assert found == [("corrupt", key.removeprefix("fleet/"))]
    client.delete_object(Bucket=bucket, Key=key)
    assert ask(capsys, "verify", store, "--quick", "--json")[1]["findings"][0]["code"] == "missing"


def test_a_lake_is_asked_by_every_way_in(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "a")
    assert ask(capsys, "export", tmp_path / "a", "--to", "parquet", "-o", store)[0] == 0
    check_ways_in(store, capsys)


def test_bundles_are_asked_by_every_way_in(
    tmp_path: Path, s3_server: S3Server, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b", machine_id="1" * 32, samples=2)
    for name in ("a", "b"):
        assert run(["bundle", "--archive", str(tmp_path / name), "-o", str(tmp_path / f"{name}.tar")]) == 0
        bucket, prefix = store.split("/")[2:]
        s3_server.client().upload_file(str(tmp_path / f"{name}.tar"), bucket, f"{prefix}/{name}.tar")
    capsys.readouterr()
    check_ways_in(f"{store}/a.tar", capsys)
    rows = ask(capsys, "sql", store, "SELECT count(DISTINCT archive) AS n FROM samples", "--json")[1]
    assert rows == [{"n": 2}]
    assert run(["export", store, "--to", "parquet", "-o", str(tmp_path / "lake")]) == 0
    with open_tables([tmp_path / "a", tmp_path / "b"]) as here, open_tables([tmp_path / "lake"]) as there:
        assert there.sql(USAGE).fetchall() == here.sql(USAGE).fetchall()


def check_ways_in(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT pgid, round(cpu_seconds) AS cpu FROM job_usage"
    expected = [{"pgid": 20, "cpu": 554.0}]
    assert ask(capsys, "sql", address, query, "--json")[:2] == (0, expected)
    code, told, _ = ask(capsys, "inspect", address, "jobs", "--json")
    assert (code, [round(row["cpu_seconds"]) for row in told["rows"]]) == (0, [554])
    code, told, _ = ask(capsys, "inspect", address, "--json")
    assert (code, told["rows"][0]["machine"]["source"]) == (0, address)
    with vmsonar_inspect.open_tables([address]) as tables:
        assert tables.arrow(query).to_pylist() == expected
        assert list(tables.pandas("job_usage")["pgid"]) == [20]
        assert tables.polars("job")["pgid"].unique().to_list() == [20]


def test_a_damaged_bundle_is_named_by_its_address(
    tmp_path: Path, s3_server: S3Server, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "a", samples=2)
    run(["bundle", "--archive", str(tmp_path / "a"), "-o", str(tmp_path / "a.tar")])
    bucket, prefix = store.split("/")[2:]
    client = s3_server.client()
    client.upload_file(str(tmp_path / "a.tar"), bucket, f"{prefix}/a.tar")
    client.put_object(Bucket=bucket, Key=f"{prefix}/b.tar", Body=b"not a bundle")
    capsys.readouterr()
    code, rows, err = ask(capsys, "sql", store, "SELECT count(*) AS n FROM samples", "--json")
    assert (code, rows) == (1, [{"n": 2}])
    assert f"{store}/b.tar" in err


def test_what_is_not_there_is_one_line(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for address in (store, "s3://no-such-bucket-here/x", f"{store}/none.tar"):
        code, out, err = ask(capsys, "sql", address, "SELECT 1")
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert address.removesuffix("/x") in err


def test_an_export_that_fails_midway_is_made_good(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples are written last: until then nothing of that day is seen."""
    make(tmp_path / "a")
    put = stores.ObjectStore.put

    def failing(self: Any, source: Path, name: str) -> None:
        if name.startswith("kind=samples/"):
            raise OSError(5, "the store went away")
        put(self, source, name)

    export = ["export", str(tmp_path / "a"), "--to", "parquet", "-o", store]
    with monkeypatch.context() as patch:
        patch.setattr(stores.ObjectStore, "put", failing)
        assert run(export) == 3
    with open_tables([store]) as tables:
        assert tables.sql("SELECT count(*) FROM job").fetchall() == [(0,)]
    assert run(export) == 0
    with open_tables([tmp_path / "a"]) as here, open_tables([store]) as there:
        assert there.sql(USAGE).fetchall() == here.sql(USAGE).fetchall()
