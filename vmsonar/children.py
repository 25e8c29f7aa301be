"""What our children cost: those that ended by getrusage(2), those that run by /proc/PID/schedstat."""

import os
import resource
from collections.abc import Iterable


def child_cpu_time(running: Iterable[int]) -> int:
    """Nanoseconds of CPU; a child that ends moves from one part of the sum to the other."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((usage.ru_utime + usage.ru_stime) * 1e9) + sum(map(_running_time, running))


def _running_time(pid: int) -> int:
    """Of a process that is our own child; one that a service manager started is its own unit's cost."""
    try:
        stat = _read(f"/proc/{pid}/stat")
        parent = int(stat[stat.rindex(b")") + 2 :].split(None, 2)[1])
        return int(_read(f"/proc/{pid}/schedstat").split(None, 1)[0]) if parent == os.getpid() else 0
    except (OSError, ValueError):
        return 0


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
