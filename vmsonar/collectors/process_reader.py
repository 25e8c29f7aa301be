"""Reads a process that ran: what changed is taken over, what did not is left alone."""

from vmsonar.collectors.process_entry import DENIED, Process
from vmsonar.collectors.process_files import ProcessFiles
from vmsonar.collectors.process_rows import encode_head, encode_io, encode_process
from vmsonar.collectors.process_stat import (
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
    SYSTEM,
    TERMINAL,
    THREADS,
    USER,
    VIRTUAL,
    shared_and_data_pages,
    split_stat,
)

#: What a look at a process may find: it is gone (or its pid is somebody else's), it is as it was, it changed.
Outcome = int
GONE, SAME, CHANGED = 0, 1, 2


class ProcessReader:
    """Brings a process up to date from its files."""

    def __init__(self, files: ProcessFiles, page: int) -> None:
        self._files = files
        self._page = page

    def read(self, process: Process, ran: bool) -> Outcome:
        """Reads it anew."""
        text = self._files.stat(process)
        return GONE if text is None else self.take(process, text, ran)

    def take(self, process: Process, text: bytes, ran: bool) -> Outcome:
        """Takes over what is new in a stat line and in what goes with it."""
        # What follows the fields we use changes with every move to another CPU.
        changed = not text.startswith(process.stat_used)
        if changed:
            comm, fields = split_stat(text)
            if int(fields[START]) != process.start or fields[PGRP].startswith(b"-"):
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
