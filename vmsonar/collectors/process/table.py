"""The live processes: which are new, gone or ran, and what we may see of other users' (proc(5) hidepid)."""

import os
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice

from vmsonar_archive.records import Capability

from vmsonar.collectors.base import capability
from vmsonar.collectors.process.activity import activity, has_own_clocks
from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.machine_memory import MachineMemory
from vmsonar.collectors.process.model import DENIED, PF_KTHREAD, Process
from vmsonar.collectors.process.reader import CHANGED, GONE, LookResult, ProcessReader, encode_process
from vmsonar.host.proc_pid import FLAGS, START, ignores_children, split_stat

#: Nanoseconds after which a sleeper is read all the same.
PATIENCE = 60 * 10**9
# Trying an unused pid costs two to three times as much as a name in the list; with room to spare.
_COST_OF_TRYING = 4

_HIDDEN = "processes of other users are hidden: /proc is mounted with hidepid"
_IO_DENIED = "the I/O counters of other users' processes need CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
_REMEDY_HIDDEN = (
    "run vmsonar in the group that the mount option gid= of /proc names, or mount it with hidepid=0"
)
_REMEDY_IO = (
    "the drop-in vmsonar-io.conf gives both capabilities; the second one also reads every file on the machine"
)


class ProcessTable:
    """Every process that was seen alive, by name in the root, by pid, and by parent."""

    def __init__(self, proc: str, descriptors: int, kernel_threads: bool) -> None:
        self.files = ProcessFiles(proc, descriptors)
        self._activity = activity(proc, self.files)
        self.machine = MachineMemory(proc)
        page = os.sysconf("SC_PAGE_SIZE")
        self._reader = ProcessReader(self.files, self.machine, page, has_own_clocks(proc))
        self.by_name: dict[str, Process] = {}
        self.by_pid: dict[int, Process] = {}
        self.children: dict[int, set[Process]] = {}
        self.is_alive = self._activity.is_alive
        self.ran = self._activity.ran
        self._with_kernel_threads = kernel_threads
        self._kernel: deque[str] = deque()
        self._queue: OrderedDict[Process, None] = OrderedDict()
        self._known: set[str] = set()
        self._checked = 0
        self._lost: set[str] = set()
        #: The last pid that was given out, now and at the sample before.
        self._newest: int | None = None
        self._earlier: int | None = None
        self._list_due = 0

    def changes(self, now: int) -> tuple[set[Process], list[Process]]:
        """The processes that vanished and those that are new since the last call; a pid may be in both."""
        if self.files.is_exhausted:
            self.files.shrink(self.by_name.values())
        self._recheck_kernel_threads(now)
        given_out = self._given_out(now)
        ended = None if given_out is None else self._activity.ended()
        if given_out is None or ended is None:
            return self._compare_with_list()
        return self._depart(ended), self._arrive(given_out)

    def sleepers_due(self, now: int) -> list[Process]:
        """The sleepers that are due to be read all the same: each about once a minute."""
        due = list(islice(self._queue, _share(len(self._queue), now, self._checked)))
        for process in due:
            self._queue.move_to_end(process)
        return due

    def end_round(self, now: int) -> None:
        """Remembers when this round ended; the next one is measured from here."""
        self._checked = now
        self._reader.is_first_round = False

    def look(self, process: Process, ran: bool = True) -> LookResult:
        """Reads a process anew."""
        if process.stat_fd >= 0:
            found = self._reader.read(process, ran)
        elif self.files.pin(process):
            found = self._reader.read(process, ran)
            self.files.unpin(process)
        else:
            found = GONE
        if found == CHANGED:
            self._activity.rows[process.index] = process.row
            if process.ppid != process.known_ppid:
                self._leave_parent(process)
                self._join_parent(process)
        elif found == GONE:
            self._lost.add(process.name)
        return found

    def encode_again(self, process: Process) -> None:
        """Brings its row up to date with what was found out after it was read."""
        process.row = encode_process(process)
        if self.by_name.get(process.name) is process:
            self._activity.rows[process.index] = process.row

    def rows(self, only_kept: bool) -> list[bytes]:
        """The rows of all processes, or of those that the filters keep."""
        if not only_kept:
            return self._activity.rows
        return [process.row for process in self.by_name.values() if process.kept]

    def remove(self, process: Process) -> None:
        """Forgets a process that is gone."""
        self.files.release(process)
        self._leave_parent(process)
        if self.by_pid.get(process.pid) is process:
            del self.by_pid[process.pid]
        if self.by_name.get(process.name) is process:  # it ended while the sample was taken
            self._drop(process.name)
            self._known.discard(process.name)

    def orphans(self, vanished: set[Process]) -> list[Process]:
        """The children of the vanished: they have another parent now and may never run."""
        return [
            child
            for process in vanished
            for child in self.children.get(process.pid, ())
            if self.by_name.get(child.name) is child
        ]

    def ignores_children(self, process: Process) -> bool:
        """Whether it ignores SIGCHLD: the kernel then charges nobody with what its children used."""
        status = self.files.status(process)
        return status is not None and ignores_children(status)

    def close(self) -> None:
        for process in self.by_pid.values():
            self.files.release(process)
        self.files.close()
        self.machine.close()

    def _given_out(self, now: int) -> range | None:
        """The pids among which all newcomers are, or None when the list must be taken.

        The last pid is read before anything else, so that nobody slips in between. A fork takes its pid before there
        is a process, so each is tried at two samples.
        """
        earlier, self._earlier, newest = self._earlier, self._newest, self.files.newest_pid()
        self._newest = newest
        if not (earlier is None or newest is None or self._lost or now >= self._list_due):
            pids = range(earlier + 1, newest + 1)
            # After the highest pid the low ones follow.
            if newest >= earlier and len(pids) * _COST_OF_TRYING <= len(self._known):
                return pids
        self._list_due = now + PATIENCE
        return None

    def _depart(self, ended: list[Process]) -> set[Process]:
        for process in ended:
            self._known.discard(process.name)
        return {self._drop(process.name) for process in ended}

    def _arrive(self, pids: range) -> list[Process]:
        found = []
        for pid in filter(self._activity.is_process, pids):
            name = str(pid)
            process = None if name in self.by_name else self._first_look(name)
            if process is not None:
                found.append(process)
            elif name not in self._known:
                self._list_due = 0  # one that could not be read yet may be readable any time
        return found

    def _compare_with_list(self) -> tuple[set[Process], list[Process]]:
        names = set(self.files.names())
        if "1" not in names:
            self._list_due = 0  # hidden processes may appear any time
        if names == self._known and not self._lost:
            return set(), []
        gone = (self._known - names) | self._lost
        vanished = {self._drop(name) for name in gone if name in self.by_name}
        self._known -= gone
        self._lost.clear()
        new = [process for name in names - self._known if (process := self._first_look(name))]
        if not names <= self._known:
            self._list_due = 0  # one that could not be read yet may be readable any time
        return vanished, new

    def _first_look(self, name: str) -> Process | None:
        if not name.isdecimal():
            self._known.add(name)
            return None
        process = Process(name)
        if not self.files.pin(process):
            return None
        try:
            return self._adopt(process)
        finally:
            self.files.unpin(process)

    def _adopt(self, process: Process) -> Process | None:
        self._activity.note(process)
        text = self.files.adopt(process)
        if text is None:
            return None
        fields = split_stat(text)[1]
        if int(fields[FLAGS]) & PF_KTHREAD and not self._with_kernel_threads:
            self.files.release(process)
            self._kernel.append(process.name)
            self._known.add(process.name)
            return None
        process.start_ticks = int(fields[START])
        if self._reader.take(process, text, ran=True) == GONE:
            self.files.release(process)
            return None
        self._enter(process)
        return process

    def _enter(self, process: Process) -> None:
        self.by_name[process.name] = process
        self._known.add(process.name)
        self.by_pid[process.pid] = process
        self._activity.add(process)
        self._queue[process] = None
        self._join_parent(process)

    def _drop(self, name: str) -> Process:
        process = self.by_name.pop(name)
        self._activity.remove(process)
        del self._queue[process]
        return process

    def _join_parent(self, process: Process) -> None:
        process.known_ppid = process.ppid
        self.children.setdefault(process.ppid, set()).add(process)

    def _leave_parent(self, process: Process) -> None:
        siblings = self.children.get(process.known_ppid)
        if siblings is not None:
            siblings.discard(process)
            if not siblings:
                del self.children[process.known_ppid]

    def _recheck_kernel_threads(self, now: int) -> None:
        """A few per sample, each about once a minute: its pid may have become a process's."""
        for _ in range(_share(len(self._kernel), now, self._checked)):
            name = self._kernel.popleft()
            if name not in self._known:
                continue
            if self._is_kernel_thread(name):
                self._kernel.append(name)
            else:
                self._known.discard(name)
                self._list_due = 0

    def _is_kernel_thread(self, name: str) -> bool:
        text = self.files.stat(Process(name))
        return text is not None and bool(int(split_stat(text)[1][FLAGS]) & PF_KTHREAD)


