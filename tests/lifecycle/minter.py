"""A TLS server that mints URLs, and misbehaves on demand."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.real.serving import served

TOKEN = "canary-token"


class Minter(ThreadingHTTPServer):
    """Answers with what `plan` holds, in turn: a status, bytes, or an object for JSON; then with URLs of the store."""

    daemon_threads = True

    def __init__(self, certificate: Path, store: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.store = store
        self.plan: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.expires: str | None = None

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_port}/mint?tenant=canary-query"

    def fresh(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "url": f"{self.store}/{len(self.asked)}.tar?X-Amz-Signature=canary-secret",
            "headers": {"x-ms-blob-type": "BlockBlob"},
        }
        return answer | ({"expires": self.expires} if self.expires else {})

    def handle_error(self, *_: object) -> None:
        """Broken connections are what we are here for."""


class Handler(BaseHTTPRequestHandler):
    server: Minter
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(
            question | {"path": self.path, "authorization": self.headers["Authorization"]}
        )
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._answer(401, b"")
        said = self.server.plan.pop(0) if self.server.plan else self.server.fresh()
        if isinstance(said, int):
            return self._answer(said, b"")
        return self._answer(200, said if isinstance(said, bytes) else json.dumps(said).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def minting(certificate: Path, store: str) -> Iterator[Minter]:
    minter = Minter(certificate, store)
    with served(minter):
        yield minter
