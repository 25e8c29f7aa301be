"""Shares and links get the verdicts they deserve; what was only near them gets none."""

from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import FabricRow, NetfsRow, NetRow
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.making.machines import GIB, MIB, Load, Machine

SECONDS = 600
ZERO = dict.fromkeys(
    (name for name in NetfsRow.__struct_fields__ if name.endswith(("_operations", "_time"))), 0
)
ZERO |= {"read_bytes": 0, "write_bytes": 0, "server_read_bytes": 0, "server_write_bytes": 0, "timeouts": 0,
         "retransmissions": 0, "errors": 0}  # fmt: skip


def share(machine: Machine, point: str = "/data", minor: int = 9, begin: int = 0, **rates: float) -> Machine:
    """Counters that rise by so much a second, from the mount on."""
    for second in range(begin, SECONDS + 1, 10):
        age = second - begin + 5
        told: dict[str, Any] = ZERO | {name: int(rate * age) for name, rate in rates.items()}
        row = NetfsRow(device_major=0, device_minor=minor, fs_type="nfs4", mount_point=point, age=age, **told)
        machine.more.append((second, "netfs", row))
    return machine


def busy(**more: Any) -> Load:
    return Load(100, "python3 train.py", begin=-5, cores=0.4, memory=GIB, **more)


def found(machine: Machine, folder: Path) -> dict[str, tuple[str, str]]:
    root = machine.record(folder / "archive", SECONDS)
    with opened([root], InspectionSettings()) as inspection:
        advices = inspection.advice(next(iter(inspection.sources)))
        every = [verdict for advice in advices for verdict in advice.verdicts]
    new = ("share", "link", "wrong_mount", "waits_for", "metadata", "throttled_by", "io_bound")
    return {verdict.rule: (verdict.name, verdict.says) for verdict in every if verdict.rule.startswith(new)}


WAITS = (
    "while it ran, 0.9 operations on network file systems waited on average and 29 GiB were moved there; "
    "it used 0.40 cores and was found waiting for I/O in 100 % of its samples"
)
HELD = (
    "1,800 packets were held back or dropped in 100 % of the time, because more went over it than this type "
    "of instance may"
)


def test_a_quiet_share_gets_no_verdict(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), read_operations=1, read_execute_time=2, server_read_bytes=1e5)
    assert found(machine, tmp_path) == {}


def test_a_job_that_waits_for_a_share_is_told_so_and_not_of_the_disk(tmp_path: Path) -> None:
    machine = Machine(loads=[busy(state="D", read=50 * MIB)], pressure={"io": 0.6})
    share(machine, read_operations=50, read_execute_time=900, server_read_bytes=50 * MIB, read_bytes=50 * MIB)
    machine.remote = True
    assert found(machine, tmp_path) == {"waits_for_share": ("job 100 (Python in train.py)", WAITS)}


def test_a_job_beside_a_busy_share_that_does_not_wait_gets_none(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), read_operations=50, read_execute_time=900, server_read_bytes=MIB)
    assert "waits_for_share" not in found(machine, tmp_path)


def test_metadata_that_is_all_the_work(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), metadata_operations=900, read_operations=100, read_bytes=50_000,
                    metadata_execute_time=180)  # fmt: skip
    assert found(machine, tmp_path) == {
        "metadata_bound": (
            "share /data",
            "90 % of 1,000 operations a second were about names and attributes, 50 B were moved by each",
        )
    }


def test_requests_that_are_sent_again(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), read_operations=100, retransmissions=0.2)
    assert found(machine, tmp_path) == {
        "share_retransmissions": ("share /data", "120 of 60,000 operations were sent again")
    }


def test_a_server_that_did_not_answer(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), read_operations=1, read_execute_time=1)
    for second, _, row in machine.more:
        if second >= 300:
            row.timeouts, row.read_execute_time = 2, row.read_execute_time + 400_000
    (verdict,) = found(machine, tmp_path).items()
    assert verdict == (
        "share_silent",
        ("share /data", "2 major timeouts; operations took up to 40 s, 668 ms on average"),
    )


def test_a_remount_counts_from_zero_and_is_one_share(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), server_write_bytes=MIB, write_operations=10)
    machine.more = [each for each in machine.more if each[0] < 300]
    share(machine, begin=300, server_write_bytes=MIB, write_operations=10)
    root = machine.record(tmp_path / "archive", SECONDS)
    with opened([root], InspectionSettings()) as inspection:
        (one,) = inspection.shares
    # 285 s from the first row on, none known between the last row and the remount, 305 s since.
    assert one.server_write_bytes == pytest.approx((290 + 305) * MIB)


def test_a_share_mounted_while_recording_counts_from_its_mount(tmp_path: Path) -> None:
    machine = share(Machine(loads=[busy()]), begin=100, server_write_bytes=MIB, write_operations=10)
    root = machine.record(tmp_path / "archive", SECONDS)
    with opened([root], InspectionSettings()) as inspection:
        (one,) = inspection.shares
    assert one.server_write_bytes == pytest.approx((SECONDS - 100 + 5) * MIB)


@pytest.mark.parametrize(
    ("point", "fires"), [("/home", True), ("/nfs/users/anna", True), ("/scratch", False)]
)
def test_a_job_that_writes_to_a_network_home(point: str, fires: bool, tmp_path: Path) -> None:
    machine = share(
        Machine(loads=[busy(write=2 * MIB)]), point, server_write_bytes=2 * MIB, write_operations=20
    )
    machine.remote = True
    assert ("wrong_mount" in found(machine, tmp_path)) is fires


def allowances(machine: Machine, rate: float) -> None:
    for second in range(0, SECONDS + 1, 10):
        row = NetRow(interface="ens5", interface_kind="physical", received_bytes=second * MIB, sent_bytes=0,
                     received_packets=second * 1000, sent_packets=0, received_errors=0, sent_errors=0,
                     received_drops=0, sent_drops=0, link_speed=10_000, received_bytes_exceeded=int(rate * second),
                     sent_bytes_exceeded=0, packets_exceeded=0, connections_exceeded=0)  # fmt: skip
        machine.more.append((second, "net", row))


@pytest.mark.parametrize(("rate", "fires"), [(3.0, True), (0.0, False)])
def test_what_the_cloud_holds_back(rate: float, fires: bool, tmp_path: Path) -> None:
    machine = Machine(loads=[busy()])
    allowances(machine, rate)
    verdicts = found(machine, tmp_path)
    assert ("throttled_by_the_cloud" in verdicts) is fires
    if fires:
        assert verdicts["throttled_by_the_cloud"] == ("link ens5", HELD)


def test_errors_of_a_fabric(tmp_path: Path) -> None:
    machine = Machine(loads=[busy()])
    for second in range(0, SECONDS + 1, 10):
        row = FabricRow(fabric_device="mlx5_0", fabric_port=1, link_layer="InfiniBand", link_speed=100_000,
                        received_bytes=second * 100 * MIB, sent_bytes=0, symbol_errors=second // 300)  # fmt: skip
        machine.more.append((second, "fabric", row))
    assert found(machine, tmp_path) == {"link_errors": ("link mlx5_0/1", "2 errors on the link")}
    with opened([tmp_path / "archive"], InspectionSettings()) as inspection:
        (port,) = [link for link in inspection.links if link.kind == "InfiniBand"]
    assert port.speed_rate == pytest.approx(12.5e9)
    assert port.link_share.peak == pytest.approx(100 * MIB / 12.5e9)
