"""Ports of fabrics in the published layouts of InfiniBand, RoCE and EFA, and what an ENA driver tells of allowances."""

import struct
import subprocess
import sys
from datetime import UTC, datetime

import msgspec
import pytest
from vmsonar_archive.records import FabricRow

from tests.collectors.rows import rows_of
from tests.fixtures.hosts.write import host_at, write
from tests.parts import requires
from vmsonar.collectors import ethtool, net
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.ethtool import Statistics
from vmsonar.collectors.fabric import FabricCollector
from vmsonar.collectors.net import NetCollector
from vmsonar.config.schema import Config

INFINIBAND = {
    "state": "4: ACTIVE\n", "phys_state": "5: LinkUp\n", "rate": "100 Gb/sec (4X EDR)\n", "link_layer": "InfiniBand\n",
    "counters/port_xmit_data": "1000\n", "counters/port_rcv_data": "2000\n", "counters/port_xmit_packets": "10\n",
    "counters/port_rcv_packets": "20\n", "counters/port_rcv_errors": "1\n", "counters/port_xmit_discards": "2\n",
    "counters/port_xmit_wait": "3\n", "counters/symbol_error": "4\n", "counters/link_error_recovery": "5\n",
    "counters/link_downed": "6\n", "counters/VL15_dropped": "0\n",
}  # fmt: skip
ROCE = {
    "state": "1: DOWN\n", "rate": "2.5 Gb/sec (1X SDR)\n", "link_layer": "Ethernet\n",
    "counters/port_xmit_data": "1\n", "counters/port_rcv_data": "2\n",
    "hw_counters/out_of_buffer": "7\n", "hw_counters/packet_seq_err": "8\n", "hw_counters/local_ack_timeout_err": "9\n",
    "hw_counters/rp_cnp_handled": "10\n",
}  # fmt: skip
EFA = {
    "state": "4: ACTIVE\n", "rate": "100 Gb/sec (4X EDR)\n", "link_layer": "Unspecified\n",
    "hw_counters/tx_bytes": "111\n", "hw_counters/rx_bytes": "222\n", "hw_counters/tx_pkts": "3\n",
    "hw_counters/rx_pkts": "4\n", "hw_counters/rx_drops": "5\n", "hw_counters/retrans_bytes": "6\n",
}  # fmt: skip
PORTS = {
    "mlx5_0": (INFINIBAND, FabricRow(
        fabric_device="mlx5_0", fabric_port=1, link_layer="InfiniBand", link_state="active", link_speed=100_000,
        received_bytes=8000, sent_bytes=4000, received_packets=20, sent_packets=10, received_errors=1, sent_drops=2,
        sent_waits=3, symbol_errors=4, link_recoveries=5, link_failures=6)),
    "mlx5_1": (ROCE, FabricRow(
        fabric_device="mlx5_1", fabric_port=1, link_layer="Ethernet", link_state="down", link_speed=2500,
        received_bytes=8, sent_bytes=4, received_drops=7, sequence_errors=8, acknowledge_timeouts=9, congestions=10)),
    "rdmap0s6": (EFA, FabricRow(
        fabric_device="rdmap0s6", fabric_port=1, link_layer="Unspecified", link_state="active", link_speed=100_000,
        received_bytes=222, sent_bytes=111, received_packets=4, sent_packets=3, received_drops=5,
        retransmitted_bytes=6)),
}  # fmt: skip


def put(root, device, files, port=1):
    write(root, {f"sys/class/infiniband/{device}/ports/{port}/{name}": text for name, text in files.items()})


@pytest.mark.parametrize("device", PORTS)
def test_a_port_becomes_its_row(device, tmp_path):
    files, expected = PORTS[device]
    put(tmp_path, device, files)
    assert rows_of(FabricCollector, host_at(tmp_path)) == {"fabric": [expected]}


