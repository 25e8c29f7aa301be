"""Engines that misbehave: a Unix socket that accepts, and then is silent, talks nonsense or never ends."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path


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


def flood(head: bytes, more: bytes, pause: float = 0) -> Callable[[socket.socket], None]:
    """Begins an answer, and goes on with it for ever."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(more)
            time.sleep(pause)

    return behave


def headed(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


ID = "a1" * 32
OTHER = "b2" * 32
#: What an engine with two containers says, by the beginning of the path.
PLAIN = {
    "/version": {"ApiVersion": "1.41", "Version": "1.0", "Components": [{"Name": "Engine"}]},
    "/info": {"CgroupDriver": "cgroupfs"},
    "/containers/json": [{"Id": ID}, {"Id": OTHER}],
    f"/containers/{ID}": {"Id": ID, "Name": "/one", "Image": "sha256:1", "Config": {"Image": "busybox"}},
    f"/containers/{OTHER}": {
        "Id": OTHER,
        "Name": "/other",
        "Image": "sha256:1",
        "Config": {"Image": "busybox"},
    },
    "/images": {"RepoDigests": ["busybox@sha256:2"]},
    "/_ping": "OK",
    "/events": "",
}


def answering(**odd: object) -> Callable[[socket.socket], None]:
    """As an engine does, but for some paths: bytes are sent as they are, a function talks itself."""
    said: dict[str, object] = {**PLAIN, **odd}

    def behave(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            asked = b""
            while b"\r\n\r\n" not in asked:
                if not (more := connection.recv(65536)):
                    return
                asked += more
            path = asked.split(b" ")[1].decode().removeprefix("/v1.41")
            answer = next(said[key] for key in sorted(said, key=len, reverse=True) if path.startswith(key))
            if callable(answer):
                answer(connection)
            elif isinstance(answer, bytes):
                connection.sendall(answer)
            elif path.startswith("/events"):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + str(answer).encode())
            else:
                connection.sendall(headed(json.dumps(answer).encode()))
            connection.shutdown(socket.SHUT_RDWR)

    return behave


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
