"""A relay before an S3 server that damages what was stored, or keeps the answer back, on demand."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.real.serving import served

#: What is about the connection to us, not about what is asked.
_FRAMING = ("content-length", "transfer-encoding", "connection", "expect")


class Relay(ThreadingHTTPServer):
    """`plan` says what becomes of each completed upload: `truncate` what is stored, or `lose` the answer."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = urlsplit(endpoint).netloc
        self.plan: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Broken connections are what we are here for."""


class Handler(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"

    def relay(self) -> None:
        body = self._body()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _FRAMING}
        answer, content = self._ask(self.command, self.path, body, headers)
        if self.command == "POST" and "uploadId=" in self.path and self.server.plan:
            what = self.server.plan.pop(0)
            if what == "lose":
                self.connection.close()
                self.close_connection = True
                return
            key = self.path.split("?")[0]
            stored = self._ask("GET", key, b"", {})[1]
            self._ask("PUT", key, stored[: len(stored) // 2], {})
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        length = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        behind = http.client.HTTPConnection(self.server.behind, timeout=30)
        try:
            behind.request(method, path, body or None, headers)
            answer = behind.getresponse()
            return answer, answer.read()
        finally:
            behind.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = relay

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def relaying(endpoint: str) -> Iterator[Relay]:
    relay = Relay(endpoint)
    with served(relay):
        yield relay