def _share(length: int, now: int, since: int) -> int:
    """How many of a queue are due if each is to be read within PATIENCE."""
    return min(length, length * (now - since) // PATIENCE + 1) if 0 < since <= now else 0


def process_gaps(table: ProcessTable) -> list[tuple[str, str]]:
    """What the rows lack: a stable reason and a detail."""
    gaps = []
    if _is_hidden(table):
        gaps.append(("hidepid", _HIDDEN))
    if denied := _denied(table.by_name.values()):
        gaps.append(("permission", f"{_IO_DENIED}; hidden for {denied} processes"))
    return gaps


def process_capabilities(collector: str, table: ProcessTable) -> list[Capability]:
    """The same for `vmsonar doctor`."""
    found = []
    why = (_HIDDEN, _REMEDY_HIDDEN) if _is_hidden(table) else ()
    found.append(capability(collector, "processes of all users", *why))
    own = os.geteuid()
    others = [process for process in table.by_name.values() if table.files.user_id(process) != own]
    denied = _denied(others)
    # A few refuse everyone: those that are just ending, or live in another user namespace.
    is_denied = 2 * denied > len(others)
    why = (f"{_IO_DENIED}; {denied} of {len(others)} refuse", _REMEDY_IO) if is_denied else ()
    found.append(capability(collector, "I/O of other users' processes", *why))
    return found


def _is_hidden(table: ProcessTable) -> bool:
    return bool(table.by_name) and "1" not in table.by_name


def _denied(processes: Iterable[Process]) -> int:
    return sum(process.io_fd == DENIED for process in processes)
