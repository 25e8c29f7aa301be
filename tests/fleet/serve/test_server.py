"""The command itself: it starts, answers over TCP, TLS and a Unix socket, stops in order, and says what is wrong."""

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import httpx
import msgspec
import pytest
from vmsonar_archive.write.lock import WriterLock

from tests.fleet.place import Machines, Vm, assert_same
from tests.fleet.serve.place import site_of
from tests.parts import requires
from tests.real.certificates import make_authority
from tests.real.s3 import S3Server
from tests.real.stranger import STRANGER, environment, vmsonar
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.serve.access import new_token
from vmsonar.fleet.store import Fleet, open_fleet

Start = Callable[..., tuple["subprocess.Popen[str]", str]]
pytestmark = pytest.mark.slow


@pytest.fixture
def filled(fleet: Fleet, vm: Vm) -> Fleet:
    vm.record(60)
    assert Intake(fleet).take(vm.bundle("a.tar"), "test").accepted
    return fleet


@pytest.fixture
def start(filled: Fleet) -> Iterator[Start]:
    """Starts a server; the process, and its address."""
    running = []

    def begin(*more: str) -> tuple["subprocess.Popen[str]", str]:
        command = [sys.executable, "-m", "vmsonar", "serve", "--fleet", str(filled.root), *more]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        running.append(process)
        line = process.stderr.readline()  # type: ignore[union-attr]
        assert " serving " in line, line
        return process, line.split()[-1].rstrip("/")

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def until_there(client: httpx.Client, path: str = "/api/v1/jobs") -> httpx.Response:
    pause = threading.Event()
    for _ in range(300):
        answer = client.get(path)
        if answer.status_code == 200 and answer.json()["rows"]:
            return answer
        pause.wait(0.1)
    raise AssertionError(answer.text)


