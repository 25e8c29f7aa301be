"""Uploads to a TLS server and to S3, with everything that can go wrong on the way."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from vmsonar_archive.bundle import worker
from vmsonar_archive.bundle.send import mint, upload
from vmsonar_archive.bundle.send.mint import Place, TryAgain
from vmsonar_archive.bundle.send.upload import stored_md5
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.web import check_url
from vmsonar_archive.verify.path import verify_path

from tests.archive.bundle.proxy import proxying
from tests.archive.bundle.relay import relaying
from tests.archive.bundle.tls_server import Store, running
from tests.parts import requires
from tests.real import hostile_http
from tests.real.certificates import Authority, make_authority
from tests.real.hostile_http import Behaviour, serving
from tests.real.s3 import S3Server

SECRET = "canary-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.issue("store")


@pytest.fixture
def store(certificate: Path) -> Iterator[Store]:
    with running(certificate) as server:
        yield server


@pytest.fixture
def send(archive: Path, authority: Authority, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Runs `vmsonar bundle -o URL`; no secret may be in anything it says or leaves behind."""

    def run(
        url: str, *more: str, environment: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", FAST, "bundle", "--archive", str(archive), "-o", url, *more]
        settings = {**os.environ, "SSL_CERT_FILE": str(authority.certificate), **(environment or {})}
        done = subprocess.run(
            command, env=settings, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert SECRET not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert list(tmp_path.iterdir()) == []
        return done

    return run


# The pauses between attempts are the same ones, a hundred times as fast.
FAST = (
    "import sys; from vmsonar_archive.bundle.send import upload; from vmsonar.cli import main; "
    "upload.PAUSES = tuple(pause / 100 for pause in upload.PAUSES); main()"
)


def test_presigned_put(store: Store, bundle: Path, send) -> None:  # type: ignore[no-untyped-def]
    done = send(store.url("x.tar"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"https://localhost:{store.server_port}/…"
    assert store.stored == {"/bucket/x.tar": bundle.read_bytes()}
    command, path, headers = store.requests[0]
    assert (command, path) == ("PUT", f"/bucket/x.tar?X-Amz-Signature={SECRET}")
    assert headers["If-None-Match"] == "*"
    assert len(store.requests) == 1


def test_url_from_a_file(store: Store, bundle: Path, send, tmp_path_factory: pytest.TempPathFactory) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path_factory.mktemp("url") / "url"
    file.write_text(store.url("x.tar") + "\n")
    assert send(f"@{file}").returncode == 0
    assert store.stored["/bucket/x.tar"] == bundle.read_bytes()
    file.write_text(store.url("y.tar") + "\n")
    assert send(f"@{file}", "--increment").returncode == 0
    assert "/bucket/y.tar" in store.stored


def test_signed_upload_is_as_long_as_announced(
    store: Store, send, tmp_path_factory: pytest.TempPathFactory
) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("signed")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    store.plan = ["503"]
    assert send(store.url("x.tar"), "--sign", str(folder / "key")).returncode == 0
    (folder / "x.tar").write_bytes(store.stored["/bucket/x.tar"])
    assert verify_path(folder / "x.tar").signed_by is not None


def test_500_twice_then_200(store: Store, bundle: Path, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = ["500", "500"]
    assert send(store.url("x.tar")).returncode == 0
    assert store.stored == {"/bucket/x.tar": bundle.read_bytes()}
    assert len(store.requests) == 3


def test_cut_connection_is_tried_again(store: Store, bundle: Path, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = ["cut"]
    assert send(store.url("x.tar")).returncode == 0
    assert store.stored == {"/bucket/x.tar": bundle.read_bytes()}


def test_always_cut_says_how_to_repeat(store: Store, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = ["cut"] * 9
    done = send(store.url("x.tar"))
    assert done.returncode == 3
    assert "run the same command again" in done.stderr
    assert store.stored == {}
    store.plan = []
    assert send(store.url("x.tar")).returncode == 0


def test_truncated_object_is_noticed(store: Store, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = ["truncate"]
    done = send(store.url("x.tar"))
    assert done.returncode == 3
    assert "something else than was sent" in done.stderr


def test_silent_server_is_not_taken_for_confirmed(store: Store, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = ["silent"]
    done = send(store.url("x.tar"), "--json")
    assert done.returncode == 0
    assert '"confirmed": false' in done.stdout
    assert '"code": "unconfirmed"' in done.stdout


@pytest.mark.parametrize(
    ("answer", "word"), [("302", "redirects are not followed"), ("403", "refuses the bundle")]
)
def test_redirects_and_refusals(answer: str, word: str, store: Store, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = [answer]
    done = send(store.url("x.tar"))
    assert done.returncode == 3
    assert word in done.stderr
    assert len(store.requests) == 1


def test_nothing_is_overwritten(store: Store, send) -> None:  # type: ignore[no-untyped-def]
    store.stored["/bucket/x.tar"] = b"precious"
    done = send(store.url("x.tar"))
    assert done.returncode == 3
    assert "not overwritten" in done.stderr
    assert store.stored["/bucket/x.tar"] == b"precious"


def test_lost_acknowledgement_is_found(store: Store, bundle: Path, send) -> None:  # type: ignore[no-untyped-def]
    store.plan = ["lose"]
    store.may_look = True
    done = send(store.url("x.tar"), "--json")
    assert done.returncode == 0, done.stderr
    assert '"confirmed": true' in done.stdout
    assert store.stored == {"/bucket/x.tar": bundle.read_bytes()}
    store.stored["/bucket/x.tar"] = b"precious"
    done = send(store.url("x.tar"))
    assert done.returncode == 3
    assert store.stored["/bucket/x.tar"] == b"precious"


def test_through_a_proxy(store: Store, bundle: Path, send) -> None:  # type: ignore[no-untyped-def]
    with proxying() as proxy:
        through = {"https_proxy": f"http://vm:{SECRET}@127.0.0.1:{proxy.port}", "no_proxy": ""}
        done = send(store.url("x.tar"), environment=through)
        assert (done.returncode, done.stderr) == (0, "")
        assert store.stored == {"/bucket/x.tar": bundle.read_bytes()}
        assert all(one.startswith(f"CONNECT localhost:{store.server_port} HTTP/") for one in proxy.asked)
        # The proxy sees where we go and its own password, and nothing of the URL.
        assert all("canary" not in one for one in proxy.asked)
        assert all("Proxy-Authorization: Basic dm06Y2FuYXJ5LXNlY3JldA==" in one for one in proxy.asked)
        seen = len(proxy.asked)
        assert send(store.url("y.tar"), environment=through | {"no_proxy": "localhost"}).returncode == 0
        assert len(proxy.asked) == seen
        proxy.refuses = True
        done = send(store.url("z.tar"), environment=through)
        assert done.returncode == 3
        assert "403" in done.stderr
    assert "/bucket/z.tar" not in store.stored


@pytest.mark.parametrize("behave", hostile_http.WAITING)
def test_a_server_that_keeps_us_waiting(
    behave: Behaviour, certificate: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both who takes bundles and who gives URLs; a small bundle has no more than its time."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    for module, name in ((upload, "_SECONDS"), (upload, "_ANSWER_SECONDS"), (mint, "_SECONDS")):
        monkeypatch.setattr(module, name, 0.3)
    with serving(behave, certificate) as port:
        url = f"https://localhost:{port}/bucket/x.tar?X-Amz-Signature={SECRET}"
        begin = time.monotonic()
        sending = upload.Upload(lambda: Place(url=url), 3, lambda sink: sink(b"abc"))
        with pytest.raises(VmsonarError, match="no whole answer in time") as caught:
            sending.put(pauses=(0.0,))
        with pytest.raises(TryAgain, match="no whole answer in time"):
            mint.ask(mint.Mint(url=url, archive="a", node="n"), "x", 3)
        assert upload.ask_stored(check_url(url))[1] is None
        assert time.monotonic() - begin < 5 * 4 * 0.3
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("status", [b"200", b"302", b"400", b"403", b"503"])
def test_what_a_server_echoes_is_nowhere(
    status: bytes, certificate: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    with serving(hostile_http.echoing(status), certificate) as port:
        url = f"https://localhost:{port}/x?X-Amz-Signature={SECRET}"
        sending = upload.Upload(lambda: Place(url=url), 0, lambda sink: None)
        said = []
        for attempt in (
            lambda: sending.put(pauses=()),
            lambda: mint.ask(mint.Mint(url=url, token=SECRET, archive="a", node="n"), "x", 3),
        ):
            try:
                said.append(repr(attempt()))
            except (VmsonarError, TryAgain) as error:
                said.append(str(error))
    assert SECRET not in "".join(said)
    assert "".join(said).isprintable()


def test_unknown_authority_is_refused(store: Store, send) -> None:  # type: ignore[no-untyped-def]
    done = send(store.url("x.tar"), environment={"SSL_CERT_FILE": "/dev/null"})
    assert done.returncode == 3
    assert "certificate is not trusted" in done.stderr
    assert store.requests == []


@pytest.mark.parametrize(
    "url", ["http://localhost/x?canary", "https://user:canary@localhost/x", "https:///x", "https://a b/"]
)
def test_bad_urls_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_url(url)
    assert "canary" not in str(caught.value)


@pytest.fixture
def bucket(s3_server: S3Server, request: pytest.FixtureRequest) -> str:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[-40:].strip("-")
    s3_server.client().create_bucket(Bucket=name)
    return name


@requires("moto")
def test_s3(s3_server: S3Server, bucket: str, send, request: pytest.FixtureRequest) -> None:  # type: ignore[no-untyped-def]
    made: Path = request.getfixturevalue("bundle")
    environment = s3_server.environment()
    done = send(f"s3://{bucket}/backups/", environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"s3://{bucket}/backups/{made.name}"
    upload = s3_server.client().get_object(Bucket=bucket, Key=f"backups/{made.name}")["Body"].read()
    assert upload == made.read_bytes()


@requires("moto")
def test_s3_what_is_there_already(s3_server: S3Server, bucket: str, send, bundle: Path) -> None:  # type: ignore[no-untyped-def]
    """Ours is as good as acknowledged; anything else stays as it is, and the bundle goes beside it."""
    environment, client = s3_server.environment(), s3_server.client()
    client.put_object(Bucket=bucket, Key=f"backups/{bundle.name}", Body=bundle.read_bytes()[:1000])
    beside = f"backups/{bundle.stem}-2.tar"
    for _ in range(2):
        done = send(f"s3://{bucket}/backups/", "--json", environment=environment)
        assert done.returncode == 0
        assert f'"output": "s3://{bucket}/{beside}"' in done.stdout
        assert '"confirmed": true' in done.stdout
    assert objects(s3_server, bucket) == {
        f"backups/{bundle.name}": bundle.read_bytes()[:1000],
        beside: bundle.read_bytes(),
    }
    client.put_object(Bucket=bucket, Key="mine.tar", Body=b"precious")
    done = send(f"s3://{bucket}/mine.tar", environment=environment)
    assert done.returncode == 3
    assert "exists and is something else: nothing is overwritten" in done.stderr
    assert objects(s3_server, bucket)["mine.tar"] == b"precious"


def objects(server: S3Server, bucket: str) -> dict[str, bytes]:
    client = server.client()
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


@requires("moto")
def test_s3_truncated_object_is_noticed(s3_server: S3Server, bucket: str, send) -> None:  # type: ignore[no-untyped-def]
    with relaying(s3_server.endpoint) as relay:
        relay.plan = ["truncate"]
        done = send(
            f"s3://{bucket}/x.tar", environment=s3_server.environment() | {"AWS_ENDPOINT_URL": relay.url}
        )
    assert relay.plan == []
    assert done.returncode == 3
    assert "is not what was sent" in done.stderr


@requires("moto")
def test_s3_lost_acknowledgement_is_found(s3_server: S3Server, bucket: str, send, bundle: Path) -> None:  # type: ignore[no-untyped-def]
    """The service has stored it, and nobody hears of that: neither the first time nor when asked to finish again."""
    with relaying(s3_server.endpoint) as relay:
        relay.plan = ["lose"] * 9
        environment = s3_server.environment() | {"AWS_ENDPOINT_URL": relay.url}
        done = send(f"s3://{bucket}/x.tar", "--json", environment=environment)
    assert len(relay.plan) < 9
    assert done.returncode == 0, done.stderr
    assert '"confirmed": true' in done.stdout
    assert objects(s3_server, bucket) == {"x.tar": bundle.read_bytes()}


@requires("moto")
def test_s3_presigned_put(s3_server: S3Server, bucket: str, bundle: Path) -> None:
    """The URL that boto signs is taken as it is; moto speaks HTTP, so the request is made by hand."""
    url = s3_server.client().generate_presigned_url("put_object", {"Bucket": bucket, "Key": "x.tar"})
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("PUT", f"{parts.path}?{parts.query}", bundle.read_bytes(), {"If-None-Match": "*"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200
    import hashlib

    assert stored_md5(answer.headers) == hashlib.md5(bundle.read_bytes()).hexdigest()
    connection.close()


FAILING = """
import sys
from vmsonar_archive.bundle import worker
from vmsonar_archive.bundle.send import s3
def write(sink):
    for number in range(15):
        sink(bytes(2**20))
    raise OSError(5, "the disk went away")
worker._follow_orders = lambda parent: s3.put(sys.argv[1], "x", write)
worker.main(int(sys.argv[2]))
"""


@requires("moto")
def test_failed_s3_upload_publishes_nothing(s3_server: S3Server, bucket: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run(
            [sys.executable, "-c", FAILING, f"s3://{bucket}/x.tar", str(theirs.fileno())],
            env={**os.environ, **s3_server.environment()},
            pass_fds=[theirs.fileno()],
            timeout=60,
            check=True,
        )
        answer = next(worker.receive(ours, worker.WorkerMessage))
        assert "the disk went away; nothing is stored" in (answer.error or "")
    assert s3_server.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


HURRIED = """
import os, sys
from vmsonar_archive.bundle.send import s3
s3.load()
s3._SECONDS = 1.0
try:
    print(s3.put(sys.argv[1], "x", lambda sink: sink(b"abc")))
except BaseException as error:
    print(error)
sys.stdout.flush()
os._exit(0)
"""


def s3_says(behave: Behaviour) -> str:
    with serving(behave) as port:
        known = {
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": f"token-{SECRET}",
        }
        environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1", **known}
        done = subprocess.run(
            [sys.executable, "-c", HURRIED, "s3://bucket/x.tar"],
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout.strip().isprintable()
    return done.stdout


@pytest.mark.parametrize("behave", [hostile_http.silent, hostile_http.continues, hostile_http.slow_headers])
def test_s3_that_keeps_us_waiting(behave: Behaviour) -> None:
    begin = time.monotonic()
    assert "s3://bucket/x.tar: not done in time" in s3_says(behave)
    assert time.monotonic() - begin < 5 * 5


def test_s3_that_echoes() -> None:
    assert "cannot send the bundle to s3://bucket/x.tar: " in s3_says(hostile_http.echoing(b"403"))


@requires("moto")
def test_s3_without_credentials(s3_server: S3Server, send) -> None:  # type: ignore[no-untyped-def]
    done = send("s3://no-such-bucket-here/x.tar", environment=s3_server.environment())
    assert done.returncode == 3
    assert "cannot send the bundle to s3://no-such-bucket-here/x.tar" in done.stderr
