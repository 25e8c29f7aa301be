"""`vmsonar export`: CSV, a lake that grows without repeating itself, and Sonar's tree."""

import csv
import json
import os
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.format.lines import BadLine, decode_stamp
from vmsonar_inspect.tables.database import open_tables

from tests.archive.dialect.sonar_rules import validate
from tests.making.archives import BOOT, START, boottime_at, open_writer, record
from tests.making.worlds import USAGE, Job, Machine, make, make_days
from vmsonar.cli import run


def export(*arguments: object) -> int:
    return run(["export", *map(str, arguments)])


def usage(*paths: Path) -> list[tuple]:
    with open_tables(list(paths)) as tables:
        return tables.sql(USAGE).fetchall()


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_size) for path in files}


def test_csv(tmp_path: Path) -> None:
    make(tmp_path / "a", samples=5)
    assert export(tmp_path / "a", "--to", "csv", "-o", tmp_path / "out") == 0
    text = (tmp_path / "out" / "process.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["pid"] for row in rows] == ["20"] * 3
    assert not (tmp_path / "out" / "event.csv").exists()
    assert export(tmp_path / "a", "--to", "csv", "-o", tmp_path / "o2", "--tables", "job_usage") == 0
    assert [path.name for path in (tmp_path / "o2").iterdir()] == ["job_usage.csv"]
    assert export(tmp_path / "a", "--to", "csv", "-o", tmp_path / "o3", "--tables", "nothing") == 2


def test_a_lake_answers_as_the_archives_do(tmp_path: Path) -> None:
    make_days(tmp_path / "in" / "a")
    make(tmp_path / "in" / "b", machine_id="1" * 32)
    assert export(tmp_path / "in", "--to", "parquet", "-o", tmp_path / "lake") == 0
    assert usage(tmp_path / "lake") == usage(tmp_path / "in")
    partitions = {path.name for path in (tmp_path / "lake" / "kind=job").iterdir()}
    assert partitions == {"date=2026-11-15", "date=2026-11-16"}


def test_the_same_again_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "a")
    for _ in range(2):
        assert export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake", "--json") == 0
    first, second = capsys.readouterr().out.split("}\n")[:2]
    assert json.loads(first + "}")["days"] == 1
    assert json.loads(second + "}") == {"days": 0, "files": 0, "bytes": 0}


def test_overlapping_exports_add_what_is_new(tmp_path: Path) -> None:
    machine = make(tmp_path / "a")
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake")
    before = snapshot(tmp_path / "lake")
    machine.start_daemon()
    machine.run(20)
    machine.stop_daemon()
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake")
    after = snapshot(tmp_path / "lake")
    assert before.items() < after.items()
    assert usage(tmp_path / "lake") == usage(tmp_path / "a")


def test_overlapping_lakes_merge(tmp_path: Path) -> None:
    machine = make(tmp_path / "a")
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "early")
    machine.start_daemon()
    machine.run(20)
    machine.stop_daemon()
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "late")
    whole = usage(tmp_path / "a")
    assert usage(tmp_path / "early", tmp_path / "late") == whole
    assert export(tmp_path / "late", "--to", "parquet", "-o", tmp_path / "early") == 0
    assert usage(tmp_path / "early") == whole


def test_an_interrupted_export_is_not_seen_and_is_made_good(tmp_path: Path) -> None:
    make(tmp_path / "a")
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake")
    shutil.rmtree(tmp_path / "lake" / "kind=samples")
    with open_tables([tmp_path / "lake"]) as tables:
        assert tables.sql("SELECT count(*) FROM process").fetchall() == [(0,)]
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake")
    assert usage(tmp_path / "lake") == usage(tmp_path / "a")


