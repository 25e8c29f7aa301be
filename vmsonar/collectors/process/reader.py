"""Reads a process that ran, and writes its row straight from the kernel's text."""

from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.lives import Moved, cpu_clock, exact, used
from vmsonar.collectors.process.machine_memory import MachineMemory
from vmsonar.collectors.process.model import DENIED, Process
from vmsonar.host.proc_pid import (
    CHILD_MAJOR,
    CHILD_MINOR,
    CHILD_SYSTEM,
    CHILD_USER,
    FLAGS,
    MAJOR,
    MINOR,
    PGRP,
    PPID,
    RESIDENT,
    SESSION,
    START,
    STATE,
    SYSTEM,
    TERMINAL,
    THREADS,
    USER,
    VIRTUAL,
    parse_io,
    parse_sizes,
    shared_and_data_pages,
    split_stat,
)

# The names are those of vmsonar_archive.records.ProcessRow, in its order; a test holds the two together.
_STAT = (
    b'{"pid":%d,"start_ticks":%b,"pgid":%b,"ppid":%b,"state":"%b","threads":%b,"user_ticks":%b,'
    b'"system_ticks":%b,"child_user_ticks":%b,"child_system_ticks":%b,"minor_faults":%b,"major_faults":%b,'
    b'"virtual":%b,"resident":%d'
)
_WITH_STATM = b'%b,"shared":%d,"data_stack":%d%b'
_CHILD_IO = b',"child_read_bytes":%d,"child_write_bytes":%d}'
_WITH_MARK = b'%b,"resident_peak":%d}'
_IO = b',"read_bytes":%b,"write_bytes":%b,"cancelled_bytes":%b,"read_chars":%b,"write_chars":%b}'  # fmt: skip


def encode_head(process: Process, f: list[bytes]) -> bytes:
    """The part of the row that is made from the fields of stat."""
    return _STAT % (
        process.pid,
        f[START],
        f[PGRP],
        f[PPID],
        f[STATE],
        f[THREADS],
        f[USER],
        f[SYSTEM],
        f[CHILD_USER],
        f[CHILD_SYSTEM],
        f[MINOR],
        f[MAJOR],
        f[VIRTUAL],
        process.resident,
    )


def encode_io(text: bytes) -> tuple[bytes, Moved | None]:
    """The end of the row, made from io, and the bytes that went to and from storage."""
    io = parse_io(text) if text else None
    if io is None:
        return b"}", None
    end = _IO % (io.read_bytes, io.write_bytes, io.cancelled_bytes, io.read_chars, io.write_chars)
    return end, (int(io.read_bytes), int(io.write_bytes))


def encode_process(process: Process) -> bytes:
    """The row as the process stands now."""
    tail = process.tail
    if process.child_moved is not None and process.moved is not None:
        tail = tail[:-1] + _CHILD_IO % process.child_moved
    if process.mark:
        tail = _WITH_MARK % (tail[:-1], process.mark)
    if process.shared is None or process.data_stack is None:
        return process.head + tail
    return _WITH_STATM % (process.head, process.shared, process.data_stack, tail)


_ONE = (b"0", b"1")
#: Bytes of file pages or shared memory that are worth a look at status, of somebody known and at first sight.
_LITTLE = 1 << 20
_MUCH = 16 << 20

#: What a look at a process may find: gone (or its pid reused), unchanged, changed.
LookResult = int
GONE, SAME, CHANGED = 0, 1, 2


