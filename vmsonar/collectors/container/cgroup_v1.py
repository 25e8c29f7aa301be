"""Parses the files of cgroup v1 into fields of a container row (Documentation/admin-guide/cgroup-v1)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vmsonar_archive.records import ContainerDevice

FieldValue = int | str | bool | None | list[ContainerDevice]
Fields = dict[str, FieldValue]


@dataclass(frozen=True, slots=True)
class CgroupSource:
    """Files of one controller that are parsed together; each has its possible names, best first."""

    controller: str
    files: tuple[tuple[str, ...], ...]
    parse: Callable[..., Fields]
    #: Limits change by hand, if ever: once a minute is enough.
    rare: bool = False
    #: A flag of the row: while it is true there is nothing to count, and once a minute is enough too.
    unless: str = ""
    #: Unchanged while the container sleeps.
    tells_activity: bool = False


def number(text: bytes) -> int | None:
    """The one number of a file; None where it says `max` or nothing."""
    try:
        return int(text)
    except ValueError:
        return None


def picked(text: bytes, names: Mapping[bytes, str]) -> Fields:
    """The wanted ones among lines of a word and a number; a key is given with the characters around it."""
    text = b"\n" + text
    fields: Fields = {}
    for key, name in names.items():
        at = text.find(key)
        if at >= 0:
            begin = at + len(key)
            fields[name] = int(text[begin : text.find(b"\n", begin)])
    return fields


class DeviceTable:
    """Collects I/O per block device, whatever the order of its lines."""

    def __init__(self) -> None:
        self._devices: dict[bytes, ContainerDevice] = {}

    def __bool__(self) -> bool:
        return bool(self._devices)

    def put(self, device: bytes, name: str, value: int) -> None:
        row = self._devices.get(device)
        if row is None:
            major, _, minor = device.partition(b":")
            if not (major.isdigit() and minor.isdigit()):
                return
            row = self._devices[device] = ContainerDevice(device_major=int(major), device_minor=int(minor))
        setattr(row, name, value)

    def fields(self) -> Fields:
        """The devices and their sums; no device at all means that nothing was moved."""
        rows = list(self._devices.values())
        return {
            "read_bytes": sum(row.read_bytes or 0 for row in rows),
            "write_bytes": sum(row.write_bytes or 0 for row in rows),
            "devices": rows or None,
        }


# "No limit" is the largest page-aligned number; pages differ in size between machines.
_UNLIMITED = 1 << 62
_NANOSECONDS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

_MEMORY_STAT = {
    b"\ntotal_rss ": "memory_anonymous",
    b"\ntotal_cache ": "memory_file",
    b"\ntotal_inactive_file ": "memory_inactive_file",
    b"\ntotal_shmem ": "memory_shared",
    b"\ntotal_swap ": "swap_used",
}
_OOM_CONTROL = {b"\noom_kill ": "oom_kills"}
_CPU_STAT = {
    b"\nnr_periods ": "periods",
    b"\nnr_throttled ": "throttled_periods",
    b"\nthrottled_time ": "throttled_time",
}


def cpuacct_usage(text: bytes) -> Fields:
    return {"cpu_time": number(text)}


def cpuacct_stat(text: bytes) -> Fields:
    words = text.split()
    if len(words) != 4:
        return {}
    return {
        "cpu_user_time": int(words[1]) * _NANOSECONDS_PER_TICK,
        "cpu_system_time": int(words[3]) * _NANOSECONDS_PER_TICK,
    }


def cpu_stat(text: bytes) -> Fields:
    return picked(text, _CPU_STAT)


def cpu_quota(quota: bytes, period: bytes) -> Fields:
    allowed = number(quota)
    if allowed is None:
        return {}
    if allowed < 0:
        return {"cpu_quota": None, "cpu_period": number(period), "cpu_unlimited": True}
    return {"cpu_quota": allowed, "cpu_period": number(period), "cpu_unlimited": False}


def cpu_set(text: bytes) -> Fields:
    return {"cpu_set": text.decode().strip() or None}


def memory_usage(text: bytes) -> Fields:
    return {"memory_used": number(text)}


def memory_peak(text: bytes) -> Fields:
    return {"memory_peak": number(text)}


def memory_limit(text: bytes) -> Fields:
    limit = number(text)
    if limit is None:
        return {}
    unlimited = limit >= _UNLIMITED
    return {"memory_limit": None if unlimited else limit, "memory_unlimited": unlimited}


def memory_stat(text: bytes) -> Fields:
    return picked(text, _MEMORY_STAT)


def memory_failures(text: bytes) -> Fields:
    return {"oom_events": number(text)}


def memory_oom_control(text: bytes) -> Fields:
    return picked(text, _OOM_CONTROL)


def pids_current(text: bytes) -> Fields:
    return {"processes": number(text)}


def pids_max(text: bytes) -> Fields:
    return {"processes_limit": number(text)}


def blkio(transferred: bytes, operations: bytes) -> Fields:
    """Lines such as `8:0 Write 4096`, and a total without a device."""
    if not transferred:
        return {}
    return _devices(transferred, operations).fields()


def blkio_if_counted(transferred: bytes, operations: bytes) -> Fields:
    """The same where nothing proves that the kernel counts: no device then means unknown, not nothing.

    Since Linux 6.10 only disks for which some group has a throttle rule are counted.
    """
    table = _devices(transferred, operations)
    return table.fields() if table else {}


def lists_devices(text: bytes) -> bool:
    """Whether such a file counts at least one device."""
    return any(len(line.split()) == 3 for line in text.splitlines())


def _devices(transferred: bytes, operations: bytes) -> DeviceTable:
    table = DeviceTable()
    if transferred.startswith(b"Total"):
        return table
    for text, names in ((transferred, _BYTES), (operations, _OPERATIONS)):
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in names:
                table.put(words[0], names[words[1]], int(words[2]))
    return table


_BYTES = {b"Read": "read_bytes", b"Write": "write_bytes"}
_OPERATIONS = {b"Read": "reads", b"Write": "writes"}

SOURCES: tuple[CgroupSource, ...] = (
    CgroupSource("cpuacct", (("cpuacct.usage",),), cpuacct_usage, tells_activity=True),
    CgroupSource("cpuacct", (("cpuacct.stat",),), cpuacct_stat),
    CgroupSource("cpu", (("cpu.stat",),), cpu_stat, unless="cpu_unlimited"),
    CgroupSource("cpu", (("cpu.cfs_quota_us",), ("cpu.cfs_period_us",)), cpu_quota, rare=True),
    CgroupSource("cpuset", (("cpuset.effective_cpus", "cpuset.cpus"),), cpu_set, rare=True),
    CgroupSource("memory", (("memory.usage_in_bytes",),), memory_usage),
    CgroupSource("memory", (("memory.max_usage_in_bytes",),), memory_peak),
    CgroupSource("memory", (("memory.stat",),), memory_stat),
    CgroupSource("memory", (("memory.failcnt",),), memory_failures, unless="memory_unlimited"),
    CgroupSource("memory", (("memory.oom_control",),), memory_oom_control),
    CgroupSource("memory", (("memory.limit_in_bytes",),), memory_limit, rare=True),
    CgroupSource(
        "blkio",
        (
            ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"),
            ("blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"),
        ),
        blkio,
    ),
    CgroupSource("pids", (("pids.current",),), pids_current),
    CgroupSource("pids", (("pids.max",),), pids_max, rare=True),
)
