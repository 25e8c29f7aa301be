"""Engines that misbehave: a Unix socket that accepts, and then is silent, talks nonsense or never ends."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n["


def silent(connection: socket.socket) -> None:
    """Reads, and never answers."""
    with contextlib.suppress(OSError):
        while connection.recv(4096):
            pass


def garbage(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(4096)
        connection.sendall(bytes(range(256)) * 16)


def wrong_json(connection: socket.socket) -> None:
    """A well-formed answer that is not the one asked for."""
    body = b'["what", 1, null]'
    with contextlib.suppress(OSError):
        while connection.recv(4096):
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
                body
            )
            connection.sendall(head + body)


def endless(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(4096)
        connection.sendall(ENDLESS)
        while True:
            connection.sendall(b"[" * 2**20)


@contextlib.contextmanager
def fake_engine(path: Path, behave: Callable[[socket.socket], None]) -> Iterator[None]:
    """Serves the socket at this path until the end of the block."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(16)
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connections.append(connection)
                threads.append(threading.Thread(target=behave, args=(connection,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        for opened in (server, *connections):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        acceptor.join()
        for thread in threads:
            thread.join()
        for opened in (server, *connections):
            opened.close()
