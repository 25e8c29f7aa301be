"""A lake in an object store: written, added to, and read."""

from pathlib import Path

import pytest
from vmsonar_inspect.tables import open_tables

from tests.lake.test_sources import USAGE, make
from tests.parts import requires
from tests.real.s3 import S3Server
from vmsonar.cli import run

pytestmark = requires("moto")


def test_a_lake_in_a_bucket(tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    client = s3_server.client()
    client.create_bucket(Bucket="lake")
    machine = make(tmp_path / "a")
    assert run(["export", str(tmp_path / "a"), "--to", "parquet", "-o", "s3://lake/fleet"]) == 0
    machine.start_daemon()
    machine.run(10)
    machine.stop_daemon()
    assert run(["export", str(tmp_path / "a"), "--to", "parquet", "-o", "s3://lake/fleet"]) == 0
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="lake")["Contents"]]
    assert len([key for key in keys if key.startswith("fleet/kind=job/date=2026-11-16/")]) == 2
    with open_tables([tmp_path / "a"]) as here, open_tables(["s3://lake/fleet"]) as there:
        assert there.sql(USAGE).fetchall() == here.sql(USAGE).fetchall()
