"""Taskstats: the kernel's record of every task that ends, by generic netlink (Documentation/accounting/taskstats.rst).

A record is read by its length: each version only adds to its end. Version 15 (Linux 6.14) put figures in between;
version 16 took that back. So the layout is tried on a record of our own before it is believed.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vmsonar_archive.system.errors import VmsonarError

# linux/netlink.h, linux/genetlink.h and linux/taskstats.h
_NETLINK_GENERIC = 16
_SO_RCVBUFFORCE = 33
_REQUEST, _ACK, _ERROR = 1, 4, 2
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_GET, _REGISTER, _NULL = 1, 3, 6
_HEAD = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=IHHIIBBH")
_ATTRIBUTE = struct.Struct("=HH")
# A record of a task or a group: around it, its number, and its own head.
_PARTS = struct.Struct("=HHHHIHH")
_BODY = _MESSAGE.size
#: Flags of acct(5): never ran a program of its own; ended by a signal; the last of its thread group (Linux 5.19).
FORKED, SIGNALLED, LAST = 0x01, 0x10, 0x20
# The usual form, that of Linux 6.14, and one that lay between both.
_MORE_FIGURES = (0, 2, 1)
_BIGGEST = 8192
_PATIENCE = 5.0
_CODE, _TRIES = 42, 5
_EXPLAINED = {
    errno.EPERM: "taskstats needs CAP_NET_ADMIN: let vmsonar-accounts.service run it (vmsonar install --accounts)",
    errno.ENOENT: "this kernel has no taskstats (CONFIG_TASKSTATS)",
    errno.EINVAL: "taskstats tells nothing inside a container: run it in the machine's first namespaces",
}


Message = bytes | bytearray


class Task(NamedTuple):
    """One task that ended; times in nanoseconds, as far as the kernel tells them so finely."""

    exit_code: int
    flags: int
    waited: int
    #: The scheduler's sum at its last update.
    ran: int
    name: bytes
    uid: int
    pid: int
    ppid: int
    elapsed_us: int
    user_us: int
    system_us: int
    minor_faults: int
    major_faults: int
    peak_kib: int
    read_chars: int
    write_chars: int
    read_bytes: int
    write_bytes: int
    cancelled_write_bytes: int
    #: How often it gave its processor up, and how often that was taken from it.
    sleeps: int
    preemptions: int


class Ending(NamedTuple):
    """What one message says: the task, its group where the kernel tells it, and the group's own sums at its end."""

    task: Task
    tgid: int | None
    group_elapsed_us: int | None
    #: CPU time of all threads that a group of several ever had; None unless this was the last of such a group.
    group_ran: int | None


class Layout:
    """Where the figures are in a record; `more` is how many figures each delay has beyond count and total."""

    def __init__(self, more: int = 0) -> None:
        self._task = struct.Struct(f"=4xIB15xQ{40 + 24 * more}xQ32s8xI4xII8xQQQQQ16xQ8xQQ16xQQQQQ")
        self._group = struct.Struct("=I4xQ")
        self._group_at = 368 + 48 * more
        self._ran = struct.Struct("=Q")
        self._ran_at = 72 + 24 * more

    def read(self, message: Message, size: int) -> Ending | None:
        """Takes the message at the beginning of a buffer apart; None if it is no record."""
        try:
            return self._read(message, size)
        except struct.error:
            return None

    def _read(self, message: Message, size: int) -> Ending | None:
        length, _, _, _, pid, stats_length, kind = _PARTS.unpack_from(message, _BODY)
        at = _BODY + _PARTS.size
        if kind == _NULL:  # padding, where the processor wants figures aligned
            stats_length, _ = _ATTRIBUTE.unpack_from(message, at)
            at += _ATTRIBUTE.size
        task = Task._make(self._task.unpack_from(message, at))
        if task.pid != pid:
            return None
        tgid = elapsed = ran = None
        if stats_length >= _ATTRIBUTE.size + self._group_at + self._group.size:
            tgid, elapsed = self._group.unpack_from(message, at + self._group_at)
        following = _BODY + (length + 3 & ~3)
        if following < size:
            tgid, ran = self._read_group(message, following)
        return Ending(task, tgid, elapsed, ran)

    def _read_group(self, message: Message, at: int) -> tuple[int, int]:
        _, _, _, _, tgid, _, kind = _PARTS.unpack_from(message, at)
        start = at + _PARTS.size + (_ATTRIBUTE.size if kind == _NULL else 0)
        return tgid, self._ran.unpack_from(message, start + self._ran_at)[0]


