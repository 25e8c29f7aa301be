"""Writes the row of a process straight from the kernel's text: no number is parsed only to be written again."""

from vmsonar.collectors.process_entry import Moved, Process
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


def encode_io(text: bytes) -> tuple[bytes, Moved | None]:
    """The end of the row, made from io, and the bytes that went to and from storage."""
    io = parse_io(text) if text else None
    if io is None:
        return b"}", None
    end = _IO % (io.read_bytes, io.write_bytes, io.cancelled_bytes, io.read_chars, io.write_chars)
    return end, (int(io.read_bytes), int(io.write_bytes))


def encode_process(process: Process) -> bytes:
    """The row as the process stands now."""
    if process.shared is None or process.data_stack is None:
        return process.head + process.tail
    return b'%b,"shared":%d,"data_stack":%d%b' % (
        process.head,
        process.shared,
        process.data_stack,
        process.tail,
    )