class ProcessReader:
    """Brings a process up to date from its files."""

    def __init__(self, files: ProcessFiles, machine: MachineMemory, page: int, has_clocks: bool) -> None:
        """`has_clocks`: the pids are those that clock_gettime(2) understands."""
        self._files = files
        self._has_clocks = has_clocks
        self._machine = machine
        #: In the first round everyone has a history; later ones have it while we look.
        self.is_first_round = True
        self._page = page

    def read(self, process: Process, ran: bool) -> LookResult:
        """Reads it anew."""
        text = self._files.stat(process)
        return GONE if text is None else self.take(process, text, ran)

    def take(self, process: Process, text: bytes, ran: bool) -> LookResult:
        """Takes over what is new in a stat line and in what goes with it."""
        # What follows the fields we use changes with every move to another CPU.
        changed = not text.startswith(process.stat_used)
        if changed or process.looks == 1 or process.task:
            comm, fields = split_stat(text)
            if int(fields[START]) != process.start_ticks or fields[PGRP].startswith(b"-"):
                return GONE
            if (
                fields[STATE] == b"Z"
                and fields[THREADS] not in _ONE
                and not self._ask_thread(process, fields)
            ):
                return GONE
            size = (int(fields[VIRTUAL]), int(fields[RESIDENT]) * self._page)
            before = process.resident
            has_grown = size != (process.virtual, process.resident)
            process.virtual, process.resident = size
            self._take_fields(process, comm, fields)
            process.stat_used = text[: len(text) - len(fields[-1])]
            if has_grown or process.shared is None:
                self._take_statm(process)
            faults = process.minor + process.used[2]
            if has_grown or faults != process.faults or process.files is None:
                self._take_faults(process, faults, before)
                changed = changed or has_grown or process.is_marked
        if ran and process.io_fd != DENIED:
            changed = self._read_io(process) or changed
        process.looks += 1
        if not changed:
            return SAME
        process.row = encode_process(process)
        return CHANGED

    def _take_fields(self, process: Process, comm: bytes, f: list[bytes]) -> None:
        if comm != process.comm:
            process.comm = comm
        process.head = encode_head(process, f)
        process.ppid = int(f[PPID])
        process.pgid = int(f[PGRP])
        process.session = int(f[SESSION])
        process.terminal = int(f[TERMINAL])
        process.flags = int(f[FLAGS])
        process.threads = int(f[THREADS])
        process.minor = int(f[MINOR])
        cut = used(f, USER, SYSTEM, MAJOR)
        process.used = exact(cut, cpu_clock(process.pid)) if self._has_clocks else cut
        process.child_faults = int(f[CHILD_MINOR]) + int(f[CHILD_MAJOR])
        process.reaped = used(f, CHILD_USER, CHILD_SYSTEM, CHILD_MAJOR)

    def _take_statm(self, process: Process) -> None:
        statm = self._files.statm(process)
        if not statm:
            process.shared = process.data_stack = None
            return
        shared, data = shared_and_data_pages(statm)
        process.shared, process.data_stack = shared * self._page, data * self._page

    def _ask_thread(self, process: Process, f: list[bytes]) -> bool:
        """The main thread ended and shows no memory: another thread does. False if none can be read yet."""
        text = self._files.thread_stat(process)
        if text is None:
            f[VIRTUAL], f[RESIDENT] = b"%d" % process.virtual, b"%d" % (process.resident // self._page)
            return process.looks > 0
        _, of_thread = split_stat(text)
        f[VIRTUAL], f[RESIDENT] = of_thread[VIRTUAL], of_thread[RESIDENT]
        return True

    def _take_faults(self, process: Process, faults: int, before: int) -> None:
        """Notes how much its faults can have brought, and reads its marks where that can matter."""
        process.is_resized = True
        grown = self._machine.growth(faults - process.faults)
        process.faults = faults
        process.grown += grown
        if self._is_status_due(process, before, grown):
            sizes = parse_sizes(self._files.status(process) or b"")
            if sizes is not None:
                process.mark, process.files, process.shmem, process.huge = sizes[:4]
                process.shared_then = process.shared or 0
                process.is_marked = True

    def _is_status_due(self, process: Process, before: int, grown: int) -> bool:
        """Status costs twice as much as stat: it is read where it can say something new."""
        shared = process.shared or 0
        if not process.virtual:
            return False
        if process.files is None:
            if process.looks == 1 or self.is_first_round or shared >= _MUCH:
                return True
        elif abs(shared - process.shared_then) > max(_LITTLE, process.resident >> 5):
            return True
        if not grown:
            return process.huge > 0 and self._machine.has_hugetlb_changed()
        known = max(process.mark, process.resident)
        return before + grown > known + max(2 * _LITTLE, known >> 5) or self._machine.has_hugetlb_changed()

    def _read_io(self, process: Process) -> bool:
        """Whether the I/O counters changed."""
        text = self._files.io(process) or b""
        if text == process.io_text:
            return False
        process.io_text = text
        process.tail, process.moved = encode_io(text)
        return True
