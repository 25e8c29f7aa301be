"""Servers that keep a client waiting, or say more than anybody wants to hear: raw sockets, with and without TLS."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.wait import let_pass

Behaviour = Callable[[socket.socket], None]

OK = b"HTTP/1.1 200 OK\r\n"
#: Longer than any test waits, so that a client without a limit is seen to hang.
_LONG = 600
_PAUSE = 0.05


def _slowly(connection: socket.socket, text: bytes) -> None:
    """A byte at a time, for ever: each of them comes in time."""
    for _ in range(_LONG):
        for byte in text:
            connection.sendall(bytes([byte]))
            time.sleep(_PAUSE)


def _hear(connection: socket.socket) -> bytes:
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += connection.recv(65536) or b"\r\n\r\n"
    return asked


def silent(connection: socket.socket) -> None:
    _hear(connection)
    let_pass(_LONG * _PAUSE)


def continues(connection: socket.socket) -> None:
    _hear(connection)
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(_PAUSE)


def slow_status(connection: socket.socket) -> None:
    _hear(connection)
    _slowly(connection, b"HTTP/1.1 200 " + b"O" * 200)


def slow_headers(connection: socket.socket) -> None:
    _hear(connection)
    connection.sendall(OK)
    _slowly(connection, b"X-More: more\r\n")


def endless_headers(connection: socket.socket) -> None:
    _hear(connection)
    connection.sendall(OK)
    while True:
        connection.sendall(b"X-More: " + b"m" * 60_000 + b"\r\n")


def slow_body(connection: socket.socket) -> None:
    _hear(connection)
    connection.sendall(OK + b"Content-Length: 1000000\r\n\r\n")
    _slowly(connection, b"body")


def slow_chunks(connection: socket.socket) -> None:
    _hear(connection)
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    _slowly(connection, b"1\r\nx\r\n")


def endless_trailers(connection: socket.socket) -> None:
    _hear(connection)
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
    while True:
        connection.sendall(b"X-More: more\r\n")
        time.sleep(_PAUSE)


def never_reads(connection: socket.socket) -> None:
    let_pass(_LONG * _PAUSE)


WAITING: list[Behaviour] = [
    silent, continues, slow_status, slow_headers, slow_body, slow_chunks, endless_trailers
]  # fmt: skip


def endless_body(connection: socket.socket) -> None:
    _hear(connection)
    connection.sendall(OK + b"\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def saying(body: bytes, status: bytes = b"200 OK") -> Behaviour:
    """Answers everything in the same way."""

    def say(connection: socket.socket) -> None:
        _hear(connection)
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    return say


def echoing(status: bytes) -> Behaviour:
    """Gives back what it was told, in the status line, a header and the body, with escapes around it."""

    def echo(connection: socket.socket) -> None:
        asked = _hear(connection)
        line = b"\x1b[31m" + asked.replace(b"\r\n", b" ")[:2000] + b"\x1b]0;owned\x07\x9b"
        head = b"HTTP/1.1 " + status + b" " + line + b"\r\nX-Echo: " + line + b"\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(line) + line)

    return echo


@contextmanager
def serving(behave: Behaviour, certificate: Path | None = None) -> Iterator[int]:
    """Serves on a port of loopback until the end of the block; all connections are cut then."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
    if context and certificate:
        context.load_cert_chain(certificate)

    def attend(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            if context:
                connection = context.wrap_socket(connection, server_side=True)
                connections.append(connection)
            behave(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            connection.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for one in (listener, *connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
