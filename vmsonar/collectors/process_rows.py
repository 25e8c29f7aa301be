"""Writes the row of a process straight from the kernel's text: no number is parsed only to be written again."""

from vmsonar.collectors.process_entry import Process
from vmsonar.collectors.process_stat import (
    CHILD_SYSTEM,
    CHILD_USER,
    MAJOR,
    MINOR,
    PGRP,
    PPID,
    START,
    STATE,
    SYSTEM,
    THREADS,
    USER,
    VIRTUAL,
    parse_io,
)

# The names are those of vmsonar_archive.records.ProcessRow, in its order; a test holds the two together.
_STAT = (
    b'{"pid":%d,"start_ticks":%b,"pgid":%b,"ppid":%b,"state":"%b","threads":%b,"user_ticks":%b,'
    b'"system_ticks":%b,"child_user_ticks":%b,"child_system_ticks":%b,"minor_faults":%b,"major_faults":%b,'
    b'"virtual":%b,"resident":%d'
)
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


def encode_process(process: Process) -> bytes:
    """The row as the process stands now."""
    row = process.head
    if process.shared is not None:
        row += b',"shared":%d' % process.shared
    if process.data_stack is not None:
        row += b',"data_stack":%d' % process.data_stack
    io = parse_io(process.io_text) if process.io_text else None
    if io is None:
        return row + b"}"
    return row + _IO % (io.read_bytes, io.write_bytes, io.cancelled_bytes, io.read_chars, io.write_chars)
