"""Hears births and deaths from the kernel: the proc connector of netlink (drivers/connector/cn_proc.c).

Since Linux 6.6 anybody may listen, before that it takes CAP_NET_ADMIN; always only in the first user, pid and network
namespace.
"""

import errno
import os
import select
import socket
import struct
import sys
import time
from array import array
from contextlib import suppress
from itertools import starmap

#: What happened, as `what` of struct proc_event says.
FORK, UID, SID, EXIT = 0x1, 0x4, 0x80, 0x80000000
_ANSWER = 0

#: What happened, when (CLOCK_MONOTONIC), and six numbers whose meaning depends on what happened.
Event = tuple[int, int, int, int, int, int, int, int]

_PROTOCOL = 11  # NETLINK_CONNECTOR
_GROUP = 1  # CN_IDX_PROC
_LISTEN = 1  # PROC_CN_MCAST_LISTEN
# Behind the headers of netlink (16 bytes) and of the connector (20).
_OFFSET = 36
_EVENT = struct.Struct("=I4xQ6I")
_WANTED = FORK | UID | SID | EXIT
# What is asked for; the kernel gives what net.core.rmem_max allows.
_BUFFER = 4 << 20
# Of the alarm: one event is enough.
_LEAST = 4096
_MESSAGE = 128
# The usual buffer, 212,992 bytes, holds 512 events: the births and ends of so many threads take half of it.
_MANY = 128
_ANSWER_SECONDS = 0.25

# A filter of classic BPF (bpf(4), linux/filter.h), which reads numbers as big-endian.
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_WORD, _LOAD_BYTE, _JUMP, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x30, 0x05, 0x15, 0x45, 0x06
_TASK, _CHILD = _OFFSET + 16, _OFFSET + 24
_LAST_BYTE = 0 if sys.byteorder == "little" else 3

REMEDY = "Linux 6.6 or later lets everybody listen; before that give the recorder CAP_NET_ADMIN"


class NoConnector(OSError):
    """The kernel does not tell us; the text says why."""


class Connector:
    """The open socket. Raises NoConnector where nothing would ever come."""

    def __init__(self, buffer: int = _BUFFER) -> None:
        try:
            self._socket = _open(buffer)
            #: Readable when so much has happened that it must be fetched before the buffer is full.
            self.alarm = _open(_LEAST)
        except OSError as error:
            raise NoConnector(error.errno, f"no netlink connector: {error.strerror}") from None
        try:
            self._socket.bind((0, _GROUP))
            _listen(self._socket)
            _let_through_few(self.alarm)
            self.alarm.bind((0, _GROUP))
            _send(self.alarm, struct.pack("=II", _LISTEN, FORK | EXIT))
        except OSError as error:
            self.close()
            raise NoConnector(error.errno, _why(error)) from None
        #: Events were lost because nobody fetched them in time.
        self.lost = False
        self._message = bytearray(_MESSAGE)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        self.alarm.close()

    def read(self, limit: int = 1 << 30) -> list[Event]:
        """What has come since, at most so many; times are those of CLOCK_MONOTONIC."""
        events: list[Event] = []
        receive, unpack, message = self._socket.recv_into, _EVENT.unpack_from, self._message
        while len(events) < limit:
            try:
                receive(message)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost = True
                continue
            events.append(unpack(message, _OFFSET))
        with suppress(OSError):
            self.alarm.recv_into(message)
        return events


def _open(buffer: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _PROTOCOL)
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    return opened


def _listen(opened: socket.socket) -> None:
    """Asks for everything, which every kernel answers, then for what we want, which none before 6.6 understands."""
    _send(opened, struct.pack("=I", _LISTEN))
    refused = _answer(opened)
    if refused is None:
        raise OSError(errno.EOPNOTSUPP, "no answer")
    if refused:
        raise OSError(refused, os.strerror(refused))
    _send(opened, struct.pack("=II", _LISTEN, _WANTED))


def _let_through_few(opened: socket.socket) -> None:
    """Only the births and ends whose thread id is a multiple of _MANY: ids are given out one after the other."""
    what = int.from_bytes(struct.pack("=I", FORK), "big")
    program = array("Q", b"".join(starmap(_INSTRUCTION.pack, (
        (_LOAD_WORD, 0, 0, _OFFSET),
        (_JUMP_EQUAL, 0, 2, what),
        (_LOAD_BYTE, 0, 0, _CHILD + _LAST_BYTE),
        (_JUMP, 0, 0, 1),
        (_LOAD_BYTE, 0, 0, _TASK + _LAST_BYTE),
        (_JUMP_ANY_BIT, 1, 0, _MANY - 1),
        (_RETURN, 0, 0, _MESSAGE),
        (_RETURN, 0, 0, 0),
    ))))  # fmt: skip
    address, number = program.buffer_info()
    opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", number, address))


def _send(opened: socket.socket, request: bytes) -> None:
    body = struct.pack("=IIIIHH", _GROUP, 1, 0, 0, len(request), 0) + request
    opened.send(struct.pack("=IHHII", 16 + len(body), 3, 0, 0, 0) + body)


def _answer(opened: socket.socket) -> int | None:
    """The error in the kernel's answer, 0 for none; None if it does not answer."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    waiting = select.poll()
    waiting.register(opened, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and waiting.poll(left * 1000):
        with suppress(BlockingIOError):
            event = _EVENT.unpack_from(opened.recv(_MESSAGE).ljust(_MESSAGE, b"\0"), _OFFSET)
            if event[0] == _ANSWER:
                return int(event[2])
    return None


def _why(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "the kernel tells births and deaths only to CAP_NET_ADMIN"
    if error.errno in (errno.EOPNOTSUPP, errno.ECONNREFUSED):
        return "the kernel does not tell births and deaths here: not its first namespaces, or built without"
    return f"the kernel does not tell births and deaths: {error.strerror}"
