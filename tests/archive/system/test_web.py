"""The HTTP client against servers that keep it waiting: its time holds for all of a question, its memory too."""

import ssl
import time
import tracemalloc
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from vmsonar_archive.system import web
from vmsonar_archive.system.web import Request

from tests.real import hostile_http
from tests.real.certificates import Authority, make_authority
from tests.real.hostile_http import Behaviour, saying, serving
from tests.real.wait import let_pass

SECONDS = 0.5
SLACK = 5


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


def fails_in_time(url: str, request: Request, context: ssl.SSLContext | None = None) -> OSError:
    begin = time.monotonic()
    with pytest.raises(OSError, match=r".") as caught:
        web.ask(urlsplit(url), request, SECONDS, context)
    assert time.monotonic() - begin < SECONDS * SLACK
    assert "\n" not in web.reason_of(caught.value)
    return caught.value


@pytest.mark.parametrize("behave", hostile_http.WAITING)
@pytest.mark.parametrize("secure", [False, True])
def test_the_time_is_for_all_of_it(behave: Behaviour, secure: bool, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate)) if secure else None
    with serving(behave, authority.issue("server") if secure else None) as port:
        error = fails_in_time(
            f"http{'s' if secure else ''}://localhost:{port}/", Request("POST", {}, b"x"), context
        )
    assert isinstance(error, TimeoutError)
    assert web.reason_of(error) == "no whole answer in time"


def test_a_handshake_that_never_ends(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(hostile_http.never_reads) as port:
        assert isinstance(fails_in_time(f"https://localhost:{port}/", Request("GET"), context), TimeoutError)


@pytest.mark.parametrize("behave", hostile_http.WAITING)
def test_a_proxy_that_never_ends(behave: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(behave) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        fails_in_time("https://example.org/", Request("GET"))


def test_a_server_that_takes_nothing_in() -> None:
    with serving(hostile_http.never_reads) as port:
        url = f"http://localhost:{port}/"
        fails_in_time(url, Request("PUT", {}, bytes(32 * 2**20)))


def test_a_stream_gets_time_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_SLOWEST", 2**20)

    def write(sink) -> None:  # type: ignore[no-untyped-def]
        for _ in range(10):
            sink(bytes(2**16))
            time.sleep(0.1)

    with serving(hostile_http.slow_body) as port:
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            web.ask(urlsplit(f"http://localhost:{port}/"), Request("PUT", stream=write, size=2**20), SECONDS)
    assert 1.0 <= time.monotonic() - begin < (1.0 + SECONDS) * SLACK


def test_a_resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.socket, "getaddrinfo", lambda *_, **__: let_pass(SECONDS * SLACK * 2))
    assert isinstance(fails_in_time("http://far.example/", Request("GET")), TimeoutError)


@pytest.mark.parametrize(
    "said",
    [
        b"", b"\0" * 5000, b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 999999999999 \r\n\r\n", b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"HTTP/1.1 " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"<html>canary</html>",
    ],
)  # fmt: skip
def test_what_is_not_http(said: bytes) -> None:
    def say(connection) -> None:  # type: ignore[no-untyped-def]
        hostile_http._hear(connection)
        connection.sendall(said)

    with serving(say) as port:
        error = fails_in_time(f"http://localhost:{port}/", Request("GET"))
    assert "canary" not in web.reason_of(error)


@pytest.mark.parametrize("behave", [hostile_http.endless_body, hostile_http.endless_headers])
def test_an_endless_answer_takes_no_memory(behave: Behaviour) -> None:
    tracemalloc.start()
    try:
        with serving(behave) as port:
            url = urlsplit(f"http://localhost:{port}/")
            if behave is hostile_http.endless_body:
                assert len(web.ask(url, Request("GET", most=1000), 10).body) == 1000
            else:
                fails_in_time(url.geturl(), Request("GET"))
        assert tracemalloc.get_traced_memory()[1] < 30 * 2**20
    finally:
        tracemalloc.stop()


def test_an_answer_that_comes_before_all_is_sent() -> None:
    def refuse(connection) -> None:  # type: ignore[no-untyped-def]
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        connection.recv(1000)

    with serving(refuse) as port:
        answer = web.ask(
            urlsplit(f"http://127.0.0.1:{port}/"), Request("POST", {}, bytes(2**20)), 10, proxies=False
        )
    assert answer.status == 413


def test_the_usual_port_is_not_named(tmp_path: Path) -> None:
    """The header Host is part of what a signed URL signs."""
    url = urlsplit("https://bucket.example/x")
    connection = web._Connection(url, None, web.Deadline(1), ssl.create_default_context())
    connection.putrequest("PUT", "/x")
    assert b"Host: bucket.example" in connection._buffer  # type: ignore[attr-defined]


def test_redirects_are_answers() -> None:
    with serving(saying(b"moved", b"302 Found")) as port:
        assert web.ask(urlsplit(f"http://127.0.0.1:{port}/"), Request("GET"), 10).status == 302
