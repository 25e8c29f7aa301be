import os
import time
from pathlib import Path

import msgspec
import pytest

from tests.collectors.rows import rows_of, tick
from tests.fixtures.hosts import aarch64_vm, small_vm, two_socket_node
from vmsonar.collectors import node
from vmsonar.collectors.base import RowCache, Setup
from vmsonar.collectors.cpu import CpuCollector
from vmsonar.collectors.disk import DiskCollector
from vmsonar.collectors.net import NetCollector
from vmsonar.collectors.node import NodeCollector
from vmsonar.collectors.pressure import PressureCollector
from vmsonar.config.schema import Config
from vmsonar.host.files import KeptFile
from vmsonar.host.roots import Host

#: Nobody says which devices are whole, so all are.
NO_SYSFS = Host(sys=Path("/nowhere"))


def test_node_of_a_small_vm(tmp_path):
    (row,) = rows_of(NodeCollector, small_vm(tmp_path))["node"]
    assert (row.user_ticks, row.idle_ticks, row.steal_ticks, row.cpus_online) == (200, 18000, 14, 2)
    assert (row.load1, row.load15, row.tasks_runnable, row.tasks_existing) == (0.5, 2.0, 3, 456)
    assert (row.forks, row.context_switches, row.interrupts, row.tasks_blocked) == (4242, 987654, 123456, 1)
    assert row.memory_total == 4_000_000 * 1024
    assert row.memory_cached == 2048000 * 1024
    assert (row.swap_free, row.oom_kills, row.pages_swapped_out) == (1000000 * 1024, 2, 340)


def test_what_the_machine_can_run_out_of_is_told_against_its_limit(tmp_path):
    (row,) = rows_of(NodeCollector, small_vm(tmp_path))["node"]
    assert (row.open_files, row.open_files_limit) == (1216, 400000)
    assert (row.tasks_existing, row.tasks_limit) == (456, 31000)
    assert (row.connections, row.connections_limit) == (17, 65536)


def test_a_machine_without_such_limits_has_none(tmp_path):
    host = small_vm(tmp_path)
    (host.proc / "sys/fs/file-nr").write_text("1216\t0\t9223372036854775807\n")
    (host.proc / "sys/net/netfilter/nf_conntrack_count").unlink()
    (host.proc / "sys/net/netfilter/nf_conntrack_max").unlink()
    (row,) = rows_of(NodeCollector, host)["node"]
    assert (row.open_files, row.open_files_limit) == (1216, None)
    assert (row.connections, row.connections_limit) == (None, None)


def test_open_files_of_the_real_kernel_rise_with_those_that_are_opened(tmp_path):
    (before,) = rows_of(NodeCollector, Config().host)["node"]
    descriptors = [os.open(tmp_path, os.O_RDONLY) for _ in range(500)]
    (after,) = rows_of(NodeCollector, Config().host)["node"]
    for descriptor in descriptors:
        os.close(descriptor)
    assert after.open_files > before.open_files + 200
    assert after.tasks_existing < after.tasks_limit


def test_a_stat_that_a_sandbox_makes_up_may_lack_lines():
    assert node.parse_stat(b"cpu  1 2\ncpu0 1 2\nprocesses 7\n") == {
        "user_ticks": 1,
        "nice_ticks": 2,
        "cpus_online": 1,
    }


def test_every_field_of_the_node_is_filled(tmp_path):
    (row,) = rows_of(NodeCollector, small_vm(tmp_path))["node"]
    assert [name for name in row.__struct_fields__ if getattr(row, name) is None] == []


def test_what_a_container_hides_of_proc_is_null_not_zero(tmp_path):
    host = small_vm(tmp_path)
    (host.proc / "vmstat").unlink()
    (host.proc / "loadavg").unlink()
    (row,) = rows_of(NodeCollector, host)["node"]
    assert (row.page_faults, row.load1) == (None, None)
    assert row.user_ticks == 200


def test_cpus_of_a_large_node(tmp_path):
    rows = rows_of(CpuCollector, two_socket_node(tmp_path))["cpu"]
    assert [row.cpu_index for row in rows] == list(range(256))
    assert (rows[255].user_ticks, rows[255].guest_nice_ticks) == (355, 0)


