"""The rollups against a history whose truth is known: restarts, a reboot, a gap, a clock step, counters reset."""

from typing import Any

import pytest
from vmsonar_archive.parquet.schema import TABLES, columns_of
from vmsonar_inspect.tables.database import Tables, open_tables
from vmsonar_inspect.tables.views import VIEWS, view

from tests.making.worlds import CONTAINER, SECOND_BOOT, make_history


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with open_tables([make_history(tmp_path_factory.mktemp("world") / "archive")]) as tables:
        yield tables


def one(tables: Tables, query: str) -> dict[str, Any]:
    found = tables.sql(query)
    names = [column[0] for column in found.description]
    rows = found.fetchall()
    assert len(rows) == 1, rows
    return dict(zip(names, rows[0], strict=True))


def near(value: float) -> Any:
    return pytest.approx(value, rel=0.02)


def test_every_field_can_be_selected_unquoted(tables: Tables) -> None:
    for table in TABLES:
        for field in columns_of(table):
            tables.sql(f"SELECT {field.name} FROM {table} LIMIT 1").fetchall()
            tables.sql(f"SELECT t.{field.name} AS {field.name} FROM {table} AS t GROUP BY {field.name}")


@pytest.mark.parametrize("name", VIEWS)
def test_every_column_of_every_view_is_explained(tables: Tables, name: str) -> None:
    columns = [column[0] for column in tables.sql(f"SELECT * FROM {name} LIMIT 0").description]
    assert columns
    if not name.startswith("latest_"):
        assert columns == list(view(name).columns)


def test_a_job_begins_at_its_start(tables: Tables) -> None:
    job = one(tables, "SELECT * FROM job_usage WHERE pgid = 20 AND command LIKE 'python3%'")
    assert job["cpu_seconds"] == near(2.0 * (500 - 203))
    assert job["cpu_seconds_total"] == near(2.0 * (500 - 203))
    assert job["runtime_seconds"] == near(500 - 203)
    assert job["recorded_seconds"] == near(500 - 203)
    assert [job[name] for name in ("cores_mean", "cores_median", "cores_p95", "cores_peak")] == [
        near(2.0)
    ] * 4
    assert [job[name] for name in ("memory_median", "memory_p95", "memory_peak")] == [2**30] * 3
    assert job["write_bytes"] == near(1e6 * (500 - 203))
    assert (job["user_name"], job["job_id"]) == ("alice", "20")


def test_a_job_seen_once_is_counted(tables: Tables) -> None:
    job = one(tables, "SELECT * FROM job_usage WHERE pgid = 30")
    assert job["cpu_seconds"] == near(0.5 * 5)
    assert job["cores_peak"] == near(0.5)


def test_what_ran_before_the_record_is_told_apart(tables: Tables) -> None:
    job = one(tables, "SELECT * FROM job_usage WHERE pgid = 10")
    assert job["cpu_seconds"] == near(850 - 110)
    assert job["cpu_seconds_total"] == near(850 - 50)
    assert job["cores_peak"] == near(1.0)


def test_the_same_number_after_a_reboot_is_another_job(tables: Tables) -> None:
    job = one(tables, f"SELECT * FROM job_usage WHERE pgid = 20 AND boot = '{SECOND_BOOT}'")
    assert job["cpu_seconds"] == near(3.0 * (100 - 10))
    assert job["command"] == "after the reboot"


def test_processes_have_the_same_rates(tables: Tables) -> None:
    cores = tables.sql(
        "SELECT DISTINCT round(cpu_cores, 3) FROM process_rates WHERE pid = 20 AND command LIKE 'python3%'"
    )
    assert cores.fetchall() == [(2.0,)]


def test_a_counter_that_fell_has_no_rate_there(tables: Tables) -> None:
    job = one(tables, "SELECT * FROM job_usage WHERE pgid = 60")
    assert job["cpu_seconds"] == near(0.2 * (810 - 110) + 0.2 * (850 - 820))
    assert job["cores_peak"] == near(0.2)
    for query in (
        "SELECT cpu_cores FROM job_rates WHERE pgid = 60 AND boottime = 820000000000",
        "SELECT cpu_cores FROM process_rates WHERE pid = 60 AND boottime = 820000000000",
        "SELECT read_bytes_per_second FROM disk_rates WHERE device = 'vda' AND boottime = 810000000000",
        "SELECT received_bytes_per_second FROM net_rates WHERE interface = 'eth0' AND boottime = 810000000000",
        "SELECT joules FROM gpu_rates WHERE boottime = 810000000000",
        "SELECT some_share FROM pressure_rates WHERE boottime = 810000000000",
    ):
        assert tables.sql(query).fetchall() == [(None,)], query


