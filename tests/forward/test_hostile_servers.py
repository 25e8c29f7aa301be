"""Servers that keep forwarding waiting, or give back what they were told: in time, and without a secret anywhere."""

import base64
import os
import time
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import VmsonarError

from tests.forward.place import Place
from tests.making.forwarded import make_day
from tests.real import hostile_http
from tests.real.hostile_http import Behaviour, echoing, serving
from vmsonar.forward.http import Endpoint, HttpSender, JsonForm
from vmsonar.forward.messages import ForwardMessage

pytestmark = pytest.mark.slow

SECONDS = 0.4
TOKEN = "canary-t0ken-0123456789"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_day(tmp_path_factory.mktemp("hostile") / "archive", 5)


def place_of(folder: Path, archive: Path, port: int, **settings: object) -> Place:
    url = f"http://127.0.0.1:{port}/ingest?sig=canary-signature"
    return Place(folder, {"to": "http", "cluster": "c.example", "url": url, **settings}, archive)


@pytest.mark.parametrize("behave", hostile_http.WAITING)
def test_one_post_takes_no_longer_than_it_may(behave: Behaviour) -> None:
    with serving(behave) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/", None, None, 1000, SECONDS)
        sender = HttpSender(endpoint, JsonForm())
        sender.submit(ForwardMessage("t", "k", b"{}"), 1)
        begin = time.monotonic()
        assert sender.wait(0) == []
        assert time.monotonic() - begin < SECONDS * 5
        assert sender.trouble == f"cannot reach http://127.0.0.1:{port}/: no whole answer in time"


def test_all_of_it_takes_no_longer_than_it_may(archive: Path, tmp_path: Path) -> None:
    with serving(hostile_http.continues) as port:
        place = place_of(tmp_path, archive, port, timeout="10min")
        begin = time.monotonic()
        done = place.once(timeout="3s")
        assert time.monotonic() - begin < 60
    assert done.returncode == 1
    assert "no whole answer in time" in done.stderr


def everything_said(place: Place, *more: str) -> bytes:
    files = [
        path.read_bytes() for path in place.folder.rglob("*") if path.is_file() and path.parent == place.state
    ]
    log = (place.folder / "log").read_bytes() if (place.folder / "log").exists() else b""
    return b"\n".join([*files, log, *(text.encode() for text in more)])


@pytest.mark.parametrize(
    ("auth", "status"),
    [
        *(("bearer", status) for status in (b"200", b"302", b"401", b"413", b"503")),
        ("basic", b"401"),
        ("plain", b"400"),
    ],
)
def test_what_a_server_echoes_is_nowhere(status: bytes, auth: str, archive: Path, tmp_path: Path) -> None:
    with serving(echoing(status)) as port:
        to = "kafka_proxy" if auth == "plain" else "http"
        place = place_of(tmp_path, archive, port, auth=auth, to=to)
        key = "token_file" if auth == "bearer" else "password_file"
        place.configure({**place.forward, key: place.secret("secret", TOKEN)})
        done = place.once("--json", timeout="3s")
        shown = place.ask(), place.ask("--json")
    said = everything_said(place, done.stdout, done.stderr, *(one.stdout + one.stderr for one in shown))
    for secret in (
        TOKEN,
        "canary",
        TOKEN[8:],
        base64.b64encode(f"c.example:{TOKEN}".encode()).decode()[-20:],
    ):
        assert secret.encode() not in said
    for sign in (b"\x1b", b"\x07", b"\x9b", b"\\u001b", b"owned\\u0007"):
        assert sign not in said
    assert done.returncode == (0 if status == b"200" else 1)


@pytest.mark.parametrize("status", [b"403", b"407", b"502"])
def test_what_a_proxy_echoes_is_nowhere(status: bytes, archive: Path, tmp_path: Path) -> None:
    with serving(echoing(status)) as port:
        place = place_of(tmp_path, archive, port, auth="bearer")
        url = "https://far.example/ingest"
        place.configure({**place.forward, "url": url, "token_file": place.secret("secret", TOKEN)})
        proxy = {"HTTPS_PROXY": f"http://me:canary-password@127.0.0.1:{port}", "NO_PROXY": "", "no_proxy": ""}
        done = place.once(timeout="5s", env={**os.environ, **proxy})
    assert done.returncode == 1
    assert f"the proxy answers {status.decode()}" in done.stderr
    said = everything_said(place, done.stdout, done.stderr)
    assert b"canary" not in said
    assert b"\x1b" not in said


def test_a_broker_that_echoes(tmp_path: Path) -> None:
    """What librdkafka makes of a broker's words goes through the same mask."""
    pytest.importorskip("confluent_kafka")
    from vmsonar.forward.kafka import KafkaSender, Login

    class Error:
        def __init__(self, code: int) -> None:
            self._code = code

        def code(self) -> int:
            return self._code

        def str(self) -> str:
            return (
                f"SASL authentication error: \x1b[31m{TOKEN} is wrong, {base64.b64encode(TOKEN.encode())!r}"
            )

        def fatal(self) -> bool:
            return False

    from confluent_kafka import KafkaError

    for code in (
        KafkaError._AUTHENTICATION,
        KafkaError._TRANSPORT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._FAIL,
    ):
        sender = KafkaSender({"bootstrap.servers": "127.0.0.1:1"}, Login("b:1", "me"), (TOKEN,))
        sender._judge(1, Error(code), "topic")
        said = [sender.trouble or "", *(outcome.detail for outcome in sender._outcomes)]
        try:
            for _ in range(3):
                sender._on_error(Error(code))
            sender._check()
        except VmsonarError as error:
            said.append(str(error))
        assert any(said)
        assert "canary" not in "".join(said)
        assert "".join(said).isprintable()
