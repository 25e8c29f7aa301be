"""Lives of containers in the rollups and in the rates: each counts from zero, whatever order its rows come in."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import ContainerInfoRow, ContainerRow, NetRow, NodeRow
from vmsonar_inspect.tables.database import Tables, open_tables

from tests.making.archives import START, append_samples, boottime_at, encoded, open_writer

LOOP, LATE, LOST, OLD = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
SECOND = 10**9


def at(second: float) -> int:
    return boottime_at(START + timedelta(seconds=second))


def life(container: str, inode: int, start: float, cpu: float, end: float | None = None, **more: Any) -> Any:
    row = ContainerRow(container_id=container, cgroup_inode=inode, start_boottime=at(start), **more)
    row.cpu_time = round(cpu * SECOND)
    if end is not None:
        row.end_boottime, row.cpu_source = at(end), row.cpu_source or "final"
    return row


#: By sample, ten seconds apart. Every life of LOOP but the last uses more than the one before.
ROWS: dict[int, list[ContainerRow]] = {
    0: [life(OLD, 90, -50, 40.0, memory_used=100), ContainerRow(container_id=LOST, cpu_time=0)],
    1: [
        life(LOOP, 1, 2, 1.0, end=3, memory_peak=7),
        life(LOOP, 2, 4, 1.5, end=6, memory_peak=9),
        life(LOOP, 3, 9, 0.5, memory_used=5),
        life(OLD, 90, -50, 45.0, memory_used=300),
    ],
    # The engine was slow to tell of the end of the third: the fourth was sampled before that.
    2: [life(LOOP, 4, 15, 4.0, memory_used=6), life(OLD, 90, -50, 46.0, end=12)],
    3: [life(LOOP, 3, 9, 2.5, end=14), life(LOOP, 4, 15, 9.0, memory_used=6)],
    4: [
        life(LATE, 5, 31, 1.0, end=33, cpu_time_high=3 * SECOND, cpu_source="reading"),
        ContainerRow(
            container_id=LATE, start_boottime=at(34), end_boottime=at(35), cpu_time_high=2 * SECOND, cpu_source="events"
        ),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    root = tmp_path_factory.mktemp("lives") / "archive"
    writer = open_writer(root)
    infos = [ContainerInfoRow(series_id=name, container_id=name, name=name[0]) for name in (LOOP, LATE, OLD)]

    def rows(number: int, begins: bool) -> dict[str, list[bytes]]:
        found = {"container": ROWS[number], "node": [NodeRow(cpus_online=2)], "net": net(number)}
        return encoded(found | ({"container_info": infos} if begins else {}))

    append_samples(writer, 5, rows)
    writer.close()
    with open_tables([root]) as opened:
        yield opened


def net(number: int) -> list[NetRow]:
    """One device, what lies below and upon it, and names that say nothing."""
    kinds = {"up0": "physical", "vf0": "lower", "lo": "loopback", "eth7": "virtual", "tun0": "virtual"}
    rows = [NetRow(interface=name, interface_kind=kind) for name, kind in kinds.items()]
    for row in rows:
        row.received_bytes, row.sent_bytes, row.default_route = 1000 * number, 0, row.interface == "tun0"
    return rows


def usage(tables: Tables, name: str) -> dict[str, Any]:
    (row,) = tables.arrow(f"SELECT * FROM container_usage WHERE name = '{name}'").to_pylist()
    return dict(row)


def test_lives_add_up(tables: Tables) -> None:
    row = usage(tables, "a")
    assert row["cpu_seconds"] == pytest.approx(1.0 + 1.5 + 2.5 + 9.0)
    assert row["cpu_seconds_high"] is None
    assert row["recorded_seconds"] == pytest.approx(1 + 2 + 5 + 15)
    assert row["cores_mean"] == pytest.approx(14 / 23)
    assert row["cores_peak"] == pytest.approx(1.0)
    assert (row["memory_charged_peak"], row["memory_peak"], row["memory_median"]) == (9, 6, 6)


def test_the_rates_agree(tables: Tables) -> None:
    query = "SELECT SUM(cpu_seconds) AS cpu, SUM(interval_seconds) AS seconds FROM container_rates WHERE name = '{}'"
    for name in ("a", "b", "d"):
        (rates,) = tables.arrow(query.format(name)).to_pylist()
        row = usage(tables, name)
        assert (rates["cpu"], rates["seconds"]) == (
            pytest.approx(row["cpu_seconds"]),
            pytest.approx(row["recorded_seconds"]),
        )


def test_a_life_from_before_the_record_counts_since_then(tables: Tables) -> None:
    row = usage(tables, "d")
    assert (row["cpu_seconds"], row["recorded_seconds"]) == (pytest.approx(6.0), pytest.approx(12.0))
    # Two samples; the row of its end is none.
    assert row["memory_median"] == pytest.approx(200, rel=0.02)


def test_what_was_not_read_is_a_bound(tables: Tables) -> None:
    row = usage(tables, "b")
    assert (row["cpu_seconds"], row["cpu_seconds_high"]) == (pytest.approx(1.0), pytest.approx(1 + 2 + 2))


def test_every_life_has_a_row(tables: Tables) -> None:
    rows = tables.arrow(
        "SELECT name, runtime_seconds, cpu_seconds, cpu_seconds_high, cpu_source FROM container_lives "
        "WHERE name IS NOT NULL ORDER BY name, start_boottime"
    ).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("a", 1.0, 1.0, None, "final"),
        ("a", 2.0, 1.5, None, "final"),
        ("a", 5.0, 2.5, None, "final"),
        ("a", 15.0, 9.0, None, None),
        ("b", 2.0, 1.0, 3.0, "reading"),
        ("b", 1.0, None, 2.0, "events"),
        ("d", 62.0, 46.0, None, "final"),
    ]


def test_outward_traffic_is_that_of_the_machines_own_devices(tables: Tables) -> None:
    rows = tables.arrow("SELECT net_received_bytes_per_second AS rate FROM node_rates").to_pylist()
    assert [row["rate"] for row in rows] == [None, 100.0, 100.0, 100.0, 100.0]


def test_without_a_device_the_default_route_leads_out(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "archive")

    def rows(number: int, _: bool) -> dict[str, list[bytes]]:
        inside = [row for row in net(number) if row.interface_kind == "virtual"]
        return encoded({"node": [NodeRow(cpus_online=2)], "net": inside})

    append_samples(writer, 2, rows)
    writer.close()
    with open_tables([tmp_path / "archive"]) as tables:
        found = tables.arrow("SELECT net_received_bytes_per_second AS rate FROM node_rates").to_pylist()
    assert [row["rate"] for row in found] == [None, 100.0]
