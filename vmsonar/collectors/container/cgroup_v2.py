"""What the files of cgroup v2 say, as fields of a container row (Documentation/admin-guide/cgroup-v2.rst)."""

import re

from vmsonar.collectors.container.cgroup_v1 import (
    CgroupSource,
    DeviceTable,
    Fields,
    cpu_set,
    number,
    picked,
    pids_current,
    pids_max,
)

_CPU_TIMES = {
    b"\nusage_usec ": "cpu_time",
    b"\nuser_usec ": "cpu_user_time",
    b"\nsystem_usec ": "cpu_system_time",
    b"\nthrottled_usec ": "throttled_time",
}
_CPU_COUNTS = {b"\nnr_periods ": "periods", b"\nnr_throttled ": "throttled_periods"}
_MEMORY_STAT = {
    b"\nanon ": "memory_anonymous",
    b"\nfile ": "memory_file",
    b"\ninactive_file ": "memory_inactive_file",
    b"\nshmem ": "memory_shared",
}
_MEMORY_EVENTS = {b"\noom ": "oom_events", b"\noom_kill ": "oom_kills"}
_TOTAL = re.compile(rb"(some|full) [^\n]*?total=(\d+)")
#: Not a controller: these files are there even where v2 has none, beside v1.
PRESSURE = "pressure"
_IO = {b"rbytes": "read_bytes", b"wbytes": "write_bytes", b"rios": "reads", b"wios": "writes"}


def cpu_stat(text: bytes) -> Fields:
    times = picked(text, _CPU_TIMES)
    nanoseconds: Fields = {name: value * 1000 for name, value in times.items() if isinstance(value, int)}
    return nanoseconds | picked(text, _CPU_COUNTS)


def cpu_max(text: bytes) -> Fields:
    words = text.split()
    if len(words) != 2:
        return {}
    quota, period = number(words[0]), number(words[1])
    return {"cpu_quota": quota, "cpu_period": period, "cpu_unlimited": quota is None}


def memory_current(text: bytes) -> Fields:
    return {"memory_used": number(text)}


def memory_peak(text: bytes) -> Fields:
    return {"memory_peak": number(text)}


def memory_max(text: bytes) -> Fields:
    if not text:
        return {}
    limit = number(text)
    return {"memory_limit": limit, "memory_unlimited": limit is None}


def memory_stat(text: bytes) -> Fields:
    return picked(text, _MEMORY_STAT)


def memory_events(text: bytes) -> Fields:
    return picked(text, _MEMORY_EVENTS)


def swap_current(text: bytes) -> Fields:
    return {"swap_used": number(text)}


def io_stat(text: bytes) -> Fields:
    """Lines such as `8:0 rbytes=4096 wbytes=0 rios=1 wios=0`."""
    table = DeviceTable()
    for line in text.splitlines():
        device, *words = line.split()
        for word in words:
            key, _, value = word.partition(b"=")
            if key in _IO and value.isdigit():
                table.put(device, _IO[key], int(value))
    return table.fields()


def cpu_pressure(text: bytes) -> Fields:
    return _pressure("cpu", text)


def memory_pressure(text: bytes) -> Fields:
    return _pressure("memory", text)


def io_pressure(text: bytes) -> Fields:
    return _pressure("io", text)


def _pressure(resource: str, text: bytes) -> Fields:
    """Lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`."""
    return {f"{resource}_{kind.decode()}_time": int(total) for kind, total in _TOTAL.findall(text)}


SOURCES: tuple[CgroupSource, ...] = (
    CgroupSource("cpu", (("cpu.stat",),), cpu_stat, tells_activity=True),
    CgroupSource(PRESSURE, (("cpu.pressure",),), cpu_pressure),
    CgroupSource("cpu", (("cpu.max",),), cpu_max, rare=True),
    CgroupSource("cpuset", (("cpuset.cpus.effective",),), cpu_set, rare=True),
    CgroupSource("memory", (("memory.current",),), memory_current),
    CgroupSource("memory", (("memory.peak",),), memory_peak),
    CgroupSource("memory", (("memory.stat",),), memory_stat),
    CgroupSource("memory", (("memory.swap.current",),), swap_current),
    CgroupSource("memory", (("memory.events",),), memory_events),
    CgroupSource(PRESSURE, (("memory.pressure",),), memory_pressure),
    CgroupSource("memory", (("memory.max",),), memory_max, rare=True),
    CgroupSource("io", (("io.stat",),), io_stat),
    CgroupSource(PRESSURE, (("io.pressure",),), io_pressure),
    CgroupSource("pids", (("pids.current",),), pids_current),
    CgroupSource("pids", (("pids.max",),), pids_max, rare=True),
)
