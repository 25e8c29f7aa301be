"""Parsing of the files below /proc/PID: stat, statm, io, status (proc_pid_stat(5) and its siblings)."""

import re
from pathlib import Path
from typing import NamedTuple

# Indices into the fields after the name; `state` is the third column of the man page.
STATE, PPID, PGRP, SESSION, TERMINAL = 0, 1, 2, 3, 4
FLAGS, MINOR, CHILD_MINOR, MAJOR, CHILD_MAJOR = 6, 7, 8, 9, 10
USER, SYSTEM, CHILD_USER, CHILD_SYSTEM = 11, 12, 13, 14
THREADS, START, VIRTUAL, RESIDENT = 17, 19, 20, 21

_WANTED = RESIDENT + 1
_SIGCHLD_BIT = 1 << 16
_SIZES = re.compile(
    rb"^VmHWM:\s*(\d+) kB\n.*\nRssAnon:\s*(\d+) kB\nRssFile:\s*(\d+) kB\nRssShmem:\s*(\d+) kB$", re.MULTILINE
)
_HUGE = re.compile(rb"^HugetlbPages:\s*(\d+) kB$", re.MULTILINE)
_IGNORED = re.compile(rb"^SigIgn:\s*([0-9a-f]+)$", re.MULTILINE)
_REAL_UID = re.compile(rb"^Uid:\s*(\d+)", re.MULTILINE)
_IO = re.compile(
    rb"rchar: (\d+)\nwchar: (\d+)\nsyscr: \d+\nsyscw: \d+\n"
    rb"read_bytes: (\d+)\nwrite_bytes: (\d+)\ncancelled_write_bytes: (\d+)\n"
)


def split_stat(line: bytes) -> tuple[bytes, list[bytes]]:
    """The name and the fields after it, the last one being all that we do not use.

    A name may hold blanks, parentheses and line feeds.
    """
    close = line.rindex(b")")
    fields = line[close + 2 :].split(b" ", _WANTED)
    if len(fields) < _WANTED:
        raise ValueError("stat ends early")
    return line[line.index(b"(") + 1 : close], fields


def read_stat(proc: Path, pid: int) -> list[bytes] | None:
    """The fields after the name, or None for a process that is gone."""
    try:
        return split_stat((proc / str(pid) / "stat").read_bytes())[1]
    except (OSError, ValueError):
        return None


def shared_and_data_pages(line: bytes) -> tuple[int, int]:
    """Resident pages of files and shared memory, and pages of data and stack: columns 3 and 6 of statm."""
    columns = line.split(b" ", 6)
    return int(columns[2]), int(columns[5])


class Io(NamedTuple):
    """The counters of /proc/PID/io, as text; those of children that were waited for are in them."""

    read_chars: bytes
    write_chars: bytes
    read_bytes: bytes
    write_bytes: bytes
    cancelled_bytes: bytes


def parse_io(text: bytes) -> Io | None:
    """The counters, or None where the kernel keeps none."""
    match = _IO.match(text)
    return Io(*match.groups()) if match else None


def ignores_children(status: bytes) -> bool:
    """Whether SIGCHLD is ignored: then no parent is charged with what a child used (wait(2))."""
    match = _IGNORED.search(status)
    return match is not None and bool(int(match[1], 16) & _SIGCHLD_BIT)


def real_uid(status: bytes) -> int | None:
    """Who started it: a setuid program runs as another."""
    match = _REAL_UID.search(status)
    return int(match[1]) if match else None


class Sizes(NamedTuple):
    """Bytes from /proc/PID/status: the highest resident size; now file pages, shared memory, the huge page
    pool's, anonymous pages."""

    mark: int
    files: int
    shmem: int
    huge: int
    anonymous: int


def parse_sizes(status: bytes) -> Sizes | None:
    """The sizes of a process; None for one that has no memory, or where the kernel does not tell them apart."""
    match = _SIZES.search(status)
    if match is None:
        return None
    huge = _HUGE.search(status, match.end())
    mark, anonymous, files, shmem = (int(kilobytes) * 1024 for kilobytes in match.groups())
    return Sizes(mark, files, shmem, int(huge[1]) * 1024 if huge else 0, anonymous)
