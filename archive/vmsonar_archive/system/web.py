"""One question by HTTP to somebody who may be slow, endless or hostile: a time for all of it, a bound on the answer.

Certificates are checked, HTTPS_PROXY, HTTP_PROXY and NO_PROXY obeyed, redirects never followed (RFC 9110).
"""

import base64
import encodings.idna  # noqa: F401 - looked for by every connection, perhaps when it cannot be read any more
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from vmsonar_archive.system.errors import UsageError
from vmsonar_archive.system.text import where_it_leads

#: More of an answer is not read, unless the request says so.
MOST = 64 * 1024
_PROXY_PORT = 3128
# A body that is streamed gets the time that a line of this many bytes a second needs, on top.
_SLOWEST = 32 * 1024
# How long a server that broke off may take to say why.
_LAST_WORDS_SECONDS = 2.0


class Deadline:
    """When an operation has to be over, however many reads and writes it takes."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("not done in time")
        return left

    def shorten(self, seconds: float) -> None:
        self._end = min(self._end, time.monotonic() + seconds)


class TimedSocket(socket.socket):
    """Gives each read and write only the time that is left for all of them."""

    deadline: Deadline

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(self.deadline.left())
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self.deadline.left())
        super().sendall(data, flags)


class _TimedTls(ssl.SSLSocket):
    """The same over TLS; OpenSSL's reads, writes and handshakes end with the timeout as a whole."""

    deadline: Deadline

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(self.deadline.left())
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        self.settimeout(self.deadline.left())
        return super().send(data, flags)


class ProxyRefused(OSError):
    """The proxy does not let us through."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the proxy answers {status} {phrase(status)}".rstrip())
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked; a body that is not at hand is written by `stream`, `size` bytes of it."""

    method: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stream: Callable[[Callable[[bytes], None]], object] | None = None
    size: int = 0
    most: int = MOST


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said, and at most as much of the body as was asked for."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


def check_url(url: str) -> SplitResult:
    """Parses a plain HTTPS URL; refuses anything else."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise UsageError("the URL cannot be understood") from None
    if parts.scheme != "https":
        raise UsageError("a bundle is sent by https:// or s3:// only")
    if not valid or parts.username or parts.password or re.search(r"[^\x21-\x7e]", url):
        raise UsageError(
            f"{where_it_leads(url)} is not a URL to send a bundle to: no user, no password, no spaces"
        )
    return parts


def ask(
    url: SplitResult,
    request: Request,
    seconds: float,
    context: ssl.SSLContext | None = None,
    proxies: bool = True,
) -> Answer:
    """The answer, whatever its status; raises OSError where there is none in time, or it is not HTTP."""
    deadline = Deadline(seconds + request.size / _SLOWEST)
    way = _way(url) if proxies else None
    secure = (context or ssl.create_default_context()) if url.scheme == "https" else None
    with _one_kind_of_error(), closing(_Connection(url, way, deadline, secure)) as connection:
        try:
            _send(connection, url, request, way)
        except OSError:
            # A server that breaks off has perhaps said why before.
            deadline.shorten(_LAST_WORDS_SECONDS)
            if (early := _early_answer(connection)) is None:
                raise
            return early
        deadline.shorten(seconds)
        with connection.getresponse() as answer:
            body = answer.read(request.most)
            if answer.length and len(body) < request.most:
                raise ConnectionError("the connection ended before the end of an answer")
            return Answer(answer.status, answer.headers, body)


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    """Makes OSErrors of all that http.client raises, without its text: that may be the URL, or the server's words."""
    try:
        yield
    except (http.client.RemoteDisconnected, http.client.IncompleteRead):
        raise ConnectionError("the connection ended before the end of an answer") from None
    except OSError:
        raise  # also errors of certificates, which are ValueErrors too
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"the answer is not HTTP ({type(error).__name__})") from None


def may_pass(status: int) -> bool:
    """Whether the same question may be answered otherwise after some time."""
    return status in (408, 425, 429) or status >= 500


def phrase(status: int) -> str:
    """The standard's words for a status; never the server's own."""
    with suppress(ValueError):
        return HTTPStatus(status).phrase
    return ""


