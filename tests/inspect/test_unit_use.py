"""Figures of units that are no containers, from what their control groups counted."""

import pytest
from vmsonar_archive.records import CgroupRow
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.making.machines import GIB, MIB, Machine

SERVICE = {"cgroup": "/system.slice/db.service", "cgroup_kind": "service", "unit_name": "db.service"}


def readings():
    """A service that began between two samples, worked for a while, and was started anew under its old path."""
    first, second = SERVICE | {"cgroup_inode": 7}, SERVICE | {"cgroup_inode": 8}
    moments = [
        (30, first | {"cpu_time": 5, "memory": 1, "periods": 10, "throttled_periods": 0, "read_bytes": 1 * MIB,
                      "cpu_some_time": 1_000_000, "oom_kills": 0, "processes": 3}),
        (50, first | {"cpu_time": 25, "memory": 4, "periods": 110, "throttled_periods": 50, "read_bytes": 5 * MIB,
                      "cpu_some_time": 6_000_000, "oom_kills": 1, "processes": 9}),
        (60, second | {"cpu_time": 1, "memory": 2, "periods": 10, "throttled_periods": 0, "read_bytes": 2 * MIB,
                       "cpu_some_time": 0, "oom_kills": 0, "processes": 2}),
    ]  # fmt: skip
    for second_, told in moments:
        told["cpu_time"] *= 10**9
        used = told.pop("memory") * GIB
        yield second_, CgroupRow(
            memory_used=used, memory_inactive_file=GIB // 2, memory_peak=5 * GIB, memory_limit=8 * GIB,
            swap_used=1 * MIB, swap_limit=2 * MIB, write_bytes=0, **told,
        )  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    machine = Machine(cpus=4, more=[(second, "cgroup", row) for second, row in readings()])
    with opened(
        [machine.record(tmp_path_factory.mktemp("units") / "a", 70)], InspectionSettings()
    ) as inspection:
        yield inspection


def test_a_unit_is_the_sum_of_its_lives(found):
    (unit,) = found.units
    assert (unit.unit, unit.cgroup_kind, unit.hostname) == ("db.service", "service", "vm-one")
    assert (unit.seconds, unit.cpu_seconds) == (40, pytest.approx(5 + 20 + 1))
    assert (unit.cores.mean, unit.cores.peak) == (pytest.approx(26 / 40), pytest.approx(1.0))
    assert (unit.memory_bytes.peak, unit.memory_charged_peak_bytes) == (3.5 * GIB, 5 * GIB)
    assert (unit.memory_limit_bytes, unit.swap_peak_bytes, unit.swap_limit_bytes) == (8 * GIB, MIB, 2 * MIB)
    assert (unit.tasks_peak, unit.oom_kills) == (9, 1)
    assert (unit.read_bytes, unit.write_bytes) == ((1 + 4 + 2) * MIB, 0)
    assert unit.pressure_cpu == pytest.approx((0.1 * 10 + 0.25 * 20) / 40)
    assert unit.throttled_share == pytest.approx(0.5 * 20 / 40)


def test_each_interval_has_its_own_rate(found):
    rows = found.queries.rows(
        "SELECT cpu_cores, memory_working, cpu_some_share FROM cgroup_rates ORDER BY time"
    )
    assert [row["cpu_cores"] for row in rows] == [pytest.approx(0.5), pytest.approx(1.0), pytest.approx(0.1)]
    assert [row["memory_working"] for row in rows] == [0.5 * GIB, 3.5 * GIB, 1.5 * GIB]
    assert [row["cpu_some_share"] for row in rows] == [pytest.approx(share) for share in (0.1, 0.25, 0.0)]


def test_no_unit_has_more_cores_than_the_machine(tmp_path):
    rows = [(20 + 10 * at, "cgroup", CgroupRow(cpu_time=at * 100 * 10**9, **SERVICE)) for at in range(2)]
    machine = Machine(cpus=4, more=rows)
    with opened([machine.record(tmp_path / "a", 40)], InspectionSettings()) as found:
        (unit,) = found.units
    assert unit.cores.peak == 4