def test_columns_that_an_old_kernel_lacks_are_null():
    row = CpuCollector(Setup(Config())).parse(b"cpu3 1 2 3 4 5 6 7")
    assert (row.cpu_index, row.softirq_ticks, row.steal_ticks) == (3, 7, None)
    assert (
        DiskCollector(Setup(Config(), NO_SYSFS)).parse(b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11").discards is None
    )


def test_every_counter_of_a_disk_is_in_its_place():
    row = DiskCollector(Setup(Config(), NO_SYSFS)).parse(
        b" 8 0 sda " + b" ".join(b"%d" % number for number in range(1, 18))
    )
    assert (row.reads, row.read_time, row.writes, row.write_time) == (1, 4, 5, 8)
    assert (row.in_flight, row.busy_time, row.queue_time) == (9, 10, 11)
    assert (row.discards, row.discard_time, row.flushes, row.flush_time) == (12, 15, 16, 17)


def test_disks_are_whole_devices_that_were_ever_used(tmp_path):
    (row,) = rows_of(DiskCollector, small_vm(tmp_path))["disk"]
    assert (row.device, row.device_major, row.device_minor) == ("vda", 254, 0)
    assert (row.reads, row.write_sectors, row.in_flight, row.flush_time) == (100, 6000, 0, 15)


def test_interfaces(tmp_path):
    lo, eth0 = rows_of(NetCollector, small_vm(tmp_path))["net"]
    assert (lo.interface, eth0.interface) == ("lo", "eth0")
    assert (eth0.received_bytes, eth0.received_drops, eth0.sent_bytes, eth0.sent_drops) == (
        9000000,
        2,
        700000,
        4,
    )


ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
ROUTES_6 = (
    f"{'0' * 32} 00 {'0' * 32} 00 fe80{'0' * 28} 00000400 00000001 00000000 00000003     wan6\n"
    f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 00200200       lo\n"
)


def test_what_leads_out_of_the_machine_is_told_by_device_and_route(tmp_path):
    """Azure's pair of interfaces, a bridge, and an interface whose name says nothing."""
    host = small_vm(tmp_path)
    line = "{}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
    names = ("lo", "eth0", "enP1", "docker0", "wan6")
    (host.proc / "1/net/dev").write_text("Inter-|\n face |\n" + "".join(map(line.format, names)))
    (host.proc / "1/net/route").write_text(ROUTES)
    (host.proc / "1/net/ipv6_route").write_text(ROUTES_6)
    for name in names:
        (host.sys / "class/net" / name).mkdir(parents=True, exist_ok=True)
    for name in ("eth0", "enP1"):
        (host.sys / "class/net" / name / "device").mkdir(exist_ok=True)
    (host.sys / "class/net/enP1/master").symlink_to("../eth0")
    rows = {row.interface: row for row in rows_of(NetCollector, host)["net"]}
    assert {name: (row.interface_kind, row.default_route) for name, row in rows.items()} == {
        "lo": ("loopback", False),
        "eth0": ("physical", True),
        "enP1": ("lower", False),
        "docker0": ("virtual", False),
        "wan6": ("virtual", True),
    }


def test_an_interface_glued_to_its_number():
    row = NetCollector(Setup(Config())).parse(b"veth1a2b:c:12 1 0 0 0 0 0 0 34 2 0 0 0 0 0 0")
    assert (row.interface, row.received_bytes, row.sent_bytes) == ("veth1a2b:c", 12, 34)


def test_pressure(tmp_path):
    rows = {row.resource: row for row in rows_of(PressureCollector, small_vm(tmp_path))["pressure"]}
    assert set(rows) == {"cpu", "memory", "io"}
    assert (rows["cpu"].some_time, rows["cpu"].full_time) == (1000, None)
    assert (rows["io"].some_time, rows["io"].full_time) == (30, 20)


def test_a_kernel_without_pressure_says_so(tmp_path):
    host = aarch64_vm(tmp_path)
    with pytest.raises(OSError, match="psi=1"):
        rows_of(PressureCollector, host)
    assert not PressureCollector(Setup(Config(), host)).capabilities()[0].available


def test_node_and_cpu_share_one_read_of_stat(tmp_path):
    host = small_vm(tmp_path)
    setup = Setup(Config(), host)
    first, second = NodeCollector(setup), CpuCollector(setup)
    first.collect(tick(5))
    (host.proc / "stat").write_text("cpu  1 1\nintr 0\n")
    assert len(second.collect(tick(5)).by_kind["cpu"]) == 2
    assert "cpu" not in second.collect(tick(6)).by_kind


def test_the_real_kernel_agrees_with_itself():
    (row,) = rows_of(NodeCollector, Config().host)["node"]
    assert row.cpus_online == os.cpu_count()
    assert row.memory_total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(row.load1 - os.getloadavg()[0]) < 5


def test_cpu_time_of_the_real_kernel_moves_with_work():
    def used(rows):
        return sum(row.user_ticks + row.system_ticks for row in rows["cpu"])

    host = Config().host
    before, started = used(rows_of(CpuCollector, host)), time.process_time()
    while time.process_time() - started < 0.3:
        pass
    assert used(rows_of(CpuCollector, host)) - before >= 15


def test_disk_rows_of_the_real_kernel_name_devices_of_sysfs():
    for row in rows_of(DiskCollector, Config().host).get("disk", []):
        assert os.path.exists(f"/sys/block/{row.device}")


def test_a_kept_file_is_read_whole_and_anew(tmp_path):
    path = tmp_path / "f"
    file = KeptFile(path)
    with pytest.raises(FileNotFoundError):
        file.read()
    for size in (0, 10, 2048, 65536, 200_000, 7):
        path.write_bytes(b"x" * size)
        assert len(file.read()) == size
    file.close()


def test_a_seq_file_of_many_pages_is_read_whole():
    # a seq_file answers a page at a time, however much is asked for
    path = Config().host.proc / "self" / "maps"
    file = KeptFile(path)
    content = file.read()
    file.close()
    assert len(content) > 3 * 4096
    assert content.splitlines()[-1] == path.read_bytes().splitlines()[-1]


def test_the_row_cache_encodes_a_line_once_and_forgets_what_is_gone():
    encoded = []
    cache = RowCache(lambda line: encoded.append(line) or line.upper())
    assert cache.rows([b"a", b"b"]) == [b"A", b"B"]
    assert cache.rows([b"a"]) == [b"A"]
    assert encoded == [b"a", b"b"]
    assert cache.rows([b"b"]) == [b"B"]
    assert encoded == [b"a", b"b", b"b"]


def test_a_process_that_the_kernel_killed_for_memory_is_an_event(tmp_path):
    host = small_vm(tmp_path)
    collector = NodeCollector(Setup(Config(), host))
    assert "event" not in collector.collect(tick()).by_kind, "those before our time are not news"
    vmstat = host.proc / "vmstat"
    vmstat.write_text(vmstat.read_text().replace("oom_kill 2", "oom_kill 3"))
    (event,) = collector.collect(tick()).by_kind["event"]
    assert msgspec.json.decode(event) == {"event_type": "oom_kill", "detail": "1 process"}
    assert "event" not in collector.collect(tick()).by_kind
    collector.close()
