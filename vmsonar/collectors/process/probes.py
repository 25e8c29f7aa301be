"""Asks the kernel about a process by its pid, in time: it may end, and its pid be used again, at any moment."""

import os

from vmsonar.collectors.process.lives import Death, Life, Moved, cpu_clock, exact, used
from vmsonar.host.proc_pid import (
    CHILD_MAJOR,
    CHILD_SYSTEM,
    CHILD_USER,
    MAJOR,
    PGRP,
    START,
    STATE,
    SYSTEM,
    USER,
    parse_io,
    split_stat,
)

_FILE = 4096
# States of a process that has ended: zombie, dead.
_ENDED = (b"Z", b"X")


class Probe:
    """Reads files below /proc/PID; what is gone or refused reads as nothing."""

    def __init__(self, proc: str) -> None:
        self._proc = proc

    def stat(self, pid: int) -> tuple[bytes, list[bytes]] | None:
        text = self.text(pid, "stat")
        try:
            return split_stat(text)
        except ValueError:
            return None

    def ended_stat(self, life: Life) -> tuple[bytes, list[bytes]] | None:
        """Its stat after its end; None if somebody has waited for it: its pid may have been used again."""
        found = self.stat(life.pid)
        if found is None or found[1][STATE] not in _ENDED or not life.is_of(int(found[1][START])):
            return None
        return found

    def read_last(self, death: Death) -> None:
        """The final figures, while nobody has waited for it."""
        life = death.life
        found = self.ended_stat(life)
        if found is None:
            return
        name, fields = found
        life.name = name
        life.move(int(fields[PGRP]))
        own = used(fields, USER, SYSTEM, MAJOR)
        death.final = exact(own, cpu_clock(life.pid)), used(fields, CHILD_USER, CHILD_SYSTEM, CHILD_MAJOR)
        death.moved = self.io(life.pid)

    def io(self, pid: int) -> Moved | None:
        io = parse_io(self.text(pid, "io"))
        return None if io is None else (int(io.read_bytes), int(io.write_bytes))

    def text(self, pid: int, leaf: str) -> bytes:
        try:
            descriptor = os.open(f"{self._proc}/{pid}/{leaf}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.read(descriptor, _FILE)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def user(self, pid: int) -> int | None:
        try:
            return os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None


def is_there(pid: int) -> bool:
    """Whether a process, or a zombie, has that pid."""
    return cpu_clock(pid) is not None


def is_group(pgid: int) -> bool:
    """Whether a process group has this number, whoever is in it."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def group_of(pid: int) -> int:
    """The process group, 0 for one that is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