def test_no_rate_is_negative_or_huge(tables: Tables) -> None:
    for name in VIEWS:
        if name.endswith("_rates"):
            rows = tables.sql(f"SELECT * FROM {name}")
            columns = [column[0] for column in rows.description]
            for row in rows.fetchall():
                check_rates(name, dict(zip(columns, row, strict=True)))


def check_rates(name: str, row: dict[str, Any]) -> None:
    for column, value in row.items():
        if value is not None and column.endswith(("_cores", "_share", "_seconds", "_per_second", "watts")):
            assert value >= 0, (name, column, row)
            assert value <= {"_cores": 4.1, "_share": 1.0}.get(column[column.rfind("_") :], 1e10), (
                name,
                column,
                row,
            )


def test_the_clock_step_and_the_reboot_disturb_no_interval(tables: Tables) -> None:
    lengths = tables.sql(
        "SELECT DISTINCT interval_seconds FROM node_rates WHERE interval_seconds IS NOT NULL"
    )
    assert sorted(row[0] for row in lengths.fetchall()) == [10.0, 300.0]


def test_the_machine(tables: Tables) -> None:
    row = one(tables, "SELECT * FROM node_rates WHERE boot LIKE '5c6e%' AND boottime = 300000000000")
    assert row["cpu_busy_cores"] == near(1.0 + 2.0 + 0.2 + 0.1)
    assert row["disk_read_bytes_per_second"] == near(2048 * 512)
    assert row["disk_busy_share"] == near(0.1)
    assert row["net_received_bytes_per_second"] == near(1e6)
    assert row["cpu_some_share"] == near(0.25)
    assert row["memory_used"] == 2**33 - 2**32
    usage = one(tables, "SELECT * FROM node_usage")
    assert usage["recorded_seconds"] == near(740 + 90)


def test_a_container_that_was_started_again_counts_from_zero(tables: Tables) -> None:
    usage = one(tables, "SELECT * FROM container_usage")
    assert usage["container_id"] == CONTAINER
    assert usage["cpu_seconds"] == near(0.5 * (400 - 212) + 0.5 * (850 - 402))
    assert usage["cores_peak"] == near(0.5)
    assert usage["name"] == "web"


def test_a_meter_that_wraps(tables: Tables) -> None:
    watts = tables.sql(
        "SELECT DISTINCT round(watts, 6) FROM energy_rates WHERE interval_seconds = 10"
    ).fetchall()
    assert [row for row in watts if row[0] is not None] == [(20.0,)]


def test_gpus(tables: Tables) -> None:
    usage = one(tables, "SELECT * FROM gpu_usage")
    assert (usage["util_median"], usage["power_mean"], usage["memory_peak"]) == (50.0, near(100.0), 2**30)
    assert usage["joules"] == near(100.0 * (740 + 90))


def test_users(tables: Tables) -> None:
    bob = one(tables, "SELECT * FROM user_usage WHERE user_name = 'bob'")
    assert (bob["jobs"], bob["cpu_seconds"]) == (1, near(2.5))


def test_the_memory_of_a_user_is_that_of_all_jobs_at_one_moment(tables: Tables) -> None:
    alice = one(tables, "SELECT * FROM user_usage WHERE user_name = 'alice'")
    assert (alice["jobs"], alice["memory_peak"], alice["job_memory_peak"]) == (4, 2**30 + 2**29, 2**30)
    moment = "user_name = 'alice' AND boottime = 450000000000"
    row = one(tables, f"SELECT jobs, cpu_cores, memory FROM user_rates WHERE {moment}")
    assert row == {"jobs": 2, "cpu_cores": near(2.1), "memory": 2**30 + 2**29}


def test_gaps_are_known(tables: Tables) -> None:
    gaps = tables.sql("SELECT reason, seconds FROM coverage_gaps ORDER BY seq").fetchall()
    assert gaps == [("missing", 300.0), ("reboot", 70.0)]
    first = one(tables, "SELECT * FROM coverage WHERE boot LIKE '5c6e%'")
    assert (first["samples"], first["gaps"], first["runs"], first["interval_seconds"]) == (46, 1, 2, 10.0)
    assert (first["recorded_seconds"], first["gap_seconds"]) == (440.0, 300.0)
