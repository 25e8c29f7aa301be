"""What a worker and the process that started it say to each other (unix(7), SOCK_SEQPACKET)."""

import socket

import msgspec

from vmsonar_archive.errors import Exit, VmsonarError

_LIMIT = 64 * 1024 * 1024
_PIECE = 65536
_END = b"\0"


class Message(msgspec.Struct, omit_defaults=True):
    """What the worker says: a name it wants opened, how far it is, its result, or why it has none."""

    name: str | None = None
    #: The number of bytes to come, and then of those that have gone.
    total: int | None = None
    gone: int | None = None
    result: bytes | None = None
    error: str | None = None
    exit_code: int = Exit.CANNOT


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
    return ours, theirs


def send(end: socket.socket, data: bytes) -> None:
    """One message in pieces of a size that any socket takes; a piece of its own ends it."""
    for begin in range(0, len(data), _PIECE):
        end.send(data[begin : begin + _PIECE])
    end.send(_END)


def receive(end: socket.socket) -> bytes:
    """One message; empty when the other side has gone."""
    parts: list[bytes] = []
    size = 0
    while (part := end.recv(_PIECE)) not in (b"", _END):
        parts.append(part)
        size += len(part)
        if size > _LIMIT:
            raise VmsonarError("bundling answered with far too much")
    return b"".join(parts)