def test_all_ports_have_rows_in_the_order_of_their_names(tmp_path):
    put(tmp_path, "mlx5_1", ROCE)
    put(tmp_path, "mlx5_0", INFINIBAND, port=2)
    put(tmp_path, "mlx5_0", INFINIBAND)
    found = rows_of(FabricCollector, host_at(tmp_path))["fabric"]
    assert [(row.fabric_device, row.fabric_port) for row in found] == [
        ("mlx5_0", 1),
        ("mlx5_0", 2),
        ("mlx5_1", 1),
    ]


@pytest.mark.parametrize("text", ["", "-1\n", "9" * 400, "N/A (no PMA)\n", "\0\0", "0x10", "\xff"])
def test_what_is_no_number_is_unknown(text, tmp_path):
    put(tmp_path, "mlx5_0", dict.fromkeys(INFINIBAND, text))
    (row,) = rows_of(FabricCollector, host_at(tmp_path))["fabric"]
    assert (row.received_bytes, row.sent_bytes, row.symbol_errors, row.link_speed) == (None, None, None, None)


def test_without_a_device_there_is_nothing_and_no_thread_is_woken(tmp_path):
    collector = FabricCollector(Setup(Config(), host_at(tmp_path)))
    assert not collector.may_block()
    assert rows_of(FabricCollector, host_at(tmp_path)) == {}
    assert [one.available for one in collector.capabilities()] == [False]


def test_a_device_that_went_and_one_that_came(tmp_path):
    put(tmp_path, "mlx5_0", INFINIBAND)
    collector = FabricCollector(Setup(Config(), host_at(tmp_path)))

    def names(second):
        at = Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=second * 10**9, boot="b", fresh=False)
        found = collector.collect(at).by_kind.get("fabric", [])
        return [msgspec.json.decode(row, type=FabricRow).fabric_device for row in found]

    assert names(1) == ["mlx5_0"]
    (tmp_path / "sys/class/infiniband/mlx5_0").rename(tmp_path / "sys/class/infiniband/mlx5_7")
    assert names(62) == ["mlx5_7"]
    collector.close()


ALLOWANCES = {
    "bw_in_allowance_exceeded": 11, "bw_out_allowance_exceeded": 12, "pps_allowance_exceeded": 13,
    "conntrack_allowance_exceeded": 14, "linklocal_allowance_exceeded": 15, "conntrack_allowance_available": 16,
}  # fmt: skip
OLDER = {name: value for name, value in ALLOWANCES.items() if name != "conntrack_allowance_available"}


class Driver:
    """Answers as a driver does, into the buffer that the question points to."""

    def __init__(self, counters, error=None):
        self.counters, self.error = {"tx_timeout": 0, "rx_queue_0": 5, **counters}, error

    def __call__(self, _descriptor, _request, asked):
        if self.error is not None:
            raise self.error
        import ctypes

        interface, address = struct.unpack("16sP16x", asked)
        self.interface = interface.rstrip(b"\0")
        command = ctypes.c_uint32.from_address(address).value
        count = len(self.counters)
        if command == 0x37:
            answer = struct.pack("=IIQI", command, 0, 2, count)
        elif command == 0x1B:
            names = b"".join(name.encode().ljust(32, b"\0") for name in self.counters)
            answer = struct.pack("=III", command, 1, count) + names
        else:
            answer = struct.pack(f"=II{count}Q", command, count, *self.counters.values())
        ctypes.memmove(address, answer, len(answer))


def machine_with(tmp_path, monkeypatch, driver, **files):
    """A machine with one device whose driver is this one."""
    write(tmp_path, {"proc/net/dev": "a\nb\n  ens5: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
                     "sys/class/net/ens5/device/vendor": "0x1d0f\n", **files})  # fmt: skip
    monkeypatch.setattr(ethtool.fcntl, "ioctl", driver)
    monkeypatch.setattr(Statistics.__init__, "__defaults__", (driver,))
    monkeypatch.setattr("vmsonar.host.roots.Host.is_this_machine", property(lambda _: True))
    return host_at(tmp_path)


