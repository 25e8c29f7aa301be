"""Units: what a sample of fifty control groups that are no containers costs, at work and asleep, and of none at all."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench import Figure
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.container.units import UnitCollector
from vmsonar.collectors.process.collector import make as make_processes
from vmsonar.config.schema import Config
from vmsonar.host.clock import Clock

UNITS = 50
SAMPLES = 40
PAUSE = 0.25
CONTROLLERS = ("cpuacct", "cpu", "memory", "pids", "blkio")
ROOT = Path("/sys/fs/cgroup")
#: Each wakes between any two samples, so that its counters move.
BUSY = ("busybox", "ping", "-q", "-i", "0.2", "127.0.0.1")
IDLE = ("sleep", "600")


def run() -> list[Figure]:
    """The figures of this area; none where control groups of v1 cannot be made."""
    if os.geteuid() != 0 or not (ROOT / "memory/tasks").exists():
        print("bench: units: needs root and control groups of v1: skipped", file=sys.stderr)
        return []
    with _groups(BUSY):
        busy = _cost()
    with _groups(IDLE):
        idle = _cost()
    return [
        Figure("a unit at work in a sample", busy / UNITS, "µs of CPU", 120),
        Figure("a unit asleep in a sample", idle / UNITS, "µs of CPU", 60),
        Figure("a sample where there are no units", _cost(has_units=False), "µs of CPU", 10),
    ]


@contextmanager
def _groups(command: tuple[str, ...]) -> Iterator[None]:
    """As many batch jobs, by their control groups."""
    folders = [
        ROOT / name / f"slurm_bench/uid_0/job_{number}"
        for number in range(1, UNITS + 1)
        for name in CONTROLLERS
    ]
    children = []
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for number in range(UNITS):
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            children.append(child)
            for folder in folders[number * len(CONTROLLERS) : (number + 1) * len(CONTROLLERS)]:
                (folder / "cgroup.procs").write_text(str(child.pid))
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()
        for folder in [*folders, *(ROOT / name / part for part in ("slurm_bench/uid_0", "slurm_bench")
                                   for name in CONTROLLERS)]:  # fmt: skip
            if folder.exists():
                folder.rmdir()


def _cost(has_units: bool = True) -> float:
    """Microseconds of the collector in a sample, without those in which everything is read."""
    setup, clock, costs = Setup(Config()), Clock(), []
    processes, units = make_processes(setup), UnitCollector(setup)
    for number in range(SAMPLES):
        tick = Tick(time=datetime.now(UTC), boottime=clock.boottime_ns(), boot="b", fresh=number == 0)
        processes.collect(tick)
        if not has_units:
            tick.units = {}  # whatever else runs on this machine
        began = time.thread_time_ns()
        units.collect(tick)
        costs.append((time.thread_time_ns() - began) / 1000)
        time.sleep(PAUSE)
    processes.close()
    units.close()
    return median(costs[10:])