def reason_of(error: OSError) -> str:
    """Why there is no answer, in words that nobody else chose."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no whole answer in time"
    return error.strerror or str(error).splitlines()[0][:100] or type(error).__name__


class _Connection(http.client.HTTPConnection):
    """http.client's, over a socket that keeps the deadline; through a proxy's tunnel where there is one."""

    def __init__(
        self, url: SplitResult, way: SplitResult | None, deadline: Deadline, context: ssl.SSLContext | None
    ) -> None:
        # Before anything else: the header Host, which may be signed, names no port that is the usual one.
        self.default_port = 443 if context else 80
        super().__init__(url.hostname or "", url.port or self.default_port)
        self._way = way
        self._deadline = deadline
        self._context = context

    def connect(self) -> None:
        way, deadline = self._way, self._deadline
        there = (way.hostname or "", way.port or _PROXY_PORT) if way else (self.host, self.port)
        self.sock = _connected(*there, deadline)
        if self._context is None:
            return
        if way:
            self._tunnel_through(way)
        self.sock.settimeout(deadline.left())
        self._context.sslsocket_class = _TimedTls
        tls = self._context.wrap_socket(self.sock, server_hostname=self.host)
        assert isinstance(tls, _TimedTls)
        tls.deadline = deadline
        self.sock = tls

    def _tunnel_through(self, way: SplitResult) -> None:
        there = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        lines = [f"CONNECT {there} HTTP/1.1", f"Host: {there}"]
        lines += [f"{name}: {value}" for name, value in _proxy_headers(way).items()]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
        with closing(http.client.HTTPResponse(self.sock, method="CONNECT")) as answer:
            answer.begin()
            if answer.status != HTTPStatus.OK:
                raise ProxyRefused(answer.status)


def _connected(host: str, port: int, deadline: Deadline) -> TimedSocket:
    """Tries each address in turn."""
    failure: OSError = OSError("the name has no address")
    for family, _, _, _, address in _resolved(host, port, deadline):
        try:
            timed = open_socket(family, address, deadline)
        except OSError as error:
            failure = error
        else:
            timed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return timed
    raise failure


def open_socket(family: int, address: Any, deadline: Deadline) -> TimedSocket:
    """A connected socket whose reads and writes end with the deadline."""
    timed = TimedSocket(family, socket.SOCK_STREAM)
    try:
        timed.deadline = deadline
        timed.settimeout(deadline.left())
        timed.connect(address)
    except OSError:
        timed.close()
        raise
    return timed


def _resolved(host: str, port: int, deadline: Deadline) -> list[Any]:
    """The addresses of a name; by a thread that is left behind where the resolver hangs, which has no time limit."""
    found: list[list[Any] | OSError] = []

    def look() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:
            found.append(OSError("the name of the host is none"))
        except OSError as error:
            found.append(error)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(deadline.left())
    if not found:
        raise TimeoutError("the name of the host was not resolved in time")
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]


def _send(connection: _Connection, url: SplitResult, request: Request, way: SplitResult | None) -> None:
    path = url.path or "/"
    target = f"{path}?{url.query}" if url.query else path
    through = {}
    if way and url.scheme == "http":
        target, through = f"http://{url.netloc}{target}", _proxy_headers(way)
    connection.putrequest(
        request.method, target, skip_host="Host" in request.headers, skip_accept_encoding=True
    )
    if request.body is not None or request.stream is not None:
        size = request.size if request.body is None else len(request.body)
        connection.putheader("Content-Length", str(size))
    for name, value in {"Connection": "close", **through, **request.headers}.items():
        connection.putheader(name, value)
    connection.endheaders(request.body)
    if request.stream is not None:
        request.stream(connection.send)


def _early_answer(connection: _Connection) -> Answer | None:
    with suppress(OSError, http.client.HTTPException, ValueError):
        if connection.sock is not None:
            with connection.getresponse() as answer:
                return Answer(answer.status, answer.headers, b"")
    return None


def _way(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for this URL."""
    proxy = getproxies().get(url.scheme)
    if not proxy or proxy_bypass(url.netloc):
        return None
    return urlsplit(proxy if "//" in proxy else f"//{proxy}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    known = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(known.encode()).decode()}"}