def test_it_answers_and_stops_in_order(start: Start) -> None:
    process, address = start("--listen", "127.0.0.1:0", "--open")
    with httpx.Client(base_url=address) as client:
        until_there(client)
        assert client.get("/healthz").text == "ok\n"
        assert client.get("/readyz").status_code == 200
        first = client.get("/api/v1/jobs")
        again = client.get("/api/v1/jobs", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert 'path="/api/v1/jobs",code="304"' in client.get("/metrics").text
        assert client.get("/metrics", headers={"Accept": "application/openmetrics-text"}).text.endswith(
            "# EOF\n"
        )
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_two_replicas_answer_the_same(start: Start, tmp_path: Path) -> None:
    """One of one fleet with the other's prepared answers, one with its own."""
    addresses = [
        start("--listen", "127.0.0.1:0", "--open", *more)[1]
        for more in ((), (), ("--state", str(tmp_path / "other")))
    ]
    paths = ["jobs", "users", "programs", "machines", "fleet", "advice", "gaps", "events"]
    answers = []
    for address in addresses:
        with httpx.Client(base_url=address) as client:
            until_there(client)
            answers.append([client.get(f"/api/v1/{path}").headers["ETag"] for path in paths])
    assert answers[0] == answers[1] == answers[2]


@requires("moto")
def test_two_replicas_over_one_bucket_answer_the_same(
    s3_server: S3Server, machines: Machines, tmp_path: Path
) -> None:
    """Each with a fleet of its own, filled from the bucket by a collector of its own, at another pace."""
    client, everything = s3_server.client(), os.environ | s3_server.environment()
    client.create_bucket(Bucket="replicas")
    made = [machines() for _ in range(2)]
    fleets = [open_fleet(tmp_path / name, create=True) for name in ("one", "two")]

    def collect(fleet: Fleet) -> None:
        words = ["collect", "s3://replicas/fleet", "--fleet", str(fleet.root), "--keep", "--once"]
        command = [sys.executable, "-m", "vmsonar", *words]
        subprocess.run(command, check=True, env=everything, timeout=120, capture_output=True)

    for number in range(3):
        for vm in made:
            vm.record(40)
            key = f"fleet/{vm.root.name}/{number}.tar"
            client.put_object(Bucket="replicas", Key=key, Body=vm.increment().read_bytes())
        collect(fleets[0])
    collect(fleets[1])
    told = []
    for fleet in fleets:
        for site in site_of(fleet, fleet.root / "answers"):
            site.catch_up()
            archives = [vm.archive for vm in made]
            views = ["jobs", "users", "programs", "machines", "advice", "gaps", "events", "containers"]
            paths = [*views, *(f"machines/{archive}" for archive in archives)]
            answers = {path: site.ask("admin", f"/api/v1/{path}") for path in paths}
            answers |= {
                f"timeline {archive}": site.ask("admin", "/api/v1/timeline", archive=archive)
                for archive in archives
            }
            told.append({path: answer.headers["ETag"] for path, answer in answers.items()})
            assert len(site.rows("admin", "machines")) == 2
    assert told[0] == told[1]


def test_tls_and_tokens(start: Start, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    both = authority.issue("server")
    token, kept = new_token()
    access = tmp_path / "access.yaml"
    access.write_text(f"tokens:\n  - {{name: root, sha256: {kept}, role: admin}}\n")
    where = (
        "--listen",
        "127.0.0.1:0",
        "--access",
        str(access),
        "--tls-cert",
        str(both),
        "--tls-key",
        str(both),
    )
    _, address = start(*where)
    assert address.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(authority.certificate))
    with httpx.Client(base_url=address.replace("127.0.0.1", "localhost"), verify=trusted) as client:
        assert client.get("/api/v1/jobs").status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        until_there(client)


def test_a_token_that_was_taken_back_is_worth_nothing_after_sighup(start: Start, tmp_path: Path) -> None:
    """And a file that says nonsense changes nothing."""
    (old, old_hash), (new, new_hash) = new_token(), new_token()
    access = tmp_path / "access.yaml"
    access.write_text(f"tokens:\n  - {{name: old, sha256: {old_hash}, role: admin}}\n")
    process, address = start("--listen", "127.0.0.1:0", "--access", str(access))

    def code(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{address}/api/v1/openapi.json", headers=headers).status_code

    def renew(text: str) -> str:
        access.write_text(text)
        process.send_signal(signal.SIGHUP)
        # Denied requests are lines too.
        return next(line for line in process.stderr if "tokens" in line)  # type: ignore[union-attr]

    assert (code(old), code(new)) == (200, 401)
    assert "still with the tokens" in renew("tokens: nonsense\n")
    assert code(old) == 200
    assert "read the tokens" in renew(f"tokens:\n  - {{name: new, sha256: {new_hash}, role: admin}}\n")
    assert (code(old), code(new)) == (401, 200)


def test_a_client_that_is_killed_while_it_sends_sends_again(
    start: Start, fleet: Fleet, tmp_path: Path, vm: Vm
) -> None:
    """The real one, over TLS: nothing is filed before all of it is there, and then each record once."""
    authority = make_authority(tmp_path)
    both = str(authority.issue("server"))
    token, kept = new_token()
    access, secret, config = (tmp_path / name for name in ("access.yaml", "token", "config.yaml"))
    access.write_text(f"tokens:\n  - {{name: vms, sha256: {kept}, role: upload}}\n")
    secret.touch(0o600)
    secret.write_text(token)
    _, address = start(
        "--listen", "127.0.0.1:0", "--access", str(access), "--tls-cert", both, "--tls-key", both
    )
    save = {
        "to": f"mint+{address.replace('127.0.0.1', 'localhost')}/upload", "token_file": str(secret),
        "waiting": str(tmp_path / "waiting"), "sign": "none",
    }  # fmt: skip
    config.write_text(msgspec.json.encode({"save": save}).decode())
    of_vm = ["--archive", str(vm.root), "--config", str(config)]
    command = [sys.executable, "-m", "vmsonar", "teardown", "--increment", *of_vm]
    trusting = os.environ | {"SSL_CERT_FILE": str(authority.certificate)}
    vm.record(1000, processes=200)
    halves = 0
    for _ in range(5):
        with subprocess.Popen(
            command, env=trusting, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as client:
            while client.poll() is None and not any(fleet.incoming.iterdir()):
                pass
            client.kill()
        halves += client.returncode == -signal.SIGKILL
        vm.record(10)
    done = subprocess.run(command, env=trusting, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert halves
    assert_same(fleet, [vm])


def test_a_proxy_on_a_unix_socket(start: Start, tmp_path: Path) -> None:
    access = tmp_path / "access.yaml"
    access.write_text("proxy:\n  people:\n    root: {role: admin}\n")
    place = tmp_path / "serve.sock"
    start("--listen", str(place), "--access", str(access))
    assert place.stat().st_mode & 0o777 == 0o660
    with httpx.Client(base_url="http://proxy", transport=httpx.HTTPTransport(uds=str(place))) as client:
        client.headers["X-Remote-User"] = "root"
        until_there(client)
        assert client.get("/api/v1/jobs", headers={"X-Remote-User": "stranger"}).json()["rows"] == []


def test_what_is_wrong_is_one_line(filled: Fleet, tmp_path: Path) -> None:
    def said(*words: str, **environment: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "vmsonar", "serve", *words], capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    assert said("--fleet", str(tmp_path / "none"), "--open")[0] == 3
    assert said("--fleet", str(filled.root))[0] == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, words = said("--fleet", str(filled.root), "--open", "--listen", where)
    assert (code, f"cannot listen on {where}: Address already in use" in words) == (3, True)
    assert said("--fleet", str(filled.root), "--listen", "nowhere", "--open")[0] == 2
    here = tmp_path / "notes.txt"
    here.write_text("mine")
    access = tmp_path / "access.yaml"
    access.write_text("proxy: {}")
    code, words = said("--fleet", str(filled.root), "--access", str(access), "--listen", str(here))
    assert (code, "Address already in use" in words, here.read_text()) == (3, True, "mine")
    config = tmp_path / "config.yaml"
    config.write_text("fleet: {allowed_signers_file: /etc/signers}")
    code, words = said("--fleet", str(filled.root), "--open", "--config", str(config))
    assert (code, "fleet.signer is not set" in words) == (2, True)


def test_without_its_extra_it_names_it(filled: Fleet) -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec; "
        "import vmsonar.fleet.serve.server as s; "
        "s.find_spec = lambda name: None if name == 'starlette' else find(name); "
        "from vmsonar.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "serve", "--fleet", str(filled.root), "--open"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "pip install 'vmsonar[serve]'" in done.stderr) == (3, True), done.stderr


def test_a_new_token_and_its_line() -> None:
    command = [sys.executable, "-m", "vmsonar", "serve", "--new-token", "anna"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    token, line = done.stdout.splitlines()
    assert token.startswith("token: vms_")
    assert line.startswith("  - {name: anna, sha256: ")


@requires("stranger")
def test_root_serves_as_the_owner_of_the_fleet(tmp_path: Path) -> None:
    """What root would make there, its owner could no longer change; and the archives are not root's to trust."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        os.chown(name, STRANGER, STRANGER)
        command = vmsonar("serve", "--fleet", name, "--create", "--open", "--listen", "127.0.0.1:0")
        with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
            try:
                assert " serving " in process.stderr.readline()  # type: ignore[union-attr]
                uids = re.findall(
                    r"^Uid:\t(\d+)\t(\d+)", Path(f"/proc/{process.pid}/status").read_text(), re.M
                )
                made = {path.stat().st_uid for path in Path(name).rglob("*")}
            finally:
                process.kill()
    assert uids == [(str(STRANGER), str(STRANGER))]
    assert made == {STRANGER}


def test_a_stop_does_not_wait_for_a_bundle_that_is_looked_at(
    start: Start, filled: Fleet, vm: Vm, tmp_path: Path
) -> None:
    """Its archive is locked by somebody else: the server would wait for two minutes."""
    vm.record(10)
    content = vm.bundle("b.tar").read_bytes()
    process, address = start("--listen", "127.0.0.1:0", "--open")
    with closing(WriterLock(filled.archive(vm.archive))), ThreadPoolExecutor(1) as sender:
        sent = sender.submit(httpx.put, f"{address}/upload/b.tar", content=content, timeout=60)
        pause = threading.Event()
        assert any(any(filled.incoming.iterdir()) or pause.wait(0.05) for _ in range(200))
        process.send_signal(signal.SIGTERM)
        assert process.wait(25) == 0
        with suppress(httpx.HTTPError):
            assert sent.result().status_code >= 500
