"""Waiting with a bound, for a condition; or for time itself to pass."""

import time
from collections.abc import Callable, Iterable


def wait_until(condition: Callable[[], object], seconds: float, what: str, every: float = 0.1) -> None:
    """Returns once the condition holds; raises TimeoutError that says what did not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(every)


def wait_for_cpu(pids: Iterable[int], seconds: float) -> None:
    """Returns once each process has used that much more CPU time (clock_getcpuclockid(3))."""
    goals = {pid: _cpu(pid) + seconds for pid in pids}
    wait_until(lambda: all(_cpu(pid) >= goal for pid, goal in goals.items()), 60, "CPU time", every=0.02)


def _cpu(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)


def let_pass(seconds: float) -> None:
    """Sleeps where the time itself is meant (an outage that lasts, a kill at any moment), never to synchronise."""
    time.sleep(seconds)
