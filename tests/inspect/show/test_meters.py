"""What gauges and meters come to: no joule twice, no hole filled with one reading, no card counted with its parts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import (
    ContainerRow,
    EnergyRow,
    GpuProcessRow,
    GpuRow,
    JobRow,
    NetRow,
    NodeRow,
    ProcessRow,
    Row,
    SysInfo,
)
from vmsonar_inspect.facts.model import EnergyUse
from vmsonar_inspect.inspection import InspectionSettings, opened
from vmsonar_inspect.tables.database import open_tables

from tests.making.archives import open_writer, utc_now

START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
BOOT = "5c6e2a3d-8f3b-4d5e-9a1c-2b7f0e6d4c31"
GIB = 2**30
HOUR = 3600
#: Where the counter of an AMD package goes round, in microjoules.
AMD_RANGE = 65_532_610_987


def record(
    root: Path,
    history: dict[int, list[Row]],
    kinds: dict[type, str],
    provider: str | None = None,
    stepped: datetime | None = None,
    intervals: dict[int, int] | None = None,
) -> Path:
    """An archive with these rows, by second; every sample has a node of two CPUs that are idle.

    The first two samples may have been taken by another clock.
    """
    node = NodeIdentity(machine_id="m", instance_id=None, hostname_short="vm", hostname_full="vm")
    writer = open_writer(root, node=node, now=utc_now)
    writer.append_sysinfo(
        SysInfo(time=START, seq=0, run="", boot=BOOT, boottime=10**12, cloud_provider=provider)
    )
    for number, (second, rows) in enumerate(history.items()):
        if intervals is not None and second in intervals:
            writer.append_sysinfo(
                SysInfo(
                    time=START + timedelta(seconds=second),
                    seq=0,
                    run="",
                    boot=BOOT,
                    boottime=second * 10**9,
                    interval=intervals[second] * 1000,
                )
            )
        begin = stepped if stepped is not None and number < 2 else START
        found = {"node": [encode_row(idle_node(second))]}
        for row in rows:
            found.setdefault(kinds[type(row)], []).append(encode_row(row))
        writer.append(begin + timedelta(seconds=second), BOOT, (1000 + second) * 10**9, found)
    writer.close()
    return root


KINDS: dict[type, str] = {
    ContainerRow: "container",
    EnergyRow: "energy",
    GpuRow: "gpu",
    GpuProcessRow: "gpu_process",
    JobRow: "job",
    NetRow: "net",
    ProcessRow: "process",
}


def idle_node(second: int) -> NodeRow:
    return NodeRow(
        cpus_online=2, ticks_per_second=100, memory_total=4 * GIB, memory_available=3 * GIB,
        user_ticks=0, nice_ticks=0, system_ticks=0, irq_ticks=0, softirq_ticks=0,
        idle_ticks=second * 200, iowait_ticks=0, steal_ticks=0,
    )  # fmt: skip


def energy_of(tmp_path: Path, history: dict[int, list[Row]]) -> EnergyUse:
    root = record(tmp_path / "archive", history, KINDS)
    with opened([root], InspectionSettings()) as inspection:
        (machine,) = inspection.machines.values()
        return inspection.splits[machine.archive].whole()


def test_the_meter_of_the_machine_holds_the_gpus_already(tmp_path: Path) -> None:
    history: dict[int, list[Row]] = {
        second: [
            EnergyRow(meter="ipmi:dcmi", energy_source="ipmi", power=500.0),
            GpuRow(gpu_uuid="GPU-1", energy=second * 300_000_000, energy_source="counter"),
        ]
        for second in range(0, 101, 10)
    }
    energy = energy_of(tmp_path, history)
    assert energy.joules == pytest.approx(50_000)
    assert energy.gpu_joules == pytest.approx(30_000)


def test_a_machine_is_metered_by_its_packages_while_ipmi_is_silent(tmp_path: Path) -> None:
    history: dict[int, list[Row]] = {}
    for second in range(0, 101, 10):
        history[second] = [package(second)]
        if second in (10, 20) or second > 50:
            history[second].append(EnergyRow(meter="ipmi:dcmi", energy_source="ipmi", power=500.0))
    assert energy_of(tmp_path, history).joules == pytest.approx(30 * 100 + 70 * 500)


def package(second: int, watts: int = 100) -> EnergyRow:
    energy = second * watts * 1_000_000 % AMD_RANGE
    return EnergyRow(meter="rapl:package-0", energy_source="rapl", energy=energy, energy_range=AMD_RANGE)


def test_a_hole_is_not_filled_with_one_reading(tmp_path: Path) -> None:
    """The recorder stands still for ten hours; what it sees when it comes back says nothing of them."""
    history: dict[int, list[Row]] = {}
    for second in (*range(0, 101, 10), *range(10 * HOUR, 10 * HOUR + 101, 10)):
        busy = 100 if second == 10 * HOUR else 0
        history[second] = [
            EnergyRow(meter="ipmi:dcmi", energy_source="ipmi", power=500.0),
            GpuRow(gpu_uuid="GPU-1", gpu_util=busy, memory_used=busy * GIB, memory_total=100 * GIB),
            GpuProcessRow(gpu_uuid="GPU-1", pid=7, start_ticks=1, pgid=7, gpu_util=busy),
            JobRow(pgid=7, start_ticks=1, processes=1, user_ticks=0, system_ticks=0),
        ]
    root = record(tmp_path / "archive", history, KINDS)
    with opened([root], InspectionSettings()) as inspection:
        (gpu,), (job,) = inspection.gpus, inspection.jobs
        (machine,) = inspection.machines.values()
        joules = inspection.splits[machine.archive].whole().joules
        use = inspection.node_use[machine.archive]
    assert joules == pytest.approx(200 * 500)
    assert (gpu.gpu_seconds, gpu.gpu_util.mean, gpu.observed_seconds) == (0, 0, 200)
    assert (job.gpu_seconds, use.gpu_util.mean, use.gpu_memory_bytes.mean) == (0, 0, 0)


def test_a_counter_that_went_round_unseen_is_not_guessed_at(tmp_path: Path) -> None:
    history: dict[int, list[Row]] = {
        second: [package(second)] for second in (*range(0, 101, 10), *range(HOUR, HOUR + 101, 10))
    }
    root = record(tmp_path / "archive", history, KINDS)
    with open_tables([root]) as tables:
        found = tables.sql("SELECT interval_seconds, watts FROM energy_rates ORDER BY time").fetchall()
    assert found[11] == (HOUR - 100, None)
    assert {watts for seconds, watts in found if seconds == 10} == {100.0}


def test_a_divided_card_is_one_card(tmp_path: Path) -> None:
    history: dict[int, list[Row]] = {
        second: [
            GpuRow(gpu_uuid="GPU-1", memory_used=30 * GIB, memory_total=40 * GIB),
            GpuRow(gpu_uuid="MIG-1", parent_uuid="GPU-1", memory_used=20 * GIB, memory_total=20 * GIB),
            GpuRow(gpu_uuid="MIG-2", parent_uuid="GPU-1", memory_used=10 * GIB, memory_total=20 * GIB),
        ]
        for second in range(0, 1801, 10)
    }
    root = record(tmp_path / "archive", history, KINDS)
    with opened([root], InspectionSettings()) as inspection:
        (machine,) = inspection.machines.values()
        advice = inspection.machine_advice(machine.archive)
        parents = [gpu.parent for gpu in inspection.gpus]
    assert advice.gpus == 1
    assert advice.gpu_memory_total_bytes == 40 * GIB
    assert advice.gpu_memory_bytes.peak == 30 * GIB
    assert advice.size_peak is not None
    assert advice.size_peak.gpus == 1
    assert parents == [None, "GPU-1", "GPU-1"]


def test_the_energy_of_a_card_is_not_given_to_the_one_job_that_is_known(tmp_path: Path) -> None:
    history: dict[int, list[Row]] = {
        second: [
            GpuRow(gpu_uuid="GPU-1", gpu_util=100, energy=second * 300_000_000, energy_source="counter"),
            GpuProcessRow(gpu_uuid="GPU-1", pid=7, start_ticks=1, pgid=7, gpu_util=10),
            GpuProcessRow(gpu_uuid="GPU-1", pid=8, gpu_util=90),
            JobRow(pgid=7, start_ticks=1, processes=1, user_ticks=0, system_ticks=0),
        ]
        for second in range(0, 101, 10)
    }
    energy = energy_of(tmp_path, history)
    assert energy.gpu_joules == pytest.approx(30_000)
    assert energy.jobs_joules == pytest.approx(3_000)


@pytest.mark.parametrize(("provider", "expected"), [("azure", 100.0), ("gcp", 200.0)])
def test_what_leaves_the_machine_is_counted_once(provider: str, expected: float, tmp_path: Path) -> None:
    above = ("eth0", "eth0.100", "br0", "bond0", "vlan7", "wg0", "veth12", "enP4s1np0")
    history: dict[int, list[Row]] = {
        second: [NetRow(interface=name, received_bytes=second * 100, sent_bytes=0) for name in above]
        for second in range(0, 101, 10)
    }
    root = record(tmp_path / "archive", history, KINDS, provider)
    with open_tables([root]) as tables:
        found = tables.sql("SELECT DISTINCT net_received_bytes_per_second FROM node_rates").fetchall()
    assert [rate for (rate,) in found if rate is not None] == [expected]


def test_a_clock_that_was_set_does_not_make_a_timeline_without_end(tmp_path: Path) -> None:
    history: dict[int, list[Row]] = {second: [] for second in range(0, 101, 10)}
    root = record(tmp_path / "archive", history, KINDS, stepped=datetime(2026, 11, 1, tzinfo=UTC))
    with opened([root], InspectionSettings()) as inspection:
        (machine,) = inspection.machines.values()
        moments = inspection.timeline(machine.archive, 60)
    assert len(moments) <= 61
    assert sum(moment.cores is not None for moment in moments) == 2


def test_a_longer_interval_is_no_gap(tmp_path: Path) -> None:
    """The configuration is changed from 10 s to 60 s; later 600 s are missing."""
    times = [*range(0, 2001, 10), *range(2060, 5001, 60), *range(5600, 8001, 60)]
    history: dict[int, list[Row]] = {second: [] for second in times}
    root = record(tmp_path / "archive", history, KINDS, intervals={0: 10, 2060: 60})
    with opened([root], InspectionSettings()) as inspection:
        (machine,) = inspection.machines.values()
        coverage = inspection.coverage[machine.archive]
        gaps = [gap.seconds for _, gap in inspection.gaps]
    lost = 5600 - max(second for second in times if second < 5600)
    assert gaps == [lost]
    assert coverage.covered_seconds == times[-1] - lost
    assert coverage.interval_seconds == 10


def test_memory_is_never_below_zero(tmp_path: Path) -> None:
    """Resident and shared memory are read one after the other, while a process begins."""
    history: dict[int, list[Row]] = {
        second: [
            ProcessRow(pid=7, start_ticks=1, user_ticks=0, system_ticks=0, resident=resident, shared=400)
        ]
        for second, resident in ((0, 100), (10, 1400), (20, 2400))
    }
    root = record(tmp_path / "archive", history, KINDS)
    with open_tables([root]) as tables:
        rates = tables.sql("SELECT memory FROM process_rates ORDER BY time").fetchall()
        ((lowest,),) = tables.sql("SELECT minimum FROM process_totals WHERE measure = 'memory'").fetchall()
    assert rates == [(0,), (1000,), (2000,)]
    assert lowest == 0


@pytest.mark.parametrize("away", [8 * HOUR, 20 * HOUR], ids=["same day", "over midnight"])
def test_a_container_that_stood_still_was_not_idle(away: int, tmp_path: Path) -> None:
    """One busy core for 50 minutes, stopped for hours, and the same again."""
    history: dict[int, list[Row]] = {}
    for second in range(0, away + 3001, 600):
        runs = second if second <= 3000 else second - away + 600
        rows = [ContainerRow(container_id="ab" * 32, cpu_time=runs * 10**9)]
        history[second] = rows if second <= 3000 or second >= away else []
    root = record(tmp_path / "archive", history, KINDS)
    with opened([root], InspectionSettings()) as inspection:
        (box,) = inspection.containers
        rates = inspection.queries.rows(
            "SELECT DISTINCT cpu_cores FROM container_rates WHERE cpu_cores IS NOT NULL"
        )
    assert box.cpu_seconds == pytest.approx(3000 + 3600)
    assert box.observed_seconds == pytest.approx(3000 + 3600)
    assert box.cores.mean == pytest.approx(1.0)
    assert [row["cpu_cores"] for row in rates] == [1.0]
