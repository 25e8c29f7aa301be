"""Forwarding by HTTP: both forms, every kind of answer, TLS, a proxy, the payload limit."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive.dialect.sonar_rules import validate
from tests.forward.http_server import Endpoint, Tunnel
from tests.forward.place import Place, seqs_of
from tests.making.forwarded import make_day
from tests.real.certificates import Authority, make_authority
from tests.real.wait import wait_until
from vmsonar.host.clock import Backoff

SAMPLES = 60


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_day(tmp_path_factory.mktemp("http") / "archive", SAMPLES)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def secure(authority: Authority) -> Iterator[Endpoint]:
    endpoint = Endpoint(authority.issue("server"))
    yield endpoint
    endpoint.close()


def place_of(folder: Path, archive: Path, endpoint: Endpoint, **settings: object) -> Place:
    return Place(folder, {"to": "http", "cluster": "c.example", "url": endpoint.url, **settings}, archive)


def sent_samples(endpoint: Endpoint) -> list[int]:
    return [int(r["headers"]["seq"]) for r in endpoint.records if r["topic"] == "c.example.sample"]


def test_json_with_a_bearer_token(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path, archive, endpoint, auth="bearer")
    place.configure({**place.forward, "token_file": place.secret("token", "t0ken")})
    assert place.once().returncode == 0
    assert sent_samples(endpoint) == seqs_of(archive)
    first = endpoint.records[0]
    assert (first["topic"], first["key"]) == ("c.example.sysinfo", "vm.example")
    assert set(first["headers"]) == {"archive", "run", "boot", "seq", "head"}
    for record in endpoint.records:
        validate(json.dumps(record["value"]))
    headers, _ = endpoint.requests[0]
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer t0ken", "application/json")


def test_time_that_runs_out_before_the_first_record_is_no_success(
    endpoint: Endpoint, archive: Path, tmp_path: Path
) -> None:
    place = place_of(tmp_path, archive, endpoint)
    done = place.once(timeout="0.001ms")
    assert done.returncode == 1
    assert f"{SAMPLES} records are not acknowledged" in done.stderr
    assert endpoint.records == []
    assert place.once().returncode == 0
    assert sent_samples(endpoint) == seqs_of(archive)


def test_the_form_of_sonars_proxy(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path, archive, endpoint, to="kafka_proxy", auth="plain")
    place.configure({**place.forward, "password_file": place.secret("password", "hush")})
    assert place.once().returncode == 0
    messages = endpoint.proxied
    assert messages[0][0] == {
        "topic": "c.example.sysinfo", "key": "vm.example", "client": "c.example/vm.example",
        "sasl-user": "c.example", "sasl-password": "hush", "data-size": len(messages[0][1]),
    }  # fmt: skip
    assert [validate(data)["node"] for _, data in messages] == ["vm.example"] * (SAMPLES + 1)
    headers, _ = endpoint.requests[0]
    assert headers["Content-Type"] == "application/octet-stream"
    assert "Transfer-Encoding" not in headers


def test_the_payload_limit_is_kept(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path, archive, endpoint, max_payload="4KiB")
    assert place.once().returncode == 0
    assert sent_samples(endpoint) == seqs_of(archive)
    assert max(len(body) for _, body in endpoint.requests) <= 4096 + 32
    assert len(endpoint.requests) > 10


def test_what_may_pass_is_tried_again(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    endpoint.answers = [503, (429, {"Retry-After": "1"}), 408, 200]
    place = place_of(tmp_path, archive, endpoint)
    done = place.once()
    assert done.returncode == 0, done.stderr
    assert sent_samples(endpoint) == seqs_of(archive)
    assert place.status["counts"]["retried"] == 3
    assert place.status["counts"]["sent"] == SAMPLES + 1


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_what_will_not_pass_stops(endpoint: Endpoint, archive: Path, tmp_path: Path, status: int) -> None:
    endpoint.answers = [(status, {"Location": "http://localhost/elsewhere"})]
    place = place_of(tmp_path, archive, endpoint)
    done = place.once()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"vmsonar: {endpoint.url} answers {status} ")
    assert len(endpoint.requests) == 1
    assert place.cursor["sample"].get("run", "") == ""
    with place.running() as process:
        assert process.wait(30) == 3


def test_too_large_for_the_server_is_halved_and_what_is_left_is_passed(
    endpoint: Endpoint, archive: Path, tmp_path: Path
) -> None:
    endpoint.answers = [lambda body: 413 if len(body) > 1500 else 200]
    place = place_of(tmp_path, archive, endpoint)
    assert place.once().returncode == 0
    assert list(dict.fromkeys(sent_samples(endpoint))) == seqs_of(archive)
    assert place.status["counts"]["undeliverable"] == 0
    endpoint.answers, endpoint.taken = [lambda body: 413 if len(body) > 900 else 200], []
    place.state.rename(tmp_path / "first")
    assert place.once().returncode == 0
    assert place.status["counts"]["undeliverable"] > 0
    assert place.status["lag_records"] == 0


def test_tls_by_a_proxy_with_basic_auth(
    secure: Endpoint, authority: Authority, archive: Path, tmp_path: Path
) -> None:
    tunnel = Tunnel()
    place = place_of(
        tmp_path, archive, secure, auth="basic", username="me", tls={"ca_file": str(authority.certificate)}
    )
    place.configure({**place.forward, "password_file": place.secret("password", "hush")})
    environment = {**os.environ, "HTTPS_PROXY": tunnel.url, "NO_PROXY": "", "no_proxy": ""}
    done = place.once(env=environment)
    tunnel.close()
    assert done.returncode == 0, done.stderr
    assert sent_samples(secure) == seqs_of(archive)
    assert secure.requests[0][0]["Authorization"] == f"Basic {base64.b64encode(b'me:hush').decode()}"
    assert len(tunnel.connected) == len(secure.requests)
    assert not [head for head in tunnel.connected if "Authorization" in head], "the proxy learns nothing"


def test_a_certificate_that_is_not_trusted(secure: Endpoint, archive: Path, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    place = place_of(tmp_path, archive, secure, tls={"ca_file": str(other.certificate)})
    done = place.once()
    assert done.returncode == 1
    assert done.stderr.startswith(f"vmsonar: the certificate of {secure.url} is not trusted (")
    assert done.stderr.count("\n") == 1


def test_a_server_that_is_away(archive: Path, tmp_path: Path) -> None:
    endpoint = Endpoint()
    endpoint.close()
    place = place_of(tmp_path, archive, endpoint, url=f"{endpoint.url}?token=CANARY")
    done = place.once(timeout="2s")
    assert done.returncode == 1
    said = f"vmsonar: {SAMPLES + 1} records are not acknowledged by http {endpoint.url}?… (cannot reach "
    assert done.stderr.startswith(said), done.stderr
    assert "CANARY" not in done.stderr + done.stdout
    with place.running() as process:
        wait_until(lambda: "trying again until it works" in place.log, 30, "a line about it")
        assert process.poll() is None
    assert place.log.count("\n") == 1
    assert "CANARY" not in place.log


def test_waits_grow_at_random_and_begin_again() -> None:
    bounds = []

    def draw(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    backoff = Backoff(1, 10, draw)
    assert [backoff.next() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next() == 1
    assert all(low == high / 4 for low, high in bounds)
    drawn = {Backoff().next() for _ in range(20)}
    assert len(drawn) > 10
