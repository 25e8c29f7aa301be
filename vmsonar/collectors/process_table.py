"""The live processes, and the loop that finds out which of them ran since the last sample.

The CPU clock of a whole process (clock_getcpuclockid(3)) may be read by anybody, counts all threads in nanoseconds and
costs a tenth of reading stat. A process whose clock stands still did not run, so nothing of its own making changed;
it is read once a minute all the same, because others can move it and the kernel can reclaim its memory.
"""

import os
import time
from collections import deque

from vmsonar.collectors.process_entry import DENIED, Process
from vmsonar.collectors.process_files import ProcessFiles
from vmsonar.collectors.process_rows import encode_process
from vmsonar.collectors.process_stat import (
    CHILD_MAJOR,
    CHILD_SYSTEM,
    CHILD_USER,
    FLAGS,
    MAJOR,
    MINOR,
    PF_KTHREAD,
    PGRP,
    PPID,
    RESIDENT,
    SESSION,
    START,
    SYSTEM,
    TERMINAL,
    THREADS,
    USER,
    VIRTUAL,
    parse_io,
    shared_and_data_pages,
    split_stat,
)

#: How long a sleeper is believed, in nanoseconds.
PATIENCE = 60 * 10**9


class ProcessTable:
    """Every process that was seen alive, by name in the root and by pid."""

    def __init__(self, files: ProcessFiles, has_clocks: bool, kernel_threads: bool, page: int) -> None:
        self.files = files
        self.by_name: dict[str, Process] = {}
        self.by_pid: dict[int, Process] = {}
        self.children: dict[int, set[Process]] = {}
        self._has_clocks = has_clocks
        self._with_kernel_threads = kernel_threads
        self._page = page
        self._kernel: deque[str] = deque()
        self._known: set[str] = set()
        self._checked = 0
        self._lost: set[str] = set()

    def changes(self, now: int) -> tuple[set[Process], list[Process]]:
        """Who is gone and who is new since the last call; a pid may be both."""
        if self.files.is_exhausted:
            self.files.shrink(self.by_name.values())
        names = set(self.files.names())
        self._recheck_kernel_threads(now)
        gone = (self._known - names) | self._lost
        vanished = {self.by_name.pop(name) for name in gone if name in self.by_name}
        self._known -= gone
        self._lost.clear()
        new = [process for name in names - self._known if (process := self._first_look(name, now))]
        return vanished, new

    def ran(self, now: int) -> tuple[list[Process], list[Process]]:
        """Who ran since the last call, and whose turn it is to be read all the same."""
        if not self._has_clocks:
            return self._ran_by_schedstat(now)
        ran: list[Process] = []
        due: list[Process] = []
        gettime = time.clock_gettime_ns
        for process in self.by_name.values():
            try:
                spent = gettime(process.clock)
            except OSError:
                continue  # gone since the list was taken; the next one says so
            if spent != process.cpu_ns:
                process.cpu_ns = spent
                ran.append(process)
            elif process.due <= now:
                due.append(process)
        return ran, due

    def _ran_by_schedstat(self, now: int) -> tuple[list[Process], list[Process]]:
        """The same where clocks are of another pid namespace: schedstat speaks for the main thread only."""
        ran: list[Process] = []
        due: list[Process] = []
        for process in self.by_name.values():
            spent = self.files.schedstat(process) if process.threads == 1 else None
            if spent is None or spent != process.cpu_ns:
                process.cpu_ns = spent or b""
                ran.append(process)
            elif process.due <= now:
                due.append(process)
        return ran, due

    def is_alive(self, process: Process) -> bool:
        """Whether it has not been reaped, right now."""
        if not self._has_clocks:
            return self.files.stat(process) is not None
        try:
            time.clock_gettime_ns(process.clock)
        except OSError:
            return False
        return True

    def look(self, process: Process, ran: bool = True) -> bool:
        """Reads a process anew; False if it is gone, or its pid is somebody else's now."""
        if process.stat_fd >= 0:
            return self._look(process, ran)
        if not self.files.pin(process):
            return False
        try:
            return self._look(process, ran)
        finally:
            self.files.unpin(process)

    def remove(self, process: Process) -> None:
        """Forgets a process that is gone."""
        self.files.release(process)
        siblings = self.children.get(process.ppid)
        if siblings is not None:
            siblings.discard(process)
            if not siblings:
                del self.children[process.ppid]
        if self.by_pid.get(process.pid) is process:
            del self.by_pid[process.pid]
        if self.by_name.get(process.name) is process:  # it ended while the sample was taken
            del self.by_name[process.name]
            self._known.discard(process.name)

    def wake_orphans(self, vanished: set[Process]) -> None:
        """Has the children of the vanished read again: they have another parent now and may never run."""
        for process in vanished:
            for child in self.children.get(process.pid, ()):
                child.due = 0

    def close(self) -> None:
        for process in self.by_pid.values():
            self.files.release(process)

    def _first_look(self, name: str, now: int) -> Process | None:
        if not name.isdecimal():
            self._known.add(name)
            return None
        process = Process(name)
        if not self.files.pin(process):
            return None
        try:
            return self._adopt(process, now)
        finally:
            self.files.unpin(process)

    def _adopt(self, process: Process, now: int) -> Process | None:
        if self._has_clocks:
            try:
                process.cpu_ns = time.clock_gettime_ns(process.clock)
            except OSError:
                return None
        text = self.files.adopt(process)
        if text is None:
            return None
        if int(split_stat(text)[1][FLAGS]) & PF_KTHREAD and not self._with_kernel_threads:
            self.files.release(process)
            self._kernel.append(process.name)
            self._known.add(process.name)
            return None
        process.start = int(split_stat(text)[1][START])
        # Spread over the minute, or all would be read again in one sample.
        process.due = now + PATIENCE // 2 + process.pid * 7919 % 997 * (PATIENCE // 1994)
        if not self._take(process, text, ran=True):
            self.files.release(process)
            return None
        self.by_name[process.name] = process
        self._known.add(process.name)
        self._enter(process)
        return process

    def _enter(self, process: Process) -> None:
        self.by_pid[process.pid] = process
        self.children.setdefault(process.ppid, set()).add(process)

    def _look(self, process: Process, ran: bool) -> bool:
        text = self.files.stat(process)
        if text is None or not self._take(process, text, ran):
            self._lost.add(process.name)
            return False
        return True

    def _take(self, process: Process, text: bytes, ran: bool) -> bool:
        """Takes over what is new; False if this is not the process we knew."""
        changed = text != process.stat_text
        if changed:
            comm, fields = split_stat(text)
            if int(fields[START]) != process.start or fields[PGRP].startswith(b"-"):
                return False
            before = process.fields
            self._take_fields(process, comm, fields)
            process.stat_text = text
            if process.shared is None or before[VIRTUAL : RESIDENT + 1] != fields[VIRTUAL : RESIDENT + 1]:
                self._take_statm(process)
        if ran and process.io_fd != DENIED:
            io = self.files.io(process) or b""
            if io != process.io_text:
                changed = True
                self._take_io(process, io)
        if changed:
            process.row = encode_process(process)
        process.looks += 1
        return True

    def _take_statm(self, process: Process) -> None:
        statm = self.files.statm(process)
        if not statm:
            process.shared = process.data_stack = None
            return
        shared, data = shared_and_data_pages(statm)
        process.shared, process.data_stack = shared * self._page, data * self._page

    def _take_fields(self, process: Process, comm: bytes, f: list[bytes]) -> None:
        if comm != process.comm:
            process.comm = comm
        process.fields = f
        ppid = int(f[PPID])
        if ppid != process.ppid:
            self._reparent(process, ppid)
        process.pgid = int(f[PGRP])
        process.session = int(f[SESSION])
        process.terminal = int(f[TERMINAL])
        process.flags = int(f[FLAGS])
        process.threads = int(f[THREADS])
        process.minor = int(f[MINOR])
        process.resident = int(f[RESIDENT]) * self._page
        process.used = (int(f[USER]), int(f[SYSTEM]), int(f[MAJOR]))
        process.reaped = (int(f[CHILD_USER]), int(f[CHILD_SYSTEM]), int(f[CHILD_MAJOR]))

    def _take_io(self, process: Process, text: bytes) -> None:
        process.io_text = text
        io = parse_io(text)
        process.moved = (int(io.read_bytes), int(io.write_bytes)) if io else None

    def _reparent(self, process: Process, ppid: int) -> None:
        if self.by_pid.get(process.pid) is process:
            siblings = self.children.get(process.ppid)
            if siblings is not None:
                siblings.discard(process)
            self.children.setdefault(ppid, set()).add(process)
        process.ppid = ppid

    def _recheck_kernel_threads(self, now: int) -> None:
        """A few per sample, each about once a minute: its pid may have become a process's."""
        if not self._checked:
            self._checked = now
        share = len(self._kernel) * (now - self._checked) // PATIENCE
        if not share:
            return
        self._checked = now
        for _ in range(min(share, len(self._kernel))):
            name = self._kernel.popleft()
            if name not in self._known:
                continue
            if self._is_kernel_thread(name):
                self._kernel.append(name)
            else:
                self._known.discard(name)

    def _is_kernel_thread(self, name: str) -> bool:
        text = self.files.stat(Process(name))
        return text is not None and bool(int(split_stat(text)[1][FLAGS]) & PF_KTHREAD)


def has_own_clocks(root: str) -> bool:
    """Whether the pids below this root are those that clock_gettime(2) understands."""
    try:
        return os.path.samefile(root, "/proc") and int(os.readlink(f"{root}/self")) == os.getpid()
    except (OSError, ValueError):
        return False
