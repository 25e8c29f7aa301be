"""Each file of a control group, v1 and v2, and the fields that it fills."""

import pytest
from vmsonar_archive.records import ContainerDevice

from vmsonar.collectors.cgroup_files import V1_SOURCES, V2_SOURCES
from vmsonar.collectors.container.network import Traffic, parse_net_dev

V1 = [
    ("cpuacct.usage", (b"43913207\n",), {"cpu_time": 43913207}),
    ("cpuacct.stat", (b"user 2\nsystem 3\n",), {"cpu_user_time": 20_000_000, "cpu_system_time": 30_000_000}),
    (
        "cpu.stat",
        (b"nr_periods 9\nnr_throttled 4\nthrottled_time 70\nnr_bursts 0\nburst_time 0\n",),
        {"periods": 9, "throttled_periods": 4, "throttled_time": 70},
    ),
    ("cpu.cfs_quota_us", (b"-1\n", b"100000\n"), {"cpu_quota": None, "cpu_period": 100000, "cpu_unlimited": True}),
    (
        "cpu.cfs_quota_us",
        (b"50000\n", b"100000\n"),
        {"cpu_quota": 50000, "cpu_period": 100000, "cpu_unlimited": False},
    ),
    ("cpuset.effective_cpus", (b"0-1,4\n",), {"cpu_set": "0-1,4"}),
    ("memory.usage_in_bytes", (b"565248\n",), {"memory_used": 565248}),
    ("memory.max_usage_in_bytes", (b"4087808\n",), {"memory_peak": 4087808}),
    ("memory.limit_in_bytes", (b"9223372036854771712\n",), {"memory_limit": None, "memory_unlimited": True}),
    ("memory.limit_in_bytes", (b"9223372036854710272\n",), {"memory_limit": None, "memory_unlimited": True}),
    ("memory.limit_in_bytes", (b"67108864\n",), {"memory_limit": 67108864, "memory_unlimited": False}),
    ("memory.memsw.limit_in_bytes", (b"67108864\n", b"67108864\n"), {"swap_limit": 0}),
    ("memory.memsw.limit_in_bytes", (b"67108864\n", b"60000000\n"), {"swap_limit": 7108864}),
    ("memory.memsw.limit_in_bytes", (b"9223372036854771712\n", b"67108864\n"), {"swap_limit": None}),
    (
        "memory.stat",
        ((b"cache 1\nrss 2\nshmem 3\nswap 4\ninactive_file 5\ntotal_cache 10\ntotal_rss 20\ntotal_shmem 30\n"
         b"total_swap 40\ntotal_inactive_file 50\n"),),
        {"memory_file": 10, "memory_anonymous": 20, "memory_shared": 30, "swap_used": 40, "memory_inactive_file": 50},
    ),
    ("memory.failcnt", (b"3\n",), {"oom_events": 3, "memory_max_events": 3}),
    ("memory.failcnt", (b"0\n",), {"oom_events": 0, "memory_max_events": None}),
    ("memory.oom_control", (b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",), {"oom_kills": 2}),
    ("pids.current", (b"7\n",), {"processes": 7}),
    ("pids.max", (b"max\n",), {"processes_limit": None}),
    ("pids.max", (b"100\n",), {"processes_limit": 100}),
    ("pids.events", (b"max 4\n",), {"pids_max_events": 4}),
    (
        "blkio.throttle.io_service_bytes_recursive",
        (b"Total 0\n", b"Total 0\n"),
        {"read_bytes": 0, "write_bytes": 0, "devices": None},
    ),
    (
        "blkio.throttle.io_service_bytes_recursive",
        (b"8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 8192\n8:0 Total 12288\n259:1 Read 1\n259:1 Write 2\nTotal 12291\n",
         b"8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n"),
        {
            "read_bytes": 4097,
            "write_bytes": 8194,
            "devices": [
                ContainerDevice(device_major=8, device_minor=0, read_bytes=4096, write_bytes=8192, reads=1, writes=2),
                ContainerDevice(device_major=259, device_minor=1, read_bytes=1, write_bytes=2),
            ],
        },
    ),
]  # fmt: skip

V2 = [
    (
        "cpu.stat",
        (b"usage_usec 300\nuser_usec 200\nsystem_usec 100\nnr_periods 5\nnr_throttled 1\nthrottled_usec 7\n",),
        {"cpu_time": 300_000, "cpu_user_time": 200_000, "cpu_system_time": 100_000, "periods": 5,
         "throttled_periods": 1, "throttled_time": 7_000},
    ),
    (
        "cpu.stat",  # a rootless container to which the controller was not delegated
        (b"usage_usec 300\nuser_usec 200\nsystem_usec 100\n",),
        {"cpu_time": 300_000, "cpu_user_time": 200_000, "cpu_system_time": 100_000},
    ),
    ("cpu.max", (b"max 100000\n",), {"cpu_quota": None, "cpu_period": 100000, "cpu_unlimited": True}),
    ("cpu.max", (b"150000 100000\n",), {"cpu_quota": 150000, "cpu_period": 100000, "cpu_unlimited": False}),
    ("cpuset.cpus.effective", (b"0-1,4\n",), {"cpu_set": "0-1,4"}),
    ("pids.current", (b"7\n",), {"processes": 7}),
    ("pids.max", (b"max\n",), {"processes_limit": None}),
    ("pids.events", (b"max 5\n",), {"pids_max_events": 5}),
    ("memory.current", (b"12\n",), {"memory_used": 12}),
    ("memory.peak", (b"13\n",), {"memory_peak": 13}),
    ("memory.max", (b"max\n",), {"memory_limit": None, "memory_unlimited": True}),
    ("memory.max", (b"14\n",), {"memory_limit": 14, "memory_unlimited": False}),
    ("memory.swap.max", (b"max\n",), {"swap_limit": None}),
    ("memory.swap.max", (b"15\n",), {"swap_limit": 15}),
    (
        "memory.stat",
        (b"anon 1\nfile 2\nkernel 3\nshmem 4\nfile_mapped 5\ninactive_anon 6\ninactive_file 7\n",),
        {"memory_anonymous": 1, "memory_file": 2, "memory_shared": 4, "memory_inactive_file": 7},
    ),
    ("memory.events", (b"low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n",),
     {"memory_max_events": 9, "oom_events": 2, "oom_kills": 1}),
    ("memory.swap.current", (b"5\n",), {"swap_used": 5}),
    ("io.stat", (b"",), {"read_bytes": 0, "write_bytes": 0, "devices": None}),
    (
        "io.stat",
        (b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n254:0 \n8:16 rbytes=10 wbytes=20 rios=1 wios=1\n",),
        {
            "read_bytes": 11,
            "write_bytes": 22,
            "devices": [
                ContainerDevice(device_major=8, device_minor=0, read_bytes=1, write_bytes=2, reads=3, writes=4),
                ContainerDevice(device_major=8, device_minor=16, read_bytes=10, write_bytes=20, reads=1, writes=1),
            ],
        },
    ),
    (
        "memory.pressure",
        (b"some avg10=0.00 avg60=0.00 avg300=0.00 total=11\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",),
        {"memory_some_time": 11, "memory_full_time": 12},
    ),
    ("cpu.pressure", (b"some avg10=0.00 avg60=0.00 avg300=0.00 total=13\n",), {"cpu_some_time": 13}),
    ("io.pressure", (b"full avg10=0.00 avg60=0.00 avg300=0.00 total=14\n",), {"io_full_time": 14}),
]  # fmt: skip


def by_file(sources):
    return {source.files[0][0]: source for source in sources}


@pytest.mark.parametrize(
    ("sources", "name", "texts", "expected"),
    [(V1_SOURCES, *row) for row in V1] + [(V2_SOURCES, *row) for row in V2],
)
def test_a_file_fills_these_fields(sources, name, texts, expected):
    assert by_file(sources)[name].parse(*texts) == expected


def test_every_file_is_in_the_table():
    assert by_file(V1_SOURCES).keys() == {name for name, _, _ in V1}
    assert by_file(V2_SOURCES).keys() == {name for name, _, _ in V2}


@pytest.mark.parametrize("source", [*V1_SOURCES, *V2_SOURCES], ids=lambda source: source.files[0][0])
def test_an_empty_file_claims_no_number(source):
    fields = source.parse(*(b"" for _ in source.files))
    if source.controller != "io":  # an empty io.stat says that nothing was moved
        assert set(fields.values()) <= {None}


NET_DEV = b"""\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0:     486       5    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth1:      14       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0
docker0:    77       7    0    0    0     0          0         0       77       7    0    0    0     0       0          0
veth12ab:   66       6    0    0    0     0          0         0       66       6    0    0    0     0       0          0
"""  # noqa: E501 - as the kernel writes it


def test_traffic_is_that_of_the_namespaces_own_interfaces():
    assert parse_net_dev(NET_DEV) == Traffic(500, 6, 101, 3)
