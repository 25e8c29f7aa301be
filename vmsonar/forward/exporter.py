"""A small HTTP server for scrapes: GET /metrics over TCP or a UNIX socket, TLS, basic authentication (RFC 9110).

Whoever connects has ten seconds in all, 16 KiB to say it in, and is one of at most 16.
"""

import base64
import hashlib
import hmac
import io
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from vmsonar_archive.dialect.exposition import CLASSIC_TYPE, OPENMETRICS_TYPE
from vmsonar_archive.system.errors import UsageError

#: What a connection may take, from the first byte to the last.
SECONDS = 10.0
_MOST_BYTES = 16 * 1024
_MOST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Door:
    """Who is let in."""

    context: ssl.SSLContext | None = None
    #: Name and password, with a colon between.
    credentials: str | None = None

    def lets_in(self, authorization: str | None) -> bool:
        """Whether a request's header has the password; takes as long whether it does or not."""
        if self.credentials is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        try:
            said = base64.b64decode(given.strip(), validate=True) if scheme.lower() == "basic" else b""
        except ValueError:
            said = b""
        known = hashlib.sha256(self.credentials.encode()).digest()
        return hmac.compare_digest(hashlib.sha256(said).digest(), known)


class Exporter(ThreadingMixIn, TCPServer):
    """Answers each connection on a thread of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, text: Callable[[bool], bytes], door: Door) -> None:
        """`text` gives the metrics as OpenMetrics, or in the classic format; empty while there is nothing."""
        self.text = text
        self.door = door
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(listener.getsockname(), Scrape, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off or speaks no TLS is its own affair."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Limited(io.RawIOBase):
    """What a client says, until its time or its bytes are up."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection = connection
        self._end = end
        self._left = _MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0 or self._left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class Scrape(BaseHTTPRequestHandler):
    """One request, after which the connection ends."""

    server: Exporter
    timeout = SECONDS

    def setup(self) -> None:
        end = time.monotonic() + SECONDS
        self.request.settimeout(SECONDS)
        if self.server.door.context is not None:
            # Here, not where connections are accepted: nobody can hold up the others.
            self.request = self.server.door.context.wrap_socket(self.request, server_side=True)
        super().setup()
        self.rfile = io.BufferedReader(_Limited(self.connection, end))

    def finish(self) -> None:
        super().finish()
        if isinstance(self.request, ssl.SSLSocket):
            self.request.close()

    def do_GET(self) -> None:
        status, kind, body = self._found()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="vmsonar"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _found(self) -> tuple[HTTPStatus, str, bytes]:
        if not self.server.door.lets_in(self.headers.get("Authorization")):
            return HTTPStatus.UNAUTHORIZED, CLASSIC_TYPE, b"a name and a password are asked for\n"
        path = self.path.partition("?")[0]
        if path == "/":
            return HTTPStatus.OK, CLASSIC_TYPE, b"vmsonar: /metrics has what Prometheus scrapes\n"
        if path != "/metrics":
            return HTTPStatus.NOT_FOUND, CLASSIC_TYPE, b"there is only /metrics\n"
        is_open = "application/openmetrics-text" in self.headers.get("Accept", "")
        if body := self.server.text(is_open):
            return HTTPStatus.OK, OPENMETRICS_TYPE if is_open else CLASSIC_TYPE, body
        return HTTPStatus.SERVICE_UNAVAILABLE, CLASSIC_TYPE, b"no sample was recorded yet\n"

    def version_string(self) -> str:
        return "vmsonar"

    def log_message(self, *_: Any) -> None:
        """Says nothing: a scrape every few seconds is no news."""


def server_context(certificate: str, key: str | None, client_authorities: str | None) -> ssl.SSLContext:
    """TLS 1.2 and newer with this certificate; with authorities, clients have to show one of theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        if client_authorities is not None:
            context.load_verify_locations(client_authorities)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        said = error.strerror or error
        raise UsageError(
            f"metrics.tls: cannot use {certificate}, its key or client_ca_file: {said}"
        ) from None
    return context
