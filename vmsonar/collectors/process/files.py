"""Reads below /proc/PID through kept descriptors, which pin the process: after its end they answer ESRCH.

Where the budget of descriptors is used up, the folder is opened for the time of one look instead, which pins as
well; that is as right and only slower.
"""

import errno
import os
from collections.abc import Iterable

from vmsonar.collectors.process.model import DENIED, NOT_OPEN, Process

#: For everything in the daemon that is not a process being watched.
RESERVE = 192

_READ = os.O_RDONLY | os.O_CLOEXEC
_PIN = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_STAT_SIZE = 1024
_SMALL = 256
_CGROUP_SIZE = 8192
_MAPS_SIZE = 2**20
_CMDLINE_SIZE = 16384


class ProcessFiles:
    """The files of all processes below one root, within a budget of descriptors."""

    def __init__(self, root: str, budget: int) -> None:
        self._root = root
        self._budget = budget
        self.open_count = 0
        self._loadavg_fd = NOT_OPEN
        #: Somebody else took what was counted on: the kept descriptors must shrink.
        self.is_exhausted = False

    def names(self) -> list[str]:
        """What stands in the root: processes, and other things."""
        return os.listdir(self._root)

    def newest_pid(self) -> int | None:
        """The last pid that was given out, to a process or a thread; proc_loadavg(5)."""
        if self._loadavg_fd == NOT_OPEN:
            try:
                self._loadavg_fd = os.open(f"{self._root}/loadavg", _READ)
            except OSError:
                return None
        last = (_pread(self._loadavg_fd, _SMALL) or b"").split()[-1:]
        return int(last[0]) if last and last[0].isdigit() else None

    def close(self) -> None:
        if self._loadavg_fd >= 0:
            os.close(self._loadavg_fd)
            self._loadavg_fd = NOT_OPEN

    def pin(self, process: Process) -> bool:
        """Opens the folder for the time of one look: what is read in it is of one process."""
        try:
            process.folder_fd = os.open(f"{self._root}/{process.name}", _PIN)
        except OSError as error:
            self._note_exhaustion(error)
            return False
        return True

    def unpin(self, process: Process) -> None:
        os.close(process.folder_fd)
        process.folder_fd = NOT_OPEN

    def adopt(self, process: Process) -> bytes | None:
        """The first stat of a pinned process, whose descriptor is kept from now on if there is room."""
        try:
            descriptor = os.open("stat", _READ, dir_fd=process.folder_fd)
        except OSError as error:
            self._note_exhaustion(error)
            return None
        text = _pread(descriptor, _STAT_SIZE)
        if text and self.open_count < self._budget:
            process.stat_fd = descriptor
            self.open_count += 1
        else:
            os.close(descriptor)
        return text or None

    def stat(self, process: Process) -> bytes | None:
        """The stat line, or None when the process is gone."""
        if process.stat_fd < 0:
            return self._read_once(process, "stat", _STAT_SIZE) or None
        try:
            return os.pread(process.stat_fd, _STAT_SIZE, 0) or None
        except OSError:
            return None

    def schedstat(self, process: Process) -> bytes | None:
        """Run time and slices of the main thread: unchanged in a process of one thread that did not run."""
        if process.schedstat_fd == NOT_OPEN:
            process.schedstat_fd = self._open(process, "schedstat", self._budget)
        return self._read(process, process.schedstat_fd, "schedstat")

    def statm(self, process: Process) -> bytes | None:
        if process.task:
            return self._read_once(process, f"{process.task}/statm", _SMALL)
        # Most processes never change their size after their first look.
        if process.statm_fd == NOT_OPEN and process.looks > 1:
            process.statm_fd = self._open(process, "statm", self._budget)
        return self._read(process, process.statm_fd, "statm")

    def io(self, process: Process) -> bytes | None:
        """The I/O counters, or None where we may not read them."""
        if process.io_fd == NOT_OPEN:
            process.io_fd = self._open(process, "io", self._budget)
        if process.io_fd < 0:
            return self._read(process, process.io_fd, "io")
        try:
            return os.pread(process.io_fd, _SMALL, 0)
        except OSError:  # it became another user's
            self._close(process.io_fd)
            process.io_fd = DENIED
            return None

    def cgroup(self, process: Process) -> bytes | None:
        # Read once a minute: kept only while that leaves room for what is read at every sample.
        if process.cgroup_fd == NOT_OPEN and process.looks > 1:
            process.cgroup_fd = self._open(process, "cgroup", self._budget // 2)
        if process.cgroup_fd >= 0:
            return _pread(process.cgroup_fd, _CGROUP_SIZE) or None
        return self._read_once(process, "cgroup", _CGROUP_SIZE)

    def cmdline(self, process: Process) -> bytes | None:
        return self._read_once(process, "cmdline", _CMDLINE_SIZE)

    def limits(self, process: Process) -> bytes | None:
        return self._read_once(process, "limits", _CMDLINE_SIZE)

    def status(self, process: Process) -> bytes | None:
        return self._read_once(process, f"{process.task}/status" if process.task else "status", _CMDLINE_SIZE)

    def thread_stat(self, process: Process) -> bytes | None:
        """The stat line of a thread that lives on after the main thread, whose folder is noted."""
        folder = f"{self._root}/{process.name}/task"
        try:
            threads = os.listdir(folder)
        except OSError:
            return None
        for thread in threads:
            process.task = f"task/{thread}"
            text = (
                None
                if thread == process.name
                else self._read_once(process, f"{process.task}/stat", _STAT_SIZE)
            )
            if text and b") Z " not in text and b") X " not in text:
                return text
        process.task = ""
        return None

    def smaps_rollup(self, process: Process) -> bytes | None:
        return self._read_once(process, "smaps_rollup", _CMDLINE_SIZE)

    def maps(self, process: Process) -> bytes:
        """What it has mapped, as far as we may see it; the kernel gives a page at a time."""
        try:
            with open(f"{self._root}/{process.name}/maps", "rb") as stream:
                text = stream.read(_MAPS_SIZE)
        except OSError:
            return b""
        return text if self._is_alive(process) else b""

    def user_id(self, process: Process) -> int | None:
        """The effective uid: the owner of the folder, whatever the process may dump."""
        try:
            if process.folder_fd >= 0:
                return os.fstat(process.folder_fd).st_uid
            return os.stat(f"{self._root}/{process.name}").st_uid if self._is_alive(process) else None
        except OSError:
            return None

    def namespace(self, process: Process, kind: str) -> str | None:
        """Which namespace of that kind it is in, or None where we may not see that."""
        return read_link(f"{self._root}/{process.name}/ns/{kind}")

    def shrink(self, processes: Iterable[Process]) -> None:
        """Gives up all kept descriptors that are beyond the budget."""
        for process in processes:
            if self.open_count <= self._budget:
                break
            self.release(process)
        self.is_exhausted = False

    def release(self, process: Process) -> None:
        """Closes what is kept of a process."""
        kept = (process.stat_fd, process.statm_fd, process.io_fd, process.cgroup_fd, process.schedstat_fd)
        for descriptor in kept:
            if descriptor >= 0:
                self._close(descriptor)
        process.stat_fd = process.statm_fd = process.io_fd = NOT_OPEN
        process.cgroup_fd = process.schedstat_fd = NOT_OPEN

    def _read(self, process: Process, descriptor: int, leaf: str) -> bytes | None:
        if descriptor >= 0:
            return _pread(descriptor, _SMALL) or None
        return None if descriptor == DENIED else self._read_once(process, leaf, _SMALL)

    def _open(self, process: Process, leaf: str, budget: int) -> int:
        """A descriptor to keep, if there is room; only a pinned process may have one."""
        if process.stat_fd < 0 or self.open_count >= budget:
            return NOT_OPEN
        try:
            descriptor = os.open(f"{self._root}/{process.name}/{leaf}", _READ)
        except PermissionError:
            return DENIED
        except OSError as error:
            self._note_exhaustion(error)
            return NOT_OPEN
        if self._is_alive(process):
            self.open_count += 1
            return descriptor
        os.close(descriptor)
        return NOT_OPEN

    def _read_once(self, process: Process, leaf: str, size: int) -> bytes | None:
        try:
            if process.folder_fd >= 0:
                descriptor = os.open(leaf, _READ, dir_fd=process.folder_fd)
            else:
                descriptor = os.open(f"{self._root}/{process.name}/{leaf}", _READ)
        except OSError as error:
            self._note_exhaustion(error)
            return None
        try:
            text = _pread(descriptor, size)
        finally:
            os.close(descriptor)
        return text if process.folder_fd >= 0 or self._is_alive(process) else None

    def _is_alive(self, process: Process) -> bool:
        """Whether a path that was just followed led to this process and not to a successor of its pid."""
        return process.stat_fd < 0 or bool(_pread(process.stat_fd, 1))

    def _note_exhaustion(self, error: OSError) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self.is_exhausted = True
            self._budget = max(0, min(self._budget, self.open_count - RESERVE))

    def _close(self, descriptor: int) -> None:
        os.close(descriptor)
        self.open_count -= 1


def _pread(descriptor: int, size: int) -> bytes | None:
    try:
        return os.pread(descriptor, size, 0)
    except OSError:
        return None


def read_link(path: str) -> str | None:
    """Where a link leads, or None where we may not see that."""
    try:
        return os.readlink(path)
    except OSError:
        return None
