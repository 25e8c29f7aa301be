"""The energy collector (vmsonar.collectors.energy) on trees of files: RAPL, hwmon and what IPMI left."""

import json
import os
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.collectors.energy.meters import RANGE, START, write
from tests.parts import requires
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.energy import EnergyCollector
from vmsonar.config.schema import Config
from vmsonar.host.roots import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(proc=tmp_path / "proc", sys=tmp_path / "sys", etc=tmp_path / "etc", run=tmp_path / "run")


def rapl(host: Host, package: int, dram: int) -> None:
    """One package with its memory, its MMIO double and the control type above them."""
    zones = {
        "intel-rapl:0": ("package-0", package),
        "intel-rapl:0:0": ("dram", dram),
        "intel-rapl-mmio:0": ("package-0", package),
    }
    write(host.sys / "class/powercap", {"intel-rapl/enabled": 1})
    for zone, (name, energy) in zones.items():
        files: dict[str, str | int] = {"name": name, "energy_uj": energy, "max_energy_range_uj": RANGE}
        write(host.sys / "class/powercap" / zone, files)


def collect(
    collector: EnergyCollector, seconds: float = 0, fresh: bool = False
) -> dict[str, list[dict[str, Any]]]:
    time = START + timedelta(seconds=seconds)
    tick = Tick(time=time, boottime=int((1000 + seconds) * 1e9), boot="b", fresh=fresh)
    return {kind: [json.loads(row) for row in rows] for kind, rows in collector.collect(tick).by_kind.items()}


def test_joules_between_two_samples_of_counters_that_wrap(host: Host) -> None:
    rapl(host, RANGE - 2_000_000, 5_000_000)
    collector = EnergyCollector(Setup(Config(), host))
    before = collect(collector)
    assert before == {
        "energy": [
            {
                "meter": "rapl:package-0",
                "energy_source": "rapl",
                "energy": RANGE - 2_000_000,
                "energy_range": RANGE,
            },
            {
                "meter": "rapl:package-0/dram",
                "energy_source": "rapl",
                "energy": 5_000_000,
                "energy_range": RANGE,
            },
        ]
    }
    rapl(host, 998_000_000, 45_000_000)
    after = collect(collector, 10)
    joules = {
        old["meter"]: (new["energy"] - old["energy"]) % (new["energy_range"] or 2**63) / 1e6
        for old, new in zip(before["energy"], after["energy"], strict=True)
    }
    assert joules == {"rapl:package-0": 1000.0, "rapl:package-0/dram": 40.0}


def test_sensors_of_hwmon_without_those_of_gpus(host: Host) -> None:
    board = host.sys / "devices/ACPI000D:00"
    write(board, {"path": "x"})
    hwmon = host.sys / "class/hwmon"
    write(hwmon / "hwmon0", {"name": "power_meter", "power1_average": 287_000_000, "temp1_input": 30_000})
    (hwmon / "hwmon0/device").symlink_to(board)
    sensors: dict[str, str | int] = {
        "name": "ltc2947",
        "power1_input": 12_500_000,
        "power1_average": 1,
        "power1_label": "vin",
        "energy1_input": 77,
    }
    write(hwmon / "hwmon1", sensors)
    write(hwmon / "hwmon2", {"name": "amdgpu", "power1_average": 1})
    write(hwmon / "hwmon3", {"name": "nvme", "temp1_input": 40_000})
    assert collect(EnergyCollector(Setup(Config(), host))) == {
        "energy": [
            {"meter": "hwmon:ltc2947/energy1", "energy_source": "hwmon", "energy": 77},
            {"meter": "hwmon:ltc2947/vin", "energy_source": "hwmon", "power": 12.5},
            {"meter": "hwmon:power_meter@ACPI000D:00/power1", "energy_source": "hwmon", "power": 287.0},
        ]
    }


def test_a_machine_without_any_meter_says_so_once(host: Host) -> None:
    collector = EnergyCollector(Setup(Config(), host))
    said = {
        "collector": "energy",
        "reason": "no_meter",
        "detail": "this machine shows no RAPL, hwmon or IPMI meter",
    }
    assert collect(collector, 0, fresh=True) == {"gap": [said]}
    assert [collect(collector, seconds) for seconds in (10, 20, 30)] == [{}, {}, {}]
    # a new segment stands on its own
    assert collect(collector, 40, fresh=True) == {"gap": [{**said, "since": "2026-11-16T14:00:00Z"}]}


