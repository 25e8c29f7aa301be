"""From the counters to the joules that a reader sees: wraps are undone, and no joule is counted twice."""

from datetime import timedelta
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_inspect.facts.energy import _TOTALS
from vmsonar_inspect.tables.database import open_tables

from tests.collectors.energy.meters import RANGE, START, write
from tests.making.archives import open_writer, utc_now
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.energy import EnergyCollector
from vmsonar.config.schema import Config
from vmsonar.host.roots import Host

ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "psys",
}


def show(host: Host, *energies: int) -> None:
    for (zone, name), energy in zip(ZONES.items(), energies, strict=True):
        files: dict[str, str | int] = {"name": name, "energy_uj": energy, "max_energy_range_uj": RANGE}
        write(host.sys / "class/powercap" / zone, files)


def test_joules_of_a_recorded_archive(tmp_path: Path) -> None:
    host = Host(sys=tmp_path / "sys", run=tmp_path / "run")
    node = NodeIdentity(machine_id="m", instance_id=None, hostname_short="vm", hostname_full="vm")
    writer = open_writer(tmp_path / "archive", node=node, now=utc_now)
    collector = EnergyCollector(Setup(Config(), host))
    for second, package in ((0, RANGE - 2_000_000), (10, 998_000_000), (20, 1_998_000_000)):
        # the cores are a part of the package, the platform contains it; memory is beside it
        show(host, package, 5_000_000 + second * 60_000_000, second * 4_000_000, second * 300_000_000)
        tick = Tick(START + timedelta(seconds=second), second * 10**9, "b", fresh=second == 0)
        writer.append(tick.time, tick.boot, tick.boottime, collector.collect(tick).by_kind)
    writer.close()
    with open_tables([tmp_path / "archive"]) as tables:
        sums = "SELECT meter, SUM(joules) FROM energy_rates GROUP BY meter ORDER BY meter"
        assert tables.sql(sums).fetchall() == [
            ("rapl:package-0", 2000.0),
            ("rapl:package-0/core", 1200.0),
            ("rapl:package-0/dram", 80.0),
            ("rapl:psys", 6000.0),
        ]
        ((_, joules),) = tables.sql(_TOTALS).fetchall()
    assert joules == 2080.0