class Taskstats:
    """The socket on which the kernel tells of every task that ends, on any processor."""

    def __init__(self, possible_cpus: str, buffer: int) -> None:
        """Raises VmsonarError where this kernel does not let us."""
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        self.socket.bind((0, 0))
        self.socket.settimeout(_PATIENCE)
        self._family = _CONTROL
        try:
            # Beyond net.core.rmem_max, which our one capability allows.
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer)
            self._family = self._find_family()
            self._ask(_GET, _attribute(_REGISTER, possible_cpus.encode() + b"\0"))
            self.read = self._find_layout().read
        except OSError as error:
            self.socket.close()
            raise VmsonarError(_EXPLAINED.get(error.errno or 0, f"taskstats: {error}")) from None

    def _find_family(self) -> int:
        answer = self._ask(_GET_FAMILY, _attribute(_FAMILY_NAME, b"TASKSTATS\0"))
        for kind, value in _attributes(answer):
            if kind == _FAMILY_ID:
                return int.from_bytes(value, sys.byteorder)
        raise OSError(errno.ENOENT, "")

    def _find_layout(self) -> Layout:
        """Tries each on the record of a child whose end we know; without it, nothing would ever be told here."""
        name = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
        child, message = self._record_of_child()
        for more in _MORE_FIGURES:
            layout = Layout(more)
            found = layout.read(message, len(message))
            if found is None or found.tgid not in (None, child):
                continue
            if found.task.name.rstrip(b"\0") == name and found.task.exit_code == _CODE << 8:
                return layout
        raise VmsonarError("this kernel's taskstats have a form that is not known")

    def _record_of_child(self) -> tuple[int, bytes]:
        """The kernel sends it before the parent can be told of the end, so it is there unless others were too many."""
        self.socket.setblocking(False)
        for _ in range(_TRIES):
            child = os.fork()
            if child == 0:
                os._exit(_CODE)
            os.waitpid(child, 0)
            for message in self._waiting():
                if len(message) >= _BODY + _PARTS.size and _PARTS.unpack_from(message, _BODY)[4] == child:
                    return child, message
        raise OSError(errno.EINVAL, "")

    def _waiting(self) -> Iterator[bytes]:
        while True:
            try:
                yield self.socket.recv(_BIGGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise

    def _ask(self, command: int, attribute: bytes) -> bytes:
        """Asks and returns the answer, which is empty where there is nothing to say but that it was done."""
        length = _MESSAGE.size + len(attribute)
        head = _MESSAGE.pack(length, self._family, _REQUEST | _ACK, 0, 0, command, 1, 0)
        self.socket.send(head + attribute)
        answer = b""
        while True:
            message = self.socket.recv(_BIGGEST)
            _, kind, _, _, _ = _HEAD.unpack_from(message)
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", message, _HEAD.size)
                if code:
                    raise OSError(-code, os.strerror(-code))
                return answer
            answer = message


def possible_cpus(path: str = "/sys/devices/system/cpu/possible") -> str:
    """All processors that there can ever be, so that one that comes later is listened to as well."""
    return Path(path).read_text().strip()


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def _attributes(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = _BODY
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, message[at + _ATTRIBUTE.size : at + length]
        at += length + 3 & ~3
