"""The daemon as a process: how soon it records, how soon it stops, what it holds; and how soon the help is there."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import Figure
from vmsonar.collectors.base import Collector, Setup, Tick
from vmsonar.collectors.registry import COLLECTORS, make
from vmsonar.config.schema import Config

NODE_SIDE = ("node", "cpu", "disk", "net", "pressure")
TRIES = 5
# An hour's worth of samples at the default interval, and then as many as a fast one makes in a minute.
HOUR_SECONDS, GROWTH_SECONDS = 8, 60


def run() -> list[Figure]:
    """The figures of this area."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        starts = [_start_and_stop(root / str(number)) for number in range(TRIES)]
        helps = [_cpu_of(["-m", "vmsonar", "--help"]) for _ in range(TRIES)]
        first, last, samples, descriptors = _hold(root / "long")
    return [
        Figure("start to first sample on disk, best of five", min(s for s, _ in starts), "s", 0.5),
        Figure("SIGTERM to exit, worst of five", max(s for _, s in starts), "s", 2.0),
        Figure("vmsonar --help, best of five", min(helps), "s of CPU", 0.2),
        Figure(f"PSS after {HOUR_SECONDS * 50} samples", first / 1024, "MB", 18),
        Figure(f"growth of PSS over {samples} samples", (last - first) / 1024, "MB", 1),
        Figure("descriptors then", descriptors, "", None),
        Figure("node, CPUs, disks, interfaces, pressure", _node_side(), "µs of CPU per sample", 500),
    ]


def _daemon(archive: Path, *options: str) -> "subprocess.Popen[bytes]":
    line = [sys.executable, "-m", "vmsonar.daemon", f"--archive={archive}", *options]
    return subprocess.Popen(line, stderr=subprocess.DEVNULL)


def _start_and_stop(archive: Path) -> tuple[float, float]:
    began = time.monotonic()
    process = _daemon(archive)
    while not any(path.stat().st_size for path in archive.glob("*/*/*/sample-*")):
        time.sleep(0.002)
    started = time.monotonic() - began
    time.sleep(0.5)
    began = time.monotonic()
    process.terminate()
    process.wait()
    return started, time.monotonic() - began


def _cpu_of(arguments: list[str]) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return used() - before


def _hold(archive: Path) -> tuple[int, int, int, int]:
    """PSS in kB after a while and after a long while, samples in between, and descriptors."""
    process = _daemon(archive, "--interval=20ms")
    time.sleep(HOUR_SECONDS)
    first, before = _pss(process.pid), time.monotonic()
    time.sleep(GROWTH_SECONDS)
    last, samples = _pss(process.pid), round((time.monotonic() - before) / 0.02)
    descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    process.terminate()
    process.wait()
    return first, last, samples, descriptors


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError("smaps_rollup has no Pss")


def _node_side(samples: int = 300) -> float:
    setup = Setup(Config())
    collectors = [make(entry, setup) for entry in COLLECTORS if entry.name in NODE_SIDE]
    times = [_timed(lambda number=number: _collect(collectors, number)) for number in range(samples)]
    return sorted(times)[samples // 2]


def _collect(collectors: list[Collector], number: int) -> None:
    tick = Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=number + 1, boot="b", fresh=False)
    for collector in collectors:
        collector.collect(tick)


def _timed(work: Callable[[], None]) -> float:
    time.sleep(0.005)
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000
