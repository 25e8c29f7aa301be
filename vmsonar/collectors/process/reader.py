"""Reads a process that ran, and writes its row straight from the kernel's text."""

from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.lives import Moved
from vmsonar.collectors.process.model import DENIED, Process
from vmsonar.host.proc_pid import (
    CHILD_MAJOR,
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
    if process.shared is None or process.data_stack is None:
        return process.head + tail
    return _WITH_STATM % (process.head, process.shared, process.data_stack, tail)


#: What a look at a process may find: gone (or its pid reused), unchanged, changed.
LookResult = int
GONE, SAME, CHANGED = 0, 1, 2


class ProcessReader:
    """Brings a process up to date from its files."""

    def __init__(self, files: ProcessFiles, page: int) -> None:
        self._files = files
        self._page = page

    def read(self, process: Process, ran: bool) -> LookResult:
        """Reads it anew."""
        text = self._files.stat(process)
        return GONE if text is None else self.take(process, text, ran)

    def take(self, process: Process, text: bytes, ran: bool) -> LookResult:
        """Takes over what is new in a stat line and in what goes with it."""
        # What follows the fields we use changes with every move to another CPU.
        changed = not text.startswith(process.stat_used)
        if changed:
            comm, fields = split_stat(text)
            if int(fields[START]) != process.start_ticks or fields[PGRP].startswith(b"-"):
                return GONE
            size = (int(fields[VIRTUAL]), int(fields[RESIDENT]) * self._page)
            has_grown = size != (process.virtual, process.resident)
            process.virtual, process.resident = size
            self._take_fields(process, comm, fields)
            process.stat_used = text[: len(text) - len(fields[-1])]
            if has_grown or process.shared is None:
                self._take_statm(process)
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
        process.used = (int(f[USER]), int(f[SYSTEM]), int(f[MAJOR]))
        process.reaped = (int(f[CHILD_USER]), int(f[CHILD_SYSTEM]), int(f[CHILD_MAJOR]))

    def _take_statm(self, process: Process) -> None:
        statm = self._files.statm(process)
        if not statm:
            process.shared = process.data_stack = None
            return
        shared, data = shared_and_data_pages(statm)
        process.shared, process.data_stack = shared * self._page, data * self._page

    def _read_io(self, process: Process) -> bool:
        """Whether the I/O counters changed."""
        text = self._files.io(process) or b""
        if text == process.io_text:
            return False
        process.io_text = text
        process.tail, process.moved = encode_io(text)
        return True
