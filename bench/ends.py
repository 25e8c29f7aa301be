"""What it costs to know why something ended: exits, file systems, the machine's ceilings and jobs' own limits.

Listening to the kernel, by which exits are known, is measured by `bench.listening`.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Sample

from bench import Figure
from bench.alone import alone
from bench.peers import SETTLE
from tests.collectors.process.storms import storm
from tests.making.processes import load

SECONDS = 150
FORKS, STORM_SECONDS = 250, 60
MANY = 10_000

_CONFIG = "collectors:\n  container: none\n  gpu: none\n  energy: none\n"
#: The daemon, in which these parts work for a few samples and are left out for as many, in turns; it notes the CPU time
#: of their calls.
_IN_TURNS = """
import sys
from pathlib import Path
from time import thread_time_ns
from vmsonar.daemon.__main__ import defer_imports, main
defer_imports()
from vmsonar.collectors.base import Rows
from vmsonar.collectors.filesystem.collector import FilesystemCollector
from vmsonar.collectors.node import Ceilings
from vmsonar.collectors.process.control_groups import ControlGroups
from vmsonar.collectors.process.exits import Exits

spent, samples = 0, 0

def in_turns(owner, name, nothing, counts=False):
    call = getattr(owner, name)
    def instead(*arguments):
        global spent, samples
        samples += counts
        if samples // 6 % 2:
            return nothing()
        begin = thread_time_ns()
        try:
            return call(*arguments)
        finally:
            spent += thread_time_ns() - begin
    setattr(owner, name, instead)

in_turns(Ceilings, "fields", dict, counts=True)
in_turns(FilesystemCollector, "collect", Rows)
in_turns(Exits, "tell", list)
in_turns(ControlGroups, "read", lambda: None)
code = main(sys.argv[2:])
Path(sys.argv[1]).write_text(str(spent))
sys.exit(code)
"""


def run() -> list[Figure]:
    """The cost on the load of `sampling`, alone where that can be had; the rest beside all that the machine runs."""
    used, allowed = _descriptors()
    return [
        *(alone("bench.ends") or measure()),
        Figure(f"growth beside {FORKS} forks a second", _growth() / 2**20, "MB of its own", 2.0),
        Figure(f"descriptors beside {MANY:,} processes", used, "descriptors", allowed),
    ]


def measure() -> list[Figure]:
    """What a sample takes more, by the clock around the calls and by samples with and without them."""
    calls, more, count = _cost()
    return [
        Figure("calls of these parts", calls, "µs per process", 0.3),
        Figure("a sample with them against one without", more, "µs per process"),
        Figure("processes recorded", count, "processes"),
    ]


def _cost() -> tuple[float, float, float]:
    """Of one sample and process: the calls' own time, and the difference of whole samples; and the processes."""
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "spent"
        with load(), _daemon(Path(folder), "-c", _IN_TURNS, str(noted)):
            time.sleep(SECONDS)
        with open_archive(Path(folder) / "archive") as archive:
            samples = list(archive.samples())
        spent = int(noted.read_text())
    count = statistics.mean(len(sample.process) for sample in samples)
    costs: dict[bool, list[int]] = {True: [], False: []}
    for earlier, later in pairwise(samples[5:]):
        if _is_with(earlier) == _is_with(later):  # part of what a sample costs is paid after its end
            costs[_is_with(later)].append(_cpu(later) - _cpu(earlier))
    more = statistics.median(costs[True]) - statistics.median(costs[False])
    return spent / sum(map(_is_with, samples)) / count / 1000, more / count / 1000, count


def _is_with(sample: Sample) -> bool:
    return sample.node[0].open_files is not None


def _cpu(sample: Sample) -> int:
    return (sample.cost[0].cpu_time or 0) + (sample.cost[0].child_cpu_time or 0)


@contextmanager
def _daemon(folder: Path, *begin: str) -> Iterator[int]:
    """A daemon that has written its first sample."""
    (folder / "config.yaml").write_text(_CONFIG)
    archive = folder / "archive"
    words = ["--archive", str(archive), "--config", str(folder / "config.yaml"), "--interval", "1s"]
    with subprocess.Popen([sys.executable, *begin, *words], stderr=subprocess.DEVNULL) as process:
        try:
            while not list(archive.glob("*/*/*/sample-*")):
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()


def _growth() -> int:
    """Bytes of its own by which the daemon is larger after a minute of forks."""
    with tempfile.TemporaryDirectory() as folder, _daemon(Path(folder), "-m", "vmsonar.daemon") as pid:
        time.sleep(2 * SETTLE)
        before = _anonymous(pid)
        with storm(FORKS):
            time.sleep(STORM_SECONDS)
            return _anonymous(pid) - before


def _anonymous(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("RssAnon:")[1].split()[0]) << 10


def _descriptors() -> tuple[int, int]:
    """Those that the daemon has open beside many processes, and those that it may open."""
    with (
        load(asleep=MANY, light=0, busy=0),
        tempfile.TemporaryDirectory() as folder,
        _daemon(Path(folder), "-m", "vmsonar.daemon") as pid,
    ):
        time.sleep(3 * SETTLE)
        limits = Path(f"/proc/{pid}/limits").read_text()
        return len(list(Path(f"/proc/{pid}/fd").iterdir())), int(limits.split("Max open files")[1].split()[0])


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure()))
