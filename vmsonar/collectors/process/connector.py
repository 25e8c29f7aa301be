"""Hears births and deaths from the kernel: the proc connector of netlink (drivers/connector/cn_proc.c).

Since Linux 6.6 anybody may listen, before that it takes CAP_NET_ADMIN; always only in the first user, pid and network
namespace.
"""

import errno
import os
import select
import socket
import struct
import time
from contextlib import suppress

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
_MESSAGE = 128
_ANSWER_SECONDS = 0.25

REMEDY = "Linux 6.6 or later lets everybody listen; before that give the recorder CAP_NET_ADMIN"


class NoConnector(OSError):
    """The kernel does not tell us; the text says why."""


class Connector:
    """The open socket. Raises NoConnector where nothing would ever come."""

    def __init__(self, buffer: int = _BUFFER) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _PROTOCOL)
        except OSError as error:
            raise NoConnector(error.errno, f"no netlink connector: {error.strerror}") from None
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            self._socket.bind((0, _GROUP))
            self._listen()
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
        return events

    def _listen(self) -> None:
        """Asks for everything, which every kernel answers, then for what we want, which none before 6.6 understands."""
        self._send(struct.pack("=I", _LISTEN))
        refused = self._answer()
        if refused is None:
            raise OSError(errno.EOPNOTSUPP, "no answer")
        if refused:
            raise OSError(refused, os.strerror(refused))
        self._send(struct.pack("=II", _LISTEN, _WANTED))

    def _send(self, request: bytes) -> None:
        body = struct.pack("=IIIIHH", _GROUP, 1, 0, 0, len(request), 0) + request
        self._socket.send(struct.pack("=IHHII", 16 + len(body), 3, 0, 0, 0) + body)

    def _answer(self) -> int | None:
        """The error in the kernel's answer, 0 for none; None if it does not answer."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and waiting.poll(left * 1000):
            with suppress(BlockingIOError):
                event = _EVENT.unpack_from(self._socket.recv(_MESSAGE).ljust(_MESSAGE, b"\0"), _OFFSET)
                if event[0] == _ANSWER:
                    return int(event[2])
        return None


def _why(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "the kernel tells births and deaths only to CAP_NET_ADMIN"
    if error.errno in (errno.EOPNOTSUPP, errno.ECONNREFUSED):
        return "the kernel does not tell births and deaths here: not its first namespaces, or built without"
    return f"the kernel does not tell births and deaths: {error.strerror}"
