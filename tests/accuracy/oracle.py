"""The kernel's own CPU accounts: a control group per job, and the machine's total as it grew."""

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.real.wait import wait_until

_V1 = Path("/sys/fs/cgroup/cpuacct")
_V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD


def hierarchy() -> Path | None:
    """Where control groups count CPU time here: version 1 to the nanosecond, version 2 to the microsecond."""
    places = (_V1, *_V2)
    return next((place for place in places if any((place / name).exists() for name in _FILES)), None)


def usage(group: Path) -> int:
    """Nanoseconds of CPU time of everything that ever ran in a control group or below it."""
    with suppress(FileNotFoundError):
        return int((group / "cpuacct.usage").read_text())
    words = (group / "cpu.stat").read_text().split()
    return int(words[words.index("usage_usec") + 1]) * 1000


_FILES = ("cpuacct.usage", "cpu.stat")


class ControlGroups:
    """Control groups of one run, which anybody may enter; gone at its end."""

    def __init__(self) -> None:
        root = hierarchy()
        assert root is not None, "no control groups that count CPU time"
        self.root = root / f"accuracy-{os.getpid()}"
        self.root.mkdir()

    def make(self, workload: str, accounts: Iterable[str]) -> Path:
        """The folder of a workload's control groups."""
        folder = self.root / workload
        folder.mkdir()
        for account in accounts:
            (folder / account).mkdir()
            (folder / account / "cgroup.procs").chmod(0o666)
        return folder

    def is_empty(self, workload: str) -> bool:
        """Whether no process of a workload is left."""
        return not any(path.read_text() for path in (self.root / workload).glob("*/cgroup.procs"))

    def kill(self) -> None:
        """Ends whatever is left of the workloads."""
        for path in self.root.glob("*/*/cgroup.procs"):
            for pid in path.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)

    def remove(self) -> None:
        self.kill()
        wait_until(lambda: all(self.is_empty(path.name) for path in self._folders()), 30, "the last actors")
        for path in [*self.root.glob("*/*/"), *self._folders(), self.root]:
            path.rmdir()

    def _folders(self) -> list[Path]:
        return [path for path in self.root.iterdir() if path.is_dir()]


def _kernel_threads() -> int:
    """Nanoseconds that kernel threads used, which no job shows."""
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # Names may hold any bytes.
            flags = int((path / "stat").read_bytes().rpartition(b")")[2].split()[6])
            if flags & _KERNEL_THREAD:
                total += int((path / "schedstat").read_text().split()[0])
    return total


class Meter(threading.Thread):
    """Notes the CPU time of all processes of the machine twenty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._root = hierarchy()
        self._over = threading.Event()
        self.times: list[int] = []
        self.totals: list[int] = []

    def run(self) -> None:
        assert self._root is not None
        kernel, counted = _kernel_threads(), 0
        while not self._over.is_set():
            if counted % 40 == 0:
                kernel = _kernel_threads()
            counted += 1
            before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self.totals.append(usage(self._root) - kernel)
            self.times.append((before + time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 2)
            self._over.wait(0.05)

    def stop(self) -> None:
        self._over.set()
        self.join()

    def between(self, first: int, last: int) -> float:
        """Nanoseconds used between two moments of boot time."""
        return self._at(last) - self._at(first)

    def _at(self, moment: int) -> float:
        index = min(max(bisect_left(self.times, moment), 1), len(self.times) - 1)
        before, after = self.times[index - 1], self.times[index]
        share = min(1.0, max(0.0, (moment - before) / (after - before)))
        return self.totals[index - 1] + share * (self.totals[index] - self.totals[index - 1])