def test_a_meter_that_cannot_be_read_is_a_gap_and_not_0(host: Host) -> None:
    rapl(host, 7, 9)
    write(host.sys, {"class/powercap/intel-rapl:0:0/energy_uj": ""})
    rows = collect(EnergyCollector(Setup(Config(), host)))
    assert [row["meter"] for row in rows["energy"]] == ["rapl:package-0"]
    assert rows["gap"] == [
        {"collector": "energy", "reason": "unreadable", "detail": "meter rapl:package-0/dram"}
    ]


@requires("root")
def test_counters_for_root_only_are_said_once_with_a_remedy() -> None:
    """In a child that is nobody, since root may read everything; pytest's own folder is for root only."""
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        host = Host(sys=Path(name) / "sys", run=Path(name) / "run")
        rapl(host, 7, 9)
        for path in (host.sys / "class/powercap").glob("*/energy_uj"):
            path.chmod(0o400)
        answer = _as_nobody(lambda: [collect(EnergyCollector(Setup(Config(), host))), *_sights(host)])
    said = {"collector": "energy", "reason": "permission", "detail": "the rapl meters are for root only"}
    assert answer[0] == {"gap": [said]}
    assert answer[1][0] is False
    assert "tmpfiles.d" in answer[1][1]


def _sights(host: Host) -> list[list[Any]]:
    return [[each.available, each.remedy] for each in EnergyCollector(Setup(Config(), host)).capabilities()]


def _as_nobody(task: Any) -> Any:
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            os.write(written, json.dumps(task()).encode())
        finally:
            os._exit(0)
    os.close(written)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def ipmi(host: Host, **changed: Any) -> None:
    content = {
        "format": 1,
        "time": "2026-11-16T14:00:00Z",
        "boottime": 1_000_000_000_000,
        "interval": 60.0,
        "meter": "ipmi:dcmi",
        "power": 332.0,
        "active": True,
        **changed,
    }
    write(host.run, {"vmsonar/ipmi.json": json.dumps(content)})


def test_what_ipmi_left_is_read_until_it_is_stale(host: Host) -> None:
    ipmi(host)
    collector = EnergyCollector(Setup(Config(), host))
    row = {"energy": [{"meter": "ipmi:dcmi", "energy_source": "ipmi", "power": 332.0}]}
    assert collect(collector) == row
    assert collect(collector, 180) == row
    said = "the IPMI timer has left no reading for three of its intervals"
    assert collect(collector, 181) == {"gap": [{"collector": "energy", "reason": "stale", "detail": said}]}


def test_the_timer_is_a_remedy_only_where_there_is_a_board_to_ask(host: Host) -> None:
    def sight() -> tuple[bool, str | None]:
        (line,) = [
            each for each in EnergyCollector(Setup(Config(), host)).capabilities() if "IPMI" in each.item
        ]
        return line.available, line.remedy

    assert sight() == (False, None)
    write(host.sys, {"class/ipmi/ipmi0/dev": "240:0"})
    assert sight() == (False, "systemctl enable --now vmsonar-ipmi.timer")
    ipmi(host)
    assert sight() == (True, None)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"boottime": 2_000_000_000_000}, "stale"),
        ({"power": None, "error": "ipmitool failed with 1: no"}, "ipmi_failed"),
        ({"power": 0, "active": False}, "not_measuring"),
        ({"power": None}, "not_measuring"),
        ({"power": "much"}, "bad_file"),
    ],
)
def test_what_is_no_reading_is_a_gap(host: Host, changed: dict[str, Any], reason: str) -> None:
    ipmi(host, **changed)
    rows = collect(EnergyCollector(Setup(Config(), host)))
    assert (list(rows), [row["reason"] for row in rows["gap"]]) == (["gap"], [reason])


def test_a_link_in_place_of_the_file_is_not_followed(host: Host) -> None:
    ipmi(host)
    path = host.run / "vmsonar/ipmi.json"
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))
    assert [row["reason"] for row in collect(EnergyCollector(Setup(Config(), host)))["gap"]] == ["bad_file"]
