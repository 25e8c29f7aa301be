"""What the files of a control group say, as fields of a container row (cgroup-v1/ and cgroup-v2.rst of the kernel)."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vmsonar_archive.records import ContainerDevice

from vmsonar.collectors.base import numbers

FieldValue = int | str | bool | None | list[ContainerDevice]
Fields = Mapping[str, FieldValue]
Parse = Callable[..., Fields]

# "No limit" of v1 is the largest page-aligned number; pages differ in size between machines.
_UNLIMITED = 1 << 62
_NANOSECONDS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_V1_BYTES = {b"Read": "read_bytes", b"Write": "write_bytes"}
_V1_OPERATIONS = {b"Read": "reads", b"Write": "writes"}
_V1_CPU_STAT = {
    b"\nnr_periods ": "periods",
    b"\nnr_throttled ": "throttled_periods",
    b"\nthrottled_time ": "throttled_time",
}
_V1_MEMORY_STAT = {
    b"\ntotal_rss ": "memory_anonymous",
    b"\ntotal_cache ": "memory_file",
    b"\ntotal_inactive_file ": "memory_inactive_file",
    b"\ntotal_shmem ": "memory_shared",
    b"\ntotal_swap ": "swap_used",
}

#: Not a controller: these files are there even where v2 has none, beside v1.
PRESSURE = "pressure"
_V2_CPU_TIMES = {
    b"\nusage_usec ": "cpu_time",
    b"\nuser_usec ": "cpu_user_time",
    b"\nsystem_usec ": "cpu_system_time",
    b"\nthrottled_usec ": "throttled_time",
}
_V2_CPU_COUNTS = {b"\nnr_periods ": "periods", b"\nnr_throttled ": "throttled_periods"}
_V2_MEMORY_STAT = {
    b"\nanon ": "memory_anonymous",
    b"\nfile ": "memory_file",
    b"\ninactive_file ": "memory_inactive_file",
    b"\nshmem ": "memory_shared",
}
_V2_IO = {b"rbytes": "read_bytes", b"wbytes": "write_bytes", b"rios": "reads", b"wios": "writes"}
_V2_MEMORY_EVENTS = {b"\nmax ": "memory_max_events", b"\noom ": "oom_events", b"\noom_kill ": "oom_kills"}
_PRESSURE_TOTAL = re.compile(rb"(some|full) [^\n]*?total=(\d+)")


@dataclass(frozen=True, slots=True)
class CgroupSource:
    """Files of one controller that are parsed together; each has its possible names, best first."""

    controller: str
    files: tuple[tuple[str, ...], ...]
    parse: Parse
    #: Limits change by hand, if ever: once a minute is enough.
    rare: bool = False
    #: A flag of the row: while it is true there is nothing to count, and once a minute is enough too.
    unless: str = ""
    #: Unchanged while the container sleeps.
    tells_activity: bool = False


def _number(text: bytes) -> int | None:
    """The one number of a file; None where it says `max` or nothing."""
    try:
        return int(text)
    except ValueError:
        return None


def _only(name: str) -> Parse:
    """For a file that holds one number."""
    return lambda text: {name: _number(text)}


_PIDS_EVENTS: Parse = partial(numbers, wanted={b"\nmax ": "pids_max_events"})


def _cpu_set(text: bytes) -> Fields:
    return {"cpu_set": text.decode().strip() or None}


def _cpu_limit(quota: int | None, period: bytes) -> Fields:
    return {"cpu_quota": quota, "cpu_period": _number(period), "cpu_unlimited": quota is None}


def _v1_cpuacct_stat(text: bytes) -> Fields:
    words = text.split()
    if len(words) != 4:
        return {}
    return {
        "cpu_user_time": int(words[1]) * _NANOSECONDS_PER_TICK,
        "cpu_system_time": int(words[3]) * _NANOSECONDS_PER_TICK,
    }


def _v1_cpu_quota(quota: bytes, period: bytes) -> Fields:
    allowed = _number(quota)
    return {} if allowed is None else _cpu_limit(None if allowed < 0 else allowed, period)


def _v1_memory_limit(text: bytes) -> Fields:
    limit = _number(text)
    if limit is None:
        return {}
    unlimited = limit >= _UNLIMITED
    return {"memory_limit": None if unlimited else limit, "memory_unlimited": unlimited}


def _v1_swap_limit(both: bytes, memory: bytes) -> Fields:
    """The limit of memory and swap together, and that of memory: with none on memory alone the rest has none either."""
    together, alone = _number(both), _number(memory)
    if together is None or alone is None:
        return {}
    return {"swap_limit": max(0, together - alone) if together < _UNLIMITED else None}


def _v1_failures(text: bytes) -> Fields:
    """How often the limit was met; 0 is no proof, since a limit on memory with swap is met first and goes uncounted."""
    return {"oom_events": _number(text), "memory_max_events": _number(text) or None}


def _v1_blkio(transferred: bytes, operations: bytes) -> Fields:
    """Lines such as `8:0 Write 4096`, and a total without a device."""
    return _io_fields(_v1_blkio_counters(transferred, operations)) if transferred else {}


def blkio_if_counted(transferred: bytes, operations: bytes) -> Fields:
    """The same where nothing proves that the kernel counts: no device then means unknown, not nothing.

    Since Linux 6.10 only disks for which some group has a throttle rule are counted.
    """
    fields = _v1_blkio(transferred, operations)
    return fields if fields.get("devices") else {}


def _v1_blkio_counters(transferred: bytes, operations: bytes) -> Iterator[tuple[bytes, str, int]]:
    if transferred.startswith(b"Total"):
        return
    for text, names in ((transferred, _V1_BYTES), (operations, _V1_OPERATIONS)):
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in names:
                yield words[0], names[words[1]], int(words[2])


def _io_fields(counters: Iterable[tuple[bytes, str, int]]) -> Fields:
    """The devices and their sums; no device at all means that nothing was moved."""
    devices: dict[bytes, ContainerDevice] = {}
    for device, name, value in counters:
        if device not in devices:
            major, _, minor = device.partition(b":")
            if not (major.isdigit() and minor.isdigit()):
                continue
            devices[device] = ContainerDevice(device_major=int(major), device_minor=int(minor))
        setattr(devices[device], name, value)
    rows = list(devices.values())
    return {
        "read_bytes": sum(row.read_bytes or 0 for row in rows),
        "write_bytes": sum(row.write_bytes or 0 for row in rows),
        "devices": rows or None,
    }


def _v2_cpu_stat(text: bytes) -> Fields:
    return numbers(text, _V2_CPU_TIMES, 1000) | numbers(text, _V2_CPU_COUNTS)


def _v2_cpu_max(text: bytes) -> Fields:
    words = text.split()
    return _cpu_limit(_number(words[0]), words[1]) if len(words) == 2 else {}


def _v2_memory_max(text: bytes) -> Fields:
    limit = _number(text)
    return {"memory_limit": limit, "memory_unlimited": limit is None} if text else {}


def _v2_io_stat(text: bytes) -> Fields:
    """Lines such as `8:0 rbytes=4096 wbytes=0 rios=1 wios=0`."""

    def counters() -> Iterator[tuple[bytes, str, int]]:
        for line in text.splitlines():
            device, *words = line.split()
            for word in words:
                key, _, value = word.partition(b"=")
                if key in _V2_IO and value.isdigit():
                    yield device, _V2_IO[key], int(value)

    return _io_fields(counters())


def _v2_pressure(resource: str, text: bytes) -> Fields:
    """Lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`."""
    return {f"{resource}_{kind.decode()}_time": int(total) for kind, total in _PRESSURE_TOTAL.findall(text)}


V1_SOURCES: tuple[CgroupSource, ...] = (
    CgroupSource("cpuacct", (("cpuacct.usage",),), _only("cpu_time"), tells_activity=True),
    CgroupSource("cpuacct", (("cpuacct.stat",),), _v1_cpuacct_stat),
    CgroupSource("cpu", (("cpu.stat",),), partial(numbers, wanted=_V1_CPU_STAT), unless="cpu_unlimited"),
    CgroupSource("cpu", (("cpu.cfs_quota_us",), ("cpu.cfs_period_us",)), _v1_cpu_quota, rare=True),
    CgroupSource("cpuset", (("cpuset.effective_cpus", "cpuset.cpus"),), _cpu_set, rare=True),
    CgroupSource("memory", (("memory.usage_in_bytes",),), _only("memory_used")),
    CgroupSource("memory", (("memory.max_usage_in_bytes",),), _only("memory_peak")),
    CgroupSource("memory", (("memory.stat",),), partial(numbers, wanted=_V1_MEMORY_STAT)),
    CgroupSource("memory", (("memory.failcnt",),), _v1_failures, unless="memory_unlimited"),
    CgroupSource(
        "memory", (("memory.oom_control",),), partial(numbers, wanted={b"\noom_kill ": "oom_kills"})
    ),
    CgroupSource("memory", (("memory.limit_in_bytes",),), _v1_memory_limit, rare=True),
    CgroupSource(
        "memory", (("memory.memsw.limit_in_bytes",), ("memory.limit_in_bytes",)), _v1_swap_limit, rare=True
    ),
    CgroupSource(
        "blkio",
        (
            ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"),
            ("blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"),
        ),
        _v1_blkio,
    ),
    CgroupSource("pids", (("pids.current",),), _only("processes")),
    CgroupSource("pids", (("pids.events",),), _PIDS_EVENTS),
    CgroupSource("pids", (("pids.max",),), _only("processes_limit"), rare=True),
)

V2_SOURCES: tuple[CgroupSource, ...] = (
    CgroupSource("cpu", (("cpu.stat",),), _v2_cpu_stat, tells_activity=True),
    CgroupSource(PRESSURE, (("cpu.pressure",),), partial(_v2_pressure, "cpu")),
    CgroupSource("cpu", (("cpu.max",),), _v2_cpu_max, rare=True),
    CgroupSource("cpuset", (("cpuset.cpus.effective",),), _cpu_set, rare=True),
    CgroupSource("memory", (("memory.current",),), _only("memory_used")),
    CgroupSource("memory", (("memory.peak",),), _only("memory_peak")),
    CgroupSource("memory", (("memory.stat",),), partial(numbers, wanted=_V2_MEMORY_STAT)),
    CgroupSource("memory", (("memory.swap.current",),), _only("swap_used")),
    CgroupSource(
        "memory",
        (("memory.events",),),
        partial(numbers, wanted=_V2_MEMORY_EVENTS),
    ),
    CgroupSource(PRESSURE, (("memory.pressure",),), partial(_v2_pressure, "memory")),
    CgroupSource("memory", (("memory.max",),), _v2_memory_max, rare=True),
    CgroupSource("memory", (("memory.swap.max",),), _only("swap_limit"), rare=True),
    CgroupSource("io", (("io.stat",),), _v2_io_stat),
    CgroupSource(PRESSURE, (("io.pressure",),), partial(_v2_pressure, "io")),
    CgroupSource("pids", (("pids.current",),), _only("processes")),
    CgroupSource("pids", (("pids.events",),), _PIDS_EVENTS),
    CgroupSource("pids", (("pids.max",),), _only("processes_limit"), rare=True),
)


def read_sources(folder: Path | str, sources: Iterable[CgroupSource]) -> dict[str, Any]:
    """What those files of a group say that can be read."""
    found: dict[str, Any] = {}
    for source in sources:
        with suppress(OSError, ValueError):
            found |= source.parse(*(_content(f"{folder}/{names[0]}") for names in source.files))
    return found


def _content(path: str) -> bytes:
    with open(path, "rb", 0) as file:
        return file.read()
