"""The docker SDK's client under bounds: one deadline per question, and no more of an answer than its limit.

The SDK times each read on its own and holds answers whole. Here the socket keeps the deadline, status line and
headers included; bodies are read up to a limit and returned undecoded; the event stream is read line by line.
"""

import socket
from collections.abc import Iterator
from typing import Any

from docker.api.client import APIClient
from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool
from vmsonar_archive.system.text import masked
from vmsonar_archive.system.web import Deadline, open_socket

from vmsonar.companion.failures import EngineError, NotThere, TooLarge, failure_of

_CHUNK = 64 * 1024
# A line that is too long is skipped if its end comes within this many times the limit.
_PATIENCE = 16


class BoundedClient(APIClient):  # type: ignore[misc]
    """Methods of the SDK that return JSON return its bytes; `events` yields lines, None for one that is too long."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(base_url=f"unix://{path}", version=DEFAULT_DOCKER_API_VERSION, timeout=seconds)
        self._path = path
        self._adapter = _TimedAdapter(path, seconds)
        self._most = 0
        self.mount("http+docker://", self._adapter)
        self.stream = True  # or requests reads each body to its end
        self.trust_env = False  # a local socket needs no proxy and no .netrc
        self.headers.update({"Accept-Encoding": "identity", "Connection": "close"})

    def bound(self, seconds: float, most: int) -> None:
        """Bounds the next question: the time for all of it, and the bytes of its answer or of each of its lines."""
        self._adapter.seconds, self._most = seconds, most

    def speak(self, version: str) -> None:
        """Chooses the version of the API; the SDK's `version="auto"` would ask before there are bounds."""
        self._version = version

    def get_redirect_target(self, resp: object) -> None:
        """Redirects are not followed."""

    def _result(self, response: Any, json: bool = False, binary: bool = False) -> bytes:
        status, asked = response.status_code, response.request.path_url
        with response:
            body: bytes = response.raw.read(self._most + 1)
        if status != 200:
            said = f"{self._path} answers {status} to {asked}: {masked(body)}"
            raise NotThere(said) if status == 404 else EngineError(said)
        if len(body) > self._most:
            raise TooLarge(f"{self._path} answers with more than {self._most} bytes to {asked}")
        return body

    def _stream_helper(self, response: Any, decode: bool = False) -> Iterator[bytes | None]:
        if response.status_code != 200:
            self._result(response)
        try:
            with response:
                yield from _lines(response.raw, self._most)
        except Exception as error:
            # The SDK takes some errors for the end of the stream: what was missed would never be asked for again.
            raise failure_of(self._path, error) from None


class _TimedAdapter(UnixHTTPAdapter):  # type: ignore[misc]
    """Opens a connection for each question, with a deadline for everything up to the last byte."""

    seconds: float

    def get_connection(self, url: str, proxies: object = None) -> "_TimedPool":
        pool = _TimedPool(url, self.socket_path, self.timeout)
        pool.deadline = Deadline(self.seconds)
        return pool


class _TimedPool(UnixHTTPConnectionPool):  # type: ignore[misc]
    deadline: Deadline

    def _new_conn(self) -> "_TimedConnection":
        connection = _TimedConnection(self.base_url, self.socket_path, self.timeout)
        connection.deadline = self.deadline
        return connection


class _TimedConnection(UnixHTTPConnection):  # type: ignore[misc]
    deadline: Deadline

    def connect(self) -> None:
        self.sock = open_socket(socket.AF_UNIX, self.unix_socket, self.deadline)


def _lines(raw: Any, longest: int) -> Iterator[bytes | None]:
    rest, size = bytearray(), 0
    while chunk := raw.read1(_CHUNK):
        *ends, last = chunk.split(b"\n")
        for end in ends:
            yield bytes(rest + end) if size + len(end) <= longest else None
            rest, size = bytearray(), 0
        size += len(last)
        if size <= longest:
            rest += last
        elif size > _PATIENCE * longest:
            raise ValueError(f"a line of the answer is longer than {_PATIENCE * longest} bytes")
