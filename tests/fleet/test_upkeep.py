"""A fleet stays in shape: pieces are merged, what is too old goes by kind, and the lake has what the archives have."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.path import verify_path
from vmsonar_inspect.tables.database import open_tables
from vmsonar_inspect.tables.lakes import verify_lake
from vmsonar_inspect.tables.stores import lake_at

from tests.fleet.place import Machines, Vm, assert_same, sums
from tests.making.bundles import START
from tests.parts import requires
from tests.real.s3 import S3Server
from vmsonar.config.quantities import ByteSize
from vmsonar.config.shipping import FleetSection, Kept, Retention
from vmsonar.daemon.log import Log
from vmsonar.fleet.holdings import read_holding
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import Fleet, open_fleet
from vmsonar.fleet.upkeep import Upkeep, first_kept, update_lake

DAY = 86_400
NOW = START + timedelta(days=10, hours=-4)


@pytest.fixture
def intake(fleet: Fleet) -> Intake:
    return Intake(fleet, now=lambda: NOW)


def keep(intake: Intake, **retention: Kept) -> None:
    upkeep = Upkeep(intake, FleetSection(retention=Retention(**retention)), Log("error"))
    for _ in range(1 + len(intake.fleet.ids())):
        upkeep.step()
    upkeep.close()


def ship_days(vm: Vm, intake: Intake, days: int = 10) -> list[Path]:
    """Six samples and an increment a day."""
    shipped = []
    for _ in range(days):
        vm.record(6, seconds=14_400)
        shipped.append(vm.increment())
        assert intake.take(shipped[-1], "test", keep=True).accepted
    return shipped


def days_in(fleet: Fleet, vm: Vm) -> set[str]:
    root = fleet.archive(vm.archive)
    return {str(path.parent.relative_to(root)) for path in root.rglob("sample-*")}


def test_pieces_of_an_hour_are_merged(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    shipped = []
    for _ in range(10):
        vm.record(30)
        shipped.append(vm.increment())
        assert intake.take(shipped[-1], "test", keep=True).accepted
    before = len(list(fleet.archive(vm.archive).rglob("sample-*")))
    keep(intake)
    assert len(list(fleet.archive(vm.archive).rglob("sample-*"))) <= before - 6
    assert_same(fleet, [vm])
    for path in shipped:
        assert intake.take(path, "test").records == 0
    assert_same(fleet, [vm])


def test_old_records_go_and_do_not_come_back(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    shipped = ship_days(vm, intake)
    keep(intake, archives=Kept(max_days=3))
    assert min(days_in(fleet, vm)) == f"{NOW - timedelta(days=3):%Y/%m/%d}"
    report = verify_path(fleet.archive(vm.archive))
    assert report.ok, report.findings
    left = sums(fleet.origins())
    for path in shipped:
        receipt = intake.take(path, "test")
        assert (receipt.accepted, receipt.records) == (True, 0)
    assert sums(fleet.origins()) == left


def test_an_archive_of_which_nothing_is_left_goes_and_may_begin_anew(
    machines: Machines, fleet: Fleet, intake: Intake
) -> None:
    dead, living = machines(), machines()
    early = Intake(fleet, now=lambda: NOW - timedelta(days=9))
    dead.record(6, seconds=60)
    assert early.take(dead.increment(), "test").accepted
    shipped = ship_days(living, intake, 1)
    keep(intake, archives=Kept(max_days=3))
    # What the living one sent is as old; but it was heard today.
    assert fleet.ids() == [living.archive]
    for folder in (fleet.archives, fleet.evidence):
        assert [path.name for path in folder.iterdir()] == [living.archive]
    assert list(fleet.incoming.iterdir()) == []
    assert read_holding(fleet, dead.archive) is None
    assert intake.take(shipped[0], "test").records == 0
    dead.time = NOW - timedelta(hours=1)
    dead.record(6)
    assert intake.take(dead.increment(), "test").records >= 6
    assert len(fleet.ids()) == 2


def test_a_fleet_that_is_too_large_loses_its_oldest_days(
    machines: Machines, fleet: Fleet, intake: Intake
) -> None:
    first, second = machines(), machines()
    ship_days(first, intake)
    ship_days(second, intake, 5)
    used = sum(path.stat().st_size for path in fleet.archives.rglob("*.zst"))
    keep(intake, archives=Kept(max_bytes=ByteSize(used // 3)))
    left = sum(path.stat().st_size for path in fleet.archives.rglob("*.zst"))
    assert 0 < left <= used // 3
    newest = max(days_in(fleet, first))
    assert newest == f"{NOW:%Y/%m/%d}"


def test_the_first_day_that_stays() -> None:
    days = Counter({date(2026, 11, day): 100 for day in range(1, 11)})
    today = date(2026, 11, 10)
    assert first_kept(days, None, None, today) is None
    assert first_kept(days, 3, None, today) == date(2026, 11, 7)
    assert first_kept(days, None, 250, today) == date(2026, 11, 9)
    assert first_kept(days, 3, 250, today) == date(2026, 11, 9)
    assert first_kept(days, 1, 500, today) == date(2026, 11, 9)
    assert first_kept(days, None, 10, today) == date(2026, 11, 10)
    assert first_kept(days, None, 5000, today) is None


TOTAL = "SELECT count(*) AS rows, sum(user_ticks) AS ticks FROM {table}"


def total(place: Path | str, table: str) -> tuple[int, int]:
    with open_tables([place]) as tables:
        tables.require([table])
        return tables.sql(TOTAL.format(table=table)).fetchone()


def lake_loses_tables_before_rollups(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    ship_days(vm, intake, 4)
    now = START + timedelta(days=4)
    lake = lake_at(fleet.lake)

    def update(*limits: int) -> int:
        return update_lake(fleet, limits or (0, 0, 0, 0), lambda: now)

    assert update() > 0
    assert update() == 0, "nothing is added twice"
    with open_tables([fleet.archives]) as tables:
        tables.require(["process"])
        midnight = datetime.combine(now.date(), datetime.min.time(), UTC)
        query = f"{TOTAL.format(table='process')} WHERE time < '{midnight:%F %T+00}'"
        assert total(fleet.lake, "process") == tables.sql(query).fetchone()
    update(2, 0, 0, 0)
    report = verify_lake(lake, False, Progress())
    assert report.ok, report.findings
    days: dict[str, set[str]] = {}
    for path in lake.sizes():
        if path.startswith("kind="):
            kind, day = path.split("/")[:2]
            days.setdefault(kind, set()).add(day)
    assert len(days["kind=series_day"]) > len(days["kind=process"]) == 2
    assert total(fleet.lake, "process")[0] > 0


@pytest.mark.slow
def test_the_lake_has_finished_days(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    lake_loses_tables_before_rollups(vm, fleet, intake)


@pytest.mark.slow
@requires("moto")
def test_the_lake_may_lie_in_a_bucket(
    tmp_path: Path, vm: Vm, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    s3_server.client().create_bucket(Bucket="fleet-lake")
    fleet = open_fleet(tmp_path / "elsewhere", lake="s3://fleet-lake/lake", create=True)
    lake_loses_tables_before_rollups(vm, fleet, Intake(fleet, now=lambda: NOW))
