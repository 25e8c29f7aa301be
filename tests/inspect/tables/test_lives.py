"""Means, lives and bounds of jobs that few samples saw, or none, against figures worked out by hand."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.parquet.derive import derive_due
from vmsonar_inspect.tables.database import Tables, open_tables

from tests.making import lives
from tests.making.lives import MIB, make_lives

Row = dict[str, Any]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with open_tables([make_lives(tmp_path_factory.mktemp("lives") / "archive")], cache=False) as opened:
        yield opened


def all_of(tables: Tables, view: str, key: str) -> dict[int, Row]:
    found = tables.sql(f"SELECT * FROM {view}")
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return {row[key]: row for row in rows}


def exact(**figures: Any) -> dict[str, Any]:
    return {
        name: pytest.approx(figure, rel=1e-9) if isinstance(figure, float) else figure
        for name, figure in figures.items()
    }


#: By process group, what job_usage says.
EXPECTED: dict[int, Row] = {
    lives.ONCE: exact(
        samples=1, cpu_seconds=11.0, runtime_seconds=11.0, runtime_seconds_low=None, recorded_seconds=11.0,
        cores_mean=1.0, cores_peak=1.0, memory_mean=100 * MIB, memory_median=100 * MIB, memory_peak=128 * MIB,
        memory_peak_low=100 * MIB, memory_peak_high=192 * MIB, memory_peak_source="high_water",
        memory_charged_peak=300 * MIB, memory_source="sum", cpu_source="lifeline", io_source="samples",
        cpu_seconds_low=None, cpu_seconds_high=None, cpu_seconds_total=11.0, unattributed=False, io_partial=False,
        threads_peak=4, processes_peak=2, ended=True,
    ),
    lives.TWICE: exact(
        samples=2, cpu_seconds=18.0, runtime_seconds=25.0, runtime_seconds_low=15.0, recorded_seconds=25.0,
        cores_mean=18 / 25, cores_peak=1.0, memory_mean=50 * MIB, memory_peak=60 * MIB, memory_peak_source=None,
        memory_source="estimate", cpu_source=None, ended=True,
    ),
    lives.BETWEEN: exact(
        samples=0, cpu_seconds=0.5, runtime_seconds=0.25, recorded_seconds=0.25, cores_mean=2.0, cores_peak=2.0,
        cores_median=2.0, cores_p95=2.0, memory_mean=None, memory_median=None, memory_p95=None, memory_peak=3072 * MIB,
        memory_peak_source="accounts", memory_source=None, processes_peak=None, threads_peak=None,
        cpu_source="accounts", io_source="accounts", read_bytes=1000, write_bytes=5000, ended=True,
    ),
    # Eight cores in the first tenth of a second, and twelve in the last hundredth, are noise of the ticks.
    lives.HASTY: exact(cpu_seconds=12.0, runtime_seconds=10.11, recorded_seconds=10.11, cores_mean=12 / 10.11,
                       cores_peak=1.2),
    lives.OLD: exact(cpu_seconds=10.0, cpu_seconds_low=8.0, cpu_seconds_high=13.0, cpu_seconds_total=None,
                     recorded_seconds=50.0, unattributed=True, ended=False, runtime_seconds=110.0),
    lives.YOUNG: exact(
        cpu_seconds=4.0, cpu_seconds_low=3.0, cpu_seconds_high=8.0, cpu_seconds_total=None, cpu_source="samples",
        read_bytes=60, read_bytes_low=None, read_bytes_high=None, write_bytes=500, write_bytes_low=400,
        write_bytes_high=1000, io_partial=True, runtime_seconds=20.0, recorded_seconds=20.0, cores_mean=0.2,
    ),
    lives.FLAGGED: exact(cpu_seconds=2.0, cpu_seconds_low=None, cpu_seconds_high=None, cpu_seconds_total=None,
                         unattributed=True, memory_peak=2 * MIB, memory_peak_low=None, memory_peak_high=None,
                         memory_peak_source="sampled", ended=False),
    lives.MOVED: exact(cpu_seconds=6.0, recorded_seconds=20.0, cores_mean=0.3, runtime_seconds=90.0),
    lives.RESOLVED: exact(cpu_seconds=0.6, cpu_seconds_low=0.1, cpu_seconds_high=0.6, cpu_seconds_total=None,
                          unattributed=True),
    lives.EARLIER: exact(cpu_seconds=1.0, cpu_seconds_low=None, cpu_seconds_high=None, cpu_seconds_total=None,
                         read_bytes=5000, read_bytes_high=None, unattributed=False, io_partial=False),
    0: exact(cpu_seconds=5.0, recorded_seconds=20.0, job_source="no_group", runtime_seconds=None),
}  # fmt: skip


@pytest.mark.parametrize("pgid", EXPECTED)
def test_jobs(tables: Tables, pgid: int) -> None:
    row = all_of(tables, "job_usage", "pgid")[pgid]
    assert {name: row[name] for name in EXPECTED[pgid]} == EXPECTED[pgid]


@pytest.mark.parametrize("midnight", [115, 125, 135, 145])
def test_midnight_changes_nothing(tables: Tables, tmp_path: Path, midnight: float) -> None:
    root = make_lives(tmp_path / "archive", midnight)
    assert figures_of(root) == without_times(all_of(tables, "job_usage", "pgid"))
    list(derive_due(root, datetime(2026, 12, 1, tzinfo=UTC)))
    assert figures_of(root) == without_times(all_of(tables, "job_usage", "pgid"))


def figures_of(root: Path) -> dict[int, Row]:
    with open_tables([root], cache=False) as opened:
        return without_times(all_of(opened, "job_usage", "pgid"))


def without_times(rows: dict[int, Row]) -> dict[int, Row]:
    timed = ("archive", "started", "first_time", "last_time")
    return {
        key: {
            name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            for name, value in row.items()
            if name not in timed
        }
        for key, row in rows.items()
    }


@pytest.mark.parametrize("table", ["job", "process"])
def test_both_ways_say_the_same(tables: Tables, table: str) -> None:
    """The sums of a day are made by Arrow, the rates by SQL."""
    number = {"job": "pgid", "process": "pid"}[table]
    sums = tables.sql(
        f"SELECT number, total, seconds, maximum FROM {table}_totals WHERE measure = 'cpu' ORDER BY 1"
    ).fetchall()
    views = tables.sql(
        f"SELECT {number}, SUM(cpu_seconds), SUM(interval_seconds) FILTER (WHERE cpu_cores IS NOT NULL), "
        f"MAX(cpu_cores) FROM {table}_rates GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert len(sums) == (len(EXPECTED) if table == "job" else 1)
    for summed, seen in zip(sums, views, strict=True):
        assert summed == pytest.approx(seen, rel=1e-9)


def test_the_row_that_finds_nobody_has_no_memory(tables: Tables) -> None:
    ends = "SELECT DISTINCT processes, memory, resident, threads, memory_source FROM job_rates WHERE processes = 0"
    assert tables.sql(ends).fetchall() == [(0, None, None, None, None)]


def test_a_process_without_the_io_of_its_children(tables: Tables) -> None:
    row = all_of(tables, "process_usage", "pid")[7]
    assert (row["read_bytes"], row["write_bytes"]) == (500, 9000)
    assert (row["own_read_bytes"], row["own_write_bytes"], row["resident_peak"]) == (200, 2000, 64 * MIB)
    rates = tables.sql("SELECT own_read_bytes, own_write_bytes FROM process_rates ORDER BY seq").fetchall()
    assert rates == [(100, 1000), (100, 1000)]


def test_a_user_has_everything_once(tables: Tables) -> None:
    row = all_of(tables, "user_usage", "user_name")["anna"]
    known = [told["cpu_seconds"] for told in EXPECTED.values()]
    assert row["cpu_seconds"] == pytest.approx(sum(told.expected for told in known))
    assert row["jobs"] == len(EXPECTED) - 1
    # Of one job there is no upper bound, so there is none of the user.
    assert row["cpu_seconds_low"] == pytest.approx(row["cpu_seconds"] - 2.0 - 1.0 - 0.5)
    assert row["cpu_seconds_high"] is None
    assert (row["memory_source"], row["cpu_source"], row["unattributed"]) == ("estimate", "samples", True)
    jobs = tables.sql("SELECT jobs FROM user_rates WHERE boottime = 130000000000").fetchone()
    assert jobs == (6,)


class Users(lives.Lives):
    """Three users with a job each: heard of, of which less than its sum is certain; heard of; from samples alone."""

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        at = round(self.uptime)
        rows: dict[str, list[Any]] = {"node": super().rows(fresh)["node"], "job": [], "job_info": []}
        sure = {"system_ticks": 0, "processes": 1}
        doubt = {"unattributed": True, "cpu_ticks_low": 8 * at, "cpu_ticks_high": 10 * at}
        for pgid, user, told in (
            (10, "anna", {**sure, **doubt, "cpu_source": "lifeline"}),
            (20, "bert", {**sure, "cpu_source": "lifeline"}),
            (30, "carl", {**sure, "cpu_source": "samples"}),
        ):
            if user != "carl" or self.with_samples:
                self._add(rows, pgid, 10000, {**told, "user_ticks": 10 * at}, at == 110, user)
        return rows

    with_samples = False


@pytest.mark.parametrize("with_samples", [False, True])
def test_bounds_of_users_are_as_narrow_as_is_true(tmp_path: Path, with_samples: bool) -> None:
    """What ended unheard below a job may be any user's, but no more than that job has, nor than the machine had."""
    machine = Users(tmp_path / "archive")
    machine.with_samples = with_samples
    machine.start_daemon()
    machine.run(6)
    machine.stop_daemon()
    with open_tables([tmp_path / "archive"], cache=False) as tables:
        users = all_of(tables, "user_usage", "user_name")
    names = ("cpu_seconds", "cpu_seconds_low", "cpu_seconds_high", "unattributed")
    found = {user: tuple(row[name] for name in names) for user, row in users.items()}
    used = found["bert"][0]
    more = used if with_samples else 0.0
    assert found["anna"] == (used, pytest.approx(0.8 * used), pytest.approx(used + more), True)
    assert found["bert"] == (
        (used, used, pytest.approx(2 * used), True) if more else (used, None, None, False)
    )
    assert not with_samples or found["carl"] == (used, None, None, False)


def test_flags_that_were_never_set_are_false(tables: Tables) -> None:
    for view in ("job_usage", "user_usage"):
        nulls = f"SELECT COUNT(*) FROM {view} WHERE unattributed IS NULL OR io_partial IS NULL"
        assert tables.sql(nulls).fetchone() == (0,)