@pytest.mark.parametrize("counters", [ALLOWANCES, OLDER])
def test_the_clouds_allowances_are_in_the_row(counters, tmp_path, monkeypatch):
    host = machine_with(tmp_path, monkeypatch, Driver(counters), **{"sys/class/net/ens5/speed": "25000\n"})
    (row,) = rows_of(NetCollector, host)["net"]
    assert {
        name: getattr(row, ours) for name, ours in net._ALLOWANCES.items() if name in counters
    } == counters
    assert row.connections_left == counters.get("conntrack_allowance_available")
    assert (row.link_speed, row.received_drops, row.sent_errors) == (25000, 4, 11)


@pytest.mark.parametrize(
    "driver",
    [Driver({}), Driver({}, OSError(95, "Operation not supported")), Driver({}, OSError(19, "gone"))],
)
def test_a_driver_without_them_leaves_them_unknown(driver, tmp_path, monkeypatch):
    host = machine_with(tmp_path, monkeypatch, driver)
    (row,) = rows_of(NetCollector, host)["net"]
    assert [getattr(row, name) for name in net._ALLOWANCES.values()] == [None] * 6
    assert row.received_bytes == 1


@pytest.mark.parametrize(("counters", "available"), [(ALLOWANCES, True), ({}, False)])
def test_doctor_says_whether_the_driver_counts_them(counters, available, tmp_path, monkeypatch):
    host = machine_with(tmp_path, monkeypatch, Driver(counters))
    assert (
        len(NetCollector(Setup(Config(), host)).capabilities()) == 1
    )  # another driver has none, and needs none
    (tmp_path / "drivers/ena").mkdir(parents=True)
    (tmp_path / "sys/class/net/ens5/device/driver").symlink_to(tmp_path / "drivers/ena")
    (_, told) = NetCollector(Setup(Config(), host)).capabilities()
    assert (told.item, told.available) == ("the cloud's allowances", available)


def test_a_driver_that_fails_later_is_asked_anew(tmp_path, monkeypatch):
    driver = Driver(ALLOWANCES)
    host = machine_with(tmp_path, monkeypatch, driver)
    collector = NetCollector(Setup(Config(), host))
    line = b"  ens5: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"
    assert collector.parse(line).packets_exceeded == 13
    driver.error = OSError(19, "No such device")
    assert collector.parse(line).packets_exceeded is None
    driver.error = None
    assert collector.parse(line).packets_exceeded == 13
    collector.close()


@pytest.mark.parametrize(
    ("text", "speed"), [("1000\n", 1000), ("-1\n", None), ("", None), ("9" * 30, None), ("0", None)]
)
def test_a_link_without_a_speed_has_none(text, speed, tmp_path):
    write(tmp_path, {"sys/class/net/eth0/speed": text})
    assert net.link_speed(tmp_path / "sys/class/net", "eth0") == speed
    assert net.link_speed(tmp_path / "sys/class/net", "eth1") is None


VETH = """
ip link add probe type veth peer name other
exec {0} -c 'from vmsonar.collectors.ethtool import Statistics
print(Statistics("probe", dict(peer_ifindex="x")).read())'
"""


@requires("netns")
def test_a_real_driver_answers():
    """A pair of virtual interfaces, asked in a network of its own."""
    done = subprocess.run(["unshare", "--net", "sh", "-c", VETH.format(sys.executable)], capture_output=True,
                          text=True, timeout=30, check=False)  # fmt: skip
    if "veth" in done.stderr or "not supported" in done.stderr:
        pytest.skip(f"no veth here: {done.stderr}")
    assert done.stdout.startswith("{'x': "), done.stderr


def test_an_interface_that_is_not_there_has_no_counters():
    statistics = Statistics("no-such-link", {"x": "y"})
    assert statistics.is_empty
    assert statistics.read() == {}