def test_what_a_killed_export_had_begun_goes_with_the_next(tmp_path: Path) -> None:
    machine = make(tmp_path / "a")
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake")
    (table,) = tmp_path.glob("lake/kind=node/*/*/*.parquet")
    dead = subprocess.Popen(["true"])
    dead.wait()
    begun, under_way, foreign = (
        table.with_name(f".{table.name}.{writer}.partial") for writer in (dead.pid, os.getpid(), "theirs")
    )
    for path in (begun, under_way, foreign):
        path.write_bytes(b"PAR1")
    machine.start_daemon()
    machine.run(20)
    machine.stop_daemon()
    export(tmp_path / "a", "--to", "parquet", "-o", tmp_path / "lake")
    assert not begun.exists()
    assert under_way.exists()
    assert foreign.exists()


def test_sonar(tmp_path: Path) -> None:
    machine = make(tmp_path / "in" / "a")
    shutil.copytree(tmp_path / "in" / "a", tmp_path / "in" / "copy")
    machine.start_daemon()
    machine.run(5)
    machine.stop_daemon()
    make(tmp_path / "in" / "b", machine_id="1" * 32)
    assert export(tmp_path / "in", "--to", "sonar", "-o", tmp_path / "out", "--cluster", "c.example") == 0
    files = sorted(
        path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file()
    )
    assert {str(path.parent) for path in files} == {"2026/11/16"}
    names = [path.name for path in files]
    assert "0+sample-vm.json" in names
    assert "0+sysinfo-vm.json" in names
    assert len(names) == 4
    lines = {path.name: (tmp_path / "out" / path).read_bytes().splitlines() for path in files}
    assert sorted(len(found) for name, found in lines.items() if "sample" in name) == [30, 35]
    for found in lines.values():
        for line in found:
            validate(line)


def test_a_row_that_no_table_can_hold_is_told_by_whoever_leaves_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also afterwards, by the tables alone."""
    archive, lake = str(tmp_path / "archive"), str(tmp_path / "lake")
    writer = open_writer(tmp_path / "archive")
    record(writer, 3)
    writer.append(
        START + timedelta(minutes=1),
        BOOT,
        boottime_at(START) + 10**11,
        {"node": [b'{"user_ticks":%d}' % 2**63]},
    )
    writer.close()
    count = "SELECT count(*) FROM node"
    for command in (
        ["export", archive, "--to", "parquet", "-o", lake],
        ["derive", "--archive", archive],
        ["sql", archive, count],
        ["sql", lake, count],
    ):
        assert run(command) == 1, command
        assert "1 rows or records" in capsys.readouterr().err, command


@pytest.mark.parametrize("stamp", [b'"boottime":%d' % 2**63, b'"seq":%d' % 2**70])
def test_a_stamp_beyond_64_bits_is_a_bad_line(stamp: bytes) -> None:
    line = b'{"time":"2026-11-16T14:00:00Z","run":"r","boot":"b","seq":1,"boottime":1,%b}' % stamp
    with pytest.raises(BadLine):
        decode_stamp(line)


def test_as_many_jobs_have_imported_series_as_the_configuration_or_the_option_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "a")
    machine.jobs = [Job(pgid, start=50.0, end=1e9, cores=0.1) for pgid in range(1, 104)]
    machine.start_daemon()
    machine.run(2)
    machine.stop_daemon()
    config = tmp_path / "config.yaml"
    config.write_text("metrics: {places: 102}")

    def jobs(to: str, *words: object) -> int:
        folder = tmp_path / f"{to}{'-'.join(map(str, words))}"
        assert export(tmp_path / "a", "--to", to, "-o", folder, *words) == 0
        (file,) = (path for path in folder.iterdir() if not path.name.endswith("-logs.jsonl"))
        return len(
            set(re.findall(r'job_id="(\d+)|job\.id","value":\{"stringValue":"(\d+)', file.read_text()))
        )

    for to in ("openmetrics", "otlp-json"):
        monkeypatch.delenv("VMSONAR_CONFIG", raising=False)
        assert jobs(to) == 100
        monkeypatch.setenv("VMSONAR_CONFIG", str(config))
        assert jobs(to, "--step", "10s") == 102
        assert jobs(to, "--places", 103) == 103
    assert export(tmp_path / "a", "--to", "openmetrics", "-o", tmp_path / "o", "--places", 20_000) == 2
