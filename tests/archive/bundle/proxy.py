"""A small HTTP proxy on loopback that knows CONNECT and nothing else (RFC 9110, section 9.3.6)."""

import select
import socket
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager

from tests.real.serving import served


class Proxy(socketserver.ThreadingTCPServer):
    """Remembers what it was asked; `refuses` makes it answer 403."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.asked: list[str] = []
        self.refuses = False
        self.port: int = self.server_address[1]

    def handle_error(self, *_: object) -> None:
        """Broken connections are the clients' affair."""


class Tunnel(socketserver.BaseRequestHandler):
    server: Proxy
    request: socket.socket

    def handle(self) -> None:
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += self.request.recv(1)
        self.server.asked.append(asked.decode())
        if self.server.refuses:
            self.request.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = asked.split()[1].decode().rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as behind:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._pass(behind)

    def _pass(self, behind: socket.socket) -> None:
        other = {self.request: behind, behind: self.request}
        while True:
            for end in select.select(list(other), [], [], 30)[0]:
                data = end.recv(65536)
                if not data:
                    return
                other[end].sendall(data)


@contextmanager
def proxying() -> Iterator[Proxy]:
    proxy = Proxy()
    with served(proxy):
        yield proxy
