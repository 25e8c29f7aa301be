"""Finds out which processes ran since the last sample.

The CPU clock of a whole process (clock_getcpuclockid(3)) may be read by anybody, counts all threads in nanoseconds and
costs a tenth of reading stat. A process whose clock stands still did not run, so nothing of its own making changed.
"""

import os
from abc import ABC, abstractmethod
from array import array
from time import clock_gettime_ns

from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.model import Process

_GONE = -1


class Activity(ABC):
    """Watches all processes of a table, each at an index in the lists."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.rows: list[bytes] = []

    @abstractmethod
    def note(self, process: Process) -> None:
        """Remembers how much a process has run, before it is read for the first time."""

    def add(self, process: Process) -> None:
        """Watches a process from now on."""
        process.index = len(self.processes)
        self.processes.append(process)
        self.rows.append(process.row)

    def remove(self, process: Process) -> None:
        """Stops watching a process; the last one of the lists takes its place."""
        last, row = self.processes.pop(), self.rows.pop()
        if last is not process:
            last.index = process.index
            self.processes[last.index] = last
            self.rows[last.index] = row

    def ended(self) -> list[Process] | None:
        """The processes that ended, or None if only a listing of /proc can tell; `ran` reuses what is read here."""
        return None

    def is_process(self, pid: int) -> bool:
        """False if no process has this pid, or only a thread does; True if that cannot be told cheaply."""
        return True

    @abstractmethod
    def ran(self) -> list[Process]:
        """The processes that ran since the last call; one that has ended since the listing counts as asleep."""

    @abstractmethod
    def is_alive(self, process: Process) -> bool:
        """Whether it has not been reaped, right now."""


class ByClock(Activity):
    """By the clocks, in arrays: one sample touches no object of a process that slept."""

    def __init__(self) -> None:
        super().__init__()
        self._clocks = array("q")
        self._spent = array("q")
        self._probed: array[int] | None = None

    def note(self, process: Process) -> None:
        process.noted = _clock(_clock_id(process.pid))

    def add(self, process: Process) -> None:
        super().add(process)
        self._clocks.append(_clock_id(process.pid))
        self._spent.append(process.noted)
        if self._probed is not None:
            self._probed.append(process.noted)

    def remove(self, process: Process) -> None:
        super().remove(process)
        for column in (self._clocks, self._spent, *([] if self._probed is None else [self._probed])):
            last = column.pop()
            if process.index < len(column):
                column[process.index] = last

    def ended(self) -> list[Process]:
        self._probed = probed = self._probe()
        if _GONE not in probed:
            return []
        return [process for process, spent in zip(self.processes, probed, strict=True) if spent == _GONE]

    def is_process(self, pid: int) -> bool:
        return _clock(_clock_id(pid)) != _GONE

    def _probe(self) -> "array[int]":
        """What every clock shows now."""
        clocks, probed = self._clocks, array("q")
        while len(probed) < len(clocks):
            try:
                # Stops at the first that does not answer, and goes on behind it.
                probed.extend(map(clock_gettime_ns, clocks[len(probed) :]))
            except OSError:
                probed.append(_GONE)
        return probed

    def ran(self) -> list[Process]:
        before = self._spent
        self._spent = spent = self._probe() if self._probed is None else self._probed
        self._probed = None
        if spent == before:
            return []
        processes = self.processes
        pairs = enumerate(zip(spent, before, strict=True))
        return [processes[index] for index, (now, then) in pairs if now != then and now != _GONE]

    def is_alive(self, process: Process) -> bool:
        return self.is_process(process.pid)


class BySchedstat(Activity):
    """Where the clocks are of another pid namespace: schedstat speaks for the main thread only."""

    def __init__(self, files: ProcessFiles) -> None:
        super().__init__()
        self._files = files

    def note(self, process: Process) -> None:
        process.schedstat = self._files.schedstat(process) or b""

    def ran(self) -> list[Process]:
        return [process for process in self.processes if self._ran(process)]

    def _ran(self, process: Process) -> bool:
        if process.threads != 1:
            return True
        before = process.schedstat
        process.schedstat = self._files.schedstat(process) or b""
        return not before or process.schedstat != before

    def is_alive(self, process: Process) -> bool:
        return self._files.stat(process) is not None


def activity(root: str, files: ProcessFiles) -> Activity:
    """Clocks where the pids below this root are ours, schedstat elsewhere."""
    return ByClock() if has_own_clocks(root) else BySchedstat(files)


def has_own_clocks(root: str) -> bool:
    """Whether the pids below this root are those that clock_gettime(2) understands."""
    try:
        return os.path.samefile(root, "/proc") and int(os.readlink(f"{root}/self")) == os.getpid()
    except (OSError, ValueError):
        return False


def _clock_id(pid: int) -> int:
    return ~pid << 3 | 2


def _clock(clock: int) -> int:
    try:
        return clock_gettime_ns(clock)
    except OSError:
        return _GONE
