"""Deriving and exporting that are killed at any moment: nothing is harmed, and the next run completes the work."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from vmsonar_archive.parquet.derive import derive_day, due_days
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.system.files import AtomicFile
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import USAGE, Job, Machine, make_days
from tests.parts import requires
from tests.real.s3 import S3Server
from vmsonar.cli import run

pytestmark = pytest.mark.slow

#: Seconds after which a process is killed: while it starts, reads, writes and renames.
CHANCE = random.Random(6)


def make_large(root: Path) -> None:
    """Two days with enough rows that writing them takes a while."""
    machine = Machine(root, booted=datetime(2026, 11, 10, 23, 0, tzinfo=UTC), uptime=0.0)
    machine.jobs = [Job(20 + n, start=33.0, end=1e9, cores=0.01) for n in range(60)]
    machine.start_daemon()
    machine.run(700)
    machine.stop_daemon()


def command(*arguments: object) -> list[str]:
    # The unit's own command.
    return [sys.executable, "-I", "-m", "vmsonar", *map(str, arguments)]


def kill_after(seconds: float, arguments: list[str], environment: dict[str, str] | None = None) -> bool:
    """Starts it and kills it with its children; True when it had not ended by itself."""
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def moments(arguments: list[str], kills: int) -> list[float]:
    """Random moments within the time that the whole takes."""
    begin = time.monotonic()
    subprocess.run(arguments, check=True, capture_output=True, timeout=300)
    whole = time.monotonic() - begin
    return sorted(CHANCE.uniform(0.2, 1.0) * whole for _ in range(kills))


def records(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and path.suffix != ".parquet"
        and not path.name.startswith((".", "journal", "writer"))
    }


@pytest.mark.parametrize("written", [0, 1, 5, 12])
def test_a_day_counts_as_derived_when_all_its_tables_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    make_days(tmp_path / "a")
    day, commit, committed = date(2026, 11, 15), AtomicFile.commit, []

    def commit_some(self: AtomicFile) -> None:
        if len(committed) == written:
            self.abandon()
            raise KeyboardInterrupt
        committed.append(self)
        commit(self)

    with monkeypatch.context() as patch:
        patch.setattr(AtomicFile, "commit", commit_some)
        with pytest.raises(KeyboardInterrupt):
            derive_day(tmp_path / "a", day)
    tables = sorted(path.name for path in (tmp_path / "a").rglob("*.parquet"))
    assert (len(tables), "samples.parquet" in tables) == (written, False)
    with open_archive(tmp_path / "a") as archive:
        assert day in due_days(archive, date(2026, 11, 16))
    machine = Machine(tmp_path / "a", booted=datetime(2026, 11, 16, 1, tzinfo=UTC))
    machine.start_daemon()
    machine.stop_daemon()
    assert "derive" not in (tmp_path / "a" / "journal.jsonl").read_text()


def test_derive_is_killed_and_run_again(tmp_path: Path) -> None:
    make_large(tmp_path / "model")
    make_large(tmp_path / "a")
    derive_killed(tmp_path / "a", moments(command("derive", "--archive", tmp_path / "model"), 6))


@pytest.mark.chaos
def test_derive_is_killed_very_often(tmp_path: Path) -> None:
    make_large(tmp_path / "model")
    times = moments(command("derive", "--archive", tmp_path / "model"), 30)
    for number in range(4):
        make_large(tmp_path / str(number))
        derive_killed(tmp_path / str(number), times)


def derive_killed(root: Path, times: list[float]) -> None:
    with open_tables([root], cache=False) as tables:
        expected = tables.sql(USAGE).fetchall()
    before = records(root)
    killed = 0
    for seconds in times:
        killed += kill_after(seconds, command("derive", "--archive", root))
        assert records(root) == before
    assert killed
    machine = Machine(root, booted=datetime(2026, 11, 10, 23, 0, tzinfo=UTC), uptime=7000.0)
    machine.start_daemon()  # the recorder goes on, whatever lies about
    machine.run(1)
    machine.stop_daemon()
    assert subprocess.run(command("derive", "--archive", root), check=False, timeout=300).returncode == 0
    assert sorted(path.parent.name for path in root.rglob("samples.parquet")) == ["10", "11"]
    assert leftovers(root) == []
    assert run(["verify", str(root), "--deep"]) == 0
    with open_tables([root], cache=False) as tables:
        assert tables.sql(USAGE).fetchall() == expected


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*") if path.name.startswith(".") or path.name.endswith(".tmp")]


def test_an_export_is_killed_and_repeated(tmp_path: Path) -> None:
    make_days(tmp_path / "a")
    lake = tmp_path / "lake"
    export = command("export", tmp_path / "a", "--to", "parquet", "-o")
    for seconds in moments([*export, str(tmp_path / "model")], 5):
        kill_after(seconds, [*export, str(lake)])
        if lake.exists() and any(lake.glob("kind=samples/*/*/*.parquet")):
            with open_tables([lake]) as tables:  # what is seen is seen whole
                counted = tables.sql(
                    "SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM node), (SELECT count(*) FROM net)"
                ).fetchone()
                assert counted[0] == counted[1] == counted[2] / 2
    subprocess.run([*export, str(lake)], check=True, capture_output=True, timeout=300)
    assert tree(lake) == tree(tmp_path / "model")
    assert run(["verify", str(lake)]) == 0
    with open_tables([tmp_path / "a"]) as here, open_tables([lake]) as there:
        assert there.sql(USAGE).fetchall() == here.sql(USAGE).fetchall()


def tree(lake: Path) -> dict[str, bytes]:
    """The tables; an export that was killed leaves more and smaller manifests than one that was not."""
    return {
        str(path.relative_to(lake)): path.read_bytes() for path in lake.glob("kind=*/**/*") if path.is_file()
    }


@requires("moto")
def test_an_export_to_a_store_is_killed_and_repeated(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    client = s3_server.client()
    client.create_bucket(Bucket="killed")
    make_days(tmp_path / "a")
    export = command("export", tmp_path / "a", "--to", "parquet", "--json", "-o")
    for seconds in moments([*export, "s3://killed/model"], 4):
        kill_after(seconds, [*export, "s3://killed/lake"])
    subprocess.run([*export, "s3://killed/lake"], check=True, capture_output=True, timeout=300)
    assert objects(client, "lake/") == objects(client, "model/")
    again = subprocess.run([*export, "s3://killed/lake"], check=True, capture_output=True, timeout=300)
    assert json.loads(again.stdout)["files"] == 0
    with open_tables([tmp_path / "a"]) as here, open_tables(["s3://killed/lake"]) as there:
        assert there.sql(USAGE).fetchall() == here.sql(USAGE).fetchall()


def objects(client: object, prefix: str) -> dict[str, str]:
    found = client.list_objects_v2(Bucket="killed", Prefix=prefix)["Contents"]  # type: ignore[attr-defined]
    return {entry["Key"].removeprefix(prefix): entry["ETag"] for entry in found}
