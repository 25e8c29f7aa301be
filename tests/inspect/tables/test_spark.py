"""The rollups on Spark give the rows that DuckDB gives, over the same lake; and the command that asks it."""

import csv
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vmsonar_archive.parquet.schema import TABLES, columns_of
from vmsonar_archive.records import BatchJobRow, CgroupRow
from vmsonar_inspect.tables import spark as on_spark
from vmsonar_inspect.tables.database import Tables, open_tables
from vmsonar_inspect.tables.spark import SparkTables
from vmsonar_inspect.tables.views import VIEWS

from tests.making.lives import make_lives
from tests.making.machines import Load, Machine
from tests.making.worlds import USAGE, make, make_days, make_history
from tests.parts import requires
from vmsonar.cli import run

pytestmark = [requires("spark"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four machines: restarts, a reboot, a gap, clock steps, resets, a container, a GPU, midnights, lives, Slurm."""
    folder = tmp_path_factory.mktemp("spark")
    make_history(folder / "in" / "a")
    make_days(folder / "in" / "b")
    make_lives(folder / "in" / "c", midnight=125)
    make_batch(folder / "in" / "d")
    assert run(["export", str(folder / "in"), "--to", "parquet", "-o", str(folder / "lake")]) == 0
    return folder / "lake"


def make_batch(folder: Path) -> None:
    """A node of Slurm with a step of a job, and a service."""
    told = BatchJobRow(
        batch_job="77", user_name="anna", job_state="RUNNING", account="physics", project="lhc"
    )
    more: list[tuple[int, str, Any]] = [(100, "batch_job", told)]
    for second in range(10, 110, 10):
        service = CgroupRow(cgroup="/system.slice/a.service", cgroup_kind="service", unit_name="a.service",
                            cpu_time=second * 10**8, memory_used=2**20, memory_inactive_file=2**10)  # fmt: skip
        step = CgroupRow(cgroup="/slurm/uid_1/job_77/step_0", cgroup_kind="slurm", batch_job="77", batch_step="0",
                         cpu_time=second * 10**9, memory_used=2**30)  # fmt: skip
        more += [(second, "cgroup", service), (second, "cgroup", step)]
    load = Load(100, "./solve", begin=0, end=200, cores=1.0, job_id="77", step="0", task=1)
    Machine(hostname="d", machine_id="d" * 32, loads=[load], more=more).record(folder, 130)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A session for few rows: compiling queries would cost more than running them."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]").appName("vmsonar-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def engines(lake: Path, session: Any) -> Iterator[tuple[SparkTables, Tables]]:
    with SparkTables([lake], session=session.newSession()) as spark, open_tables([lake]) as duck:
        yield spark, duck


def rows(result: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(rounded, row)) for row in result.fetchall()), key=repr)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return 0.0 if value == 0 else round(value, 9 - math.ceil(math.log10(abs(value))))
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


@pytest.mark.parametrize("name", VIEWS)
def test_both_engines_agree(engines: tuple[SparkTables, Tables], name: str) -> None:
    spark, duck = engines
    query = f"SELECT * FROM {name}"
    found, expected = spark.sql(query), duck.sql(query)
    assert [column[0] for column in found.description] == [column[0] for column in expected.description]
    told = rows(expected)
    # Machines without shares and fabrics.
    assert told or name in ("netfs_rates", "fabric_rates")
    assert rows(found) == told


def test_account_and_project_come_with_each_job_from_a_lake(engines: tuple[SparkTables, Tables]) -> None:
    query = "SELECT batch_step, batch_task, account, project FROM job_usage WHERE job_id = '77'"
    rates = "SELECT unit_name, batch_job, MAX(cpu_cores) FROM cgroup_rates GROUP BY unit_name, batch_job"
    for engine in engines:
        assert engine.sql(query).fetchall() == [("0", 1, "physics", "lhc")]
        found = {row[:2]: row[2] for row in engine.sql(rates).fetchall()}
        assert found == {("a.service", None): pytest.approx(0.1), (None, "77"): pytest.approx(1.0)}


def test_columns_have_the_same_types(engines: tuple[SparkTables, Tables]) -> None:
    spark, duck = engines
    for name in VIEWS:
        query = f"SELECT * FROM {name} LIMIT 0"
        if not name.startswith("latest_"):
            assert types(spark.sql(query).to_arrow_table()) == types(duck.arrow(query)), name


def types(table: pa.Table) -> dict[str, str]:
    """Times are UTC on both, which only Spark says."""
    return {field.name: str(field.type).replace(", tz=UTC", "") for field in table.schema}


def test_every_field_can_be_selected_unquoted_on_spark(engines: tuple[SparkTables, Tables]) -> None:
    spark, _ = engines
    spark.require(TABLES)
    for table in TABLES:
        names = [field.name for field in columns_of(table)]
        aliased = ", ".join(f"t.{name} AS {name}" for name in names)
        spark.session.sql(f"SELECT {', '.join(names)} FROM (SELECT {aliased} FROM {table} AS t) AS t")


def test_a_time_frame_and_overlapping_lakes(tmp_path: Path, session: Any) -> None:
    machine = make(tmp_path / "a")
    run(["export", str(tmp_path / "a"), "--to", "parquet", "-o", str(tmp_path / "early")])
    machine.start_daemon()
    machine.run(20)
    machine.stop_daemon()
    run(["export", str(tmp_path / "a"), "--to", "parquet", "-o", str(tmp_path / "late")])
    lakes = [tmp_path / "early", tmp_path / "late"]
    frame = {"until": datetime(2026, 11, 16, 14, 6, tzinfo=UTC)}
    for settings, query in (({}, USAGE), (frame, "SELECT min(seq), max(seq), count(*) FROM job")):
        with (
            SparkTables(lakes, session=session.newSession(), **settings) as spark,
            open_tables([tmp_path / "a"], **settings) as duck,
        ):
            assert spark.sql(query).fetchall() == duck.sql(query).fetchall()


def test_what_is_no_lake_is_refused(tmp_path: Path, session: Any) -> None:
    make(tmp_path / "a", samples=2)
    with pytest.raises(Exception, match="is not a lake"):
        SparkTables([tmp_path / "a"], session=session)


QUERY = "SELECT job_id, max(memory) AS memory FROM job_rates WHERE user_name = 'bob' GROUP BY job_id"


@pytest.fixture
def shared(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets a session of its own from the one that runs."""
    own = session.newSession()
    own.stop = lambda: None
    monkeypatch.setattr(on_spark, "_session", lambda: own)


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run(["sql", "--engine", "spark", *map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.mark.usefixtures("shared")
def test_the_command_in_every_format(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(ask(capsys, lake, QUERY, "--json")[1]) == [{"job_id": "30", "memory": 100 * 2**20}]
    table = ask(capsys, lake, QUERY)[1]
    assert [line.split() for line in table.splitlines()] == [
        ["job_id", "memory"],
        ["30", "104857600"],
    ]
    text = ask(capsys, lake, QUERY, "--format", "csv")[1]
    assert list(csv.reader(text.splitlines())) == [["job_id", "memory"], ["30", "104857600"]]
    target = tmp_path / "answer.parquet"
    assert ask(capsys, lake, QUERY, "--format", "parquet", "-o", target)[0] == 0
    assert pq.read_table(target).to_pylist() == [{"job_id": "30", "memory": 100 * 2**20}]
    frame = ("--from", "2026-11-16T14:00:00Z", "--to", "2026-11-16T14:01:00Z", "--json")
    counted = ask(capsys, lake, "SELECT count(*) AS n FROM samples", *frame)[1]
    assert json.loads(counted) == [{"n": 5}]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("query", ["SELEC 1", "SELECT * FROM nothing_here", "SELECT nothing FROM job"])
def test_a_wrong_query_is_one_line(lake: Path, capsys: pytest.CaptureFixture[str], query: str) -> None:
    code, out, err = ask(capsys, lake, query)
    assert (code, out) == (2, "")
    assert err.startswith("vmsonar: ")
    assert err.count("\n") == 1


def test_the_missing_extra_is_named(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    code, out, err = ask(capsys, lake, QUERY)
    assert (code, out) == (3, "")
    assert "pip install 'vmsonar[spark]'" in err
    assert err.count("\n") == 1


def test_a_damaged_file_of_a_lake_is_named(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    damaged = next((tmp_path / "lake" / "kind=job").rglob("*.parquet"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    code, _, err = ask(capsys, tmp_path / "lake", "SELECT count(*) AS n FROM job", "--json")
    assert code != 0
    assert damaged.name in err
    assert "Traceback" not in err


def test_the_command_by_itself(lake: Path) -> None:
    """Starts Spark as a person would; standard output holds the answer and nothing else."""
    query = "SELECT count(DISTINCT archive) AS n FROM samples"
    command = [sys.executable, "-m", "vmsonar", "sql", str(lake), "--engine", "spark", query, "--json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    assert json.loads(done.stdout) == [{"n": 4}]
