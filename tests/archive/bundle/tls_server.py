"""A TLS server that takes PUTs, and misbehaves on demand."""

import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.real.serving import served


class Store(ThreadingHTTPServer):
    """Keeps what it is sent, by path; `plan` says how each PUT in turn is answered."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.stored: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.plan: list[str] = []
        #: Whether the URLs also let somebody look what is there.
        self.may_look = False
        #: What a PUT that is to wait waits for.
        self.released = threading.Event()

    def url(self, name: str) -> str:
        return f"https://localhost:{self.server_port}/bucket/{name}?X-Amz-Signature=canary-secret"

    def handle_error(self, *_: object) -> None:
        """Broken connections are what we are here for."""


class Handler(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        name = self.path.split("?")[0]
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        what = self.server.plan.pop(0) if self.server.plan else "store"
        size = int(self.headers["Content-Length"])
        if what == "cut":
            self.rfile.read(size // 2)
            self.connection.close()
            self.close_connection = True
            return
        content = self.rfile.read(size)
        if what == "wait":
            self.server.released.wait(60)
        if what.isdigit():
            self._answer(int(what), {"Location": "https://localhost:1/elsewhere"} if what[0] == "3" else {})
        elif name in self.server.stored and self.headers.get("If-None-Match") == "*":
            self._answer(412, {})
        else:
            self.server.stored[name] = content[: size // 2] if what == "truncate" else content
            if what == "lose":
                self.connection.close()
                self.close_connection = True
                return
            stored = hashlib.md5(self.server.stored[name]).hexdigest()
            self._answer(200, {} if what == "silent" else {"ETag": f'"{stored}"'})

    def do_HEAD(self) -> None:
        # A URL that is signed for PUT usually does not let anybody look.
        content = self.server.stored.get(self.path.split("?")[0])
        if not self.server.may_look or content is None:
            return self._answer(403, {})
        headers = {"ETag": f'"{hashlib.md5(content).hexdigest()}"', "Content-Length": str(len(content))}
        return self._answer(200, headers)

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(certificate: Path) -> Iterator[Store]:
    store = Store(certificate)
    with served(store):
        yield store
