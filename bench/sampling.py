"""What the whole daemon costs per process and sample, beside other recorders on the same load."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Sample

from bench import Figure
from bench.alone import alone
from bench.peers import SETTLE, atop_cost, pcp_cost, psutil_cost
from tests.making.processes import load
from tests.real.meter import cost_per_second, family, pss

SECONDS = 20.0

# What this area measures; the others have figures of their own.
CONFIG = "collectors:\n  container: none\n  gpu: none\n  energy: none\n"


def run() -> list[Figure]:
    """Both loads alone where that can be had, and the first one beside all that the machine runs."""
    figures = alone("bench.sampling") or measure()
    with load():
        beside = _measure("the first load, beside all others here", None)
    return figures + beside


def measure() -> list[Figure]:
    """The first load with all peers, then the second one."""
    with load():
        ours = _measure("450 asleep, 50 light, 3 busy", 8.0)
        peers = _peers(ours[1].value * ours[2].value)
    with load(threaded=200):
        return ours + peers + _measure("the same, 200 of them with 4 threads", 16.0)


def _measure(load_name: str, bound: float | None) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, _daemon(Path(folder)) as pid:
        wait_for_first_sample(Path(folder) / "archive")
        time.sleep(SETTLE)
        begin = datetime.now(UTC)
        spent = cost_per_second(family(pid), SECONDS) * SECONDS
        end = datetime.now(UTC)
        memory = pss([pid])
        samples = [one for one in _samples(Path(folder) / "archive") if begin <= one.time < end]
    outside = spent / len(samples)
    count = sum(len(sample.process) for sample in samples) / len(samples)
    return [
        Figure(
            f"{load_name}: by its own cost rows", _own_cost(samples) / count / 1000, "µs per process", bound
        ),
        Figure(f"{load_name}: seen from outside", outside / count / 1000, "µs per process", bound),
        Figure(f"{load_name}: processes recorded", count, "processes"),
        Figure(f"{load_name}: memory of the daemon", memory / 2**20, "MB PSS", bound and 18.0),
    ]


def wait_for_first_sample(root: Path) -> None:
    while not list(root.glob("*/*/*/sample-*")):
        time.sleep(0.1)


def _own_cost(samples: list[Sample]) -> float:
    first, last = samples[0].cost[0], samples[-1].cost[0]
    spent = (last.cpu_time or 0) - (first.cpu_time or 0)
    children = (last.child_cpu_time or 0) - (first.child_cpu_time or 0)
    return (spent + children) / (len(samples) - 1)


def _peers(ours: float) -> list[Figure]:
    """How many times more CPU each of the others takes for one sample of the same processes."""
    found = [
        ("psutil.process_iter, ten attributes", psutil_cost(SECONDS), 15.0),
        ("atop -a -w", atop_cost(SECONDS), 8.0),
        ("PCP, twenty metrics of processes", pcp_cost(SECONDS), 5.0),
    ]
    figures = []
    for name, cost, bound in found:
        if cost is not None:
            figures.append(Figure(f"{name}: per sample", cost / 1e6, "ms CPU"))
            figures.append(
                Figure(f"{name}: against the daemon", cost / 1000 / ours, "times", bound, at_least=True)
            )
    return figures


def _samples(root: Path) -> Iterator[Sample]:
    with open_archive(root) as archive:
        yield from archive.samples()


@contextmanager
def _daemon(folder: Path) -> Iterator[int]:
    (folder / "config.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "vmsonar.daemon", "--archive", str(folder / "archive")]
    command += ["--config", str(folder / "config.yaml"), "--interval", "1s"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure()))
