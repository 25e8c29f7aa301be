"""What running processes cost, seen from outside: CPU clocks (clock_getcpuclockid(3)) and smaps_rollup."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from tests.real.wait import let_pass

_HERTZ = os.sysconf("SC_CLK_TCK")


def cpu_ns(pids: Iterable[int]) -> int:
    """Nanoseconds of CPU that these processes have used, children they waited for included."""
    return sum(time.clock_gettime_ns(~pid << 3 | 2) + _reaped_ns(pid) for pid in pids)


def _reaped_ns(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[13]) + int(fields[14])) * 10**9 // _HERTZ


def family(pid: int) -> list[int]:
    """A process and all its living descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


def pss(pids: Iterable[int]) -> int:
    """Bytes of memory, shared pages divided among those who share them."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def cost_per_second(pids: list[int], seconds: float) -> float:
    """Nanoseconds of CPU per second, over that long."""
    begin, before = time.monotonic(), cpu_ns(pids)
    let_pass(seconds)
    return (cpu_ns(pids) - before) / (time.monotonic() - begin)
