"""`vmsonar metrics`: its text, its textfile, and its server before clients of every kind."""

import base64
import http.client
import os
import resource
import signal
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.dialect.exposition import OPENMETRICS_TYPE

from tests.making.metered import JOBS, Crowded, command, live, running
from tests.making.worlds import Job
from tests.real.certificates import Authority, make_authority
from tests.real.meter import cpu_ns, pss
from tests.real.ports import accepts, free_ports, listening
from tests.real.serving import served
from tests.real.wait import let_pass, wait_until
from vmsonar.forward import exporter
from vmsonar.forward.exporter import Door, Exporter, server_context
from vmsonar.forward.present import Present
from vmsonar.host.listening import Address

EVERYBODY = Door()


@contextmanager
def serving(door: Door = EVERYBODY) -> Iterator[tuple[str, int]]:
    exporter = Exporter(Address.parse("127.0.0.1:0").bound(), lambda _: b"x 1\n# EOF\n", door)
    with served(exporter) as server:
        yield server.socket.getsockname()


def get(place: tuple[str, int], path: str = "/metrics", **headers: str) -> tuple[int, str, bytes]:
    with closing(http.client.HTTPConnection(*place, timeout=20)) as client:
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()


def test_prints_openmetrics(tmp_path: Path):
    live(tmp_path / "a").stop_daemon()
    done = subprocess.run(command(tmp_path / "a"), capture_output=True, text=True, check=True)
    assert 'vmsonar_job_cpu_seconds_total{series_id="' in done.stdout
    assert done.stdout.endswith("\n# EOF\n")


def test_says_when_the_recorder_does_not_run(tmp_path: Path):
    live(tmp_path / "a", ago=600).stop_daemon()
    done = subprocess.run(command(tmp_path / "a"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is the recorder running?" in done.stderr
    names = {line.split()[0] for line in done.stdout.splitlines() if line[0] != "#"}
    assert "vmsonar_last_sample_timestamp_seconds" in names
    assert not [name for name in names if name.startswith(("vmsonar_job_", "vmsonar_node_cpu"))]


def test_follows_the_archive_and_ends_what_ended(tmp_path: Path):
    machine = live(tmp_path / "a")
    with closing(Present(tmp_path / "a")) as present:
        assert present.look()
        assert not present.look()
        before = present.text(is_open=True)
        machine.jobs[0].end = machine.uptime
        machine.jobs.append(Job(30, start=machine.uptime + 5, end=1e9, cores=1.0, user="eve"))
        machine.run(2, seconds=5)
        machine.stop_daemon()  # a sealed file has another length, and is not read again
        assert present.look()
        after = present.text(is_open=True)
        assert (b'job_id="20"' in before, b'job_id="30"' in before) == (True, False)
        assert (b'job_id="20"' in after, b'user="eve"' in after) == (False, True)
        machine.start_daemon()
        machine.run(1, seconds=5)
        assert present.look()
    machine.stop_daemon()


def test_another_archive_takes_its_place(tmp_path: Path):
    live(tmp_path / "a").stop_daemon()
    with closing(Present(tmp_path / "a")) as present:
        present.look()
        (tmp_path / "a").rename(tmp_path / "b")
        other = live(tmp_path / "a")
        other.stop_daemon()
        assert present.look()


def test_answers_in_both_formats(tmp_path: Path):
    live(tmp_path / "a").stop_daemon()
    (port,) = free_ports(1)
    with running(*command(tmp_path / "a", "--listen", f"127.0.0.1:{port}")) as process:
        wait_until(lambda: accepts(port), 20, process)
        place = ("127.0.0.1", port)
        status, kind, body = get(place)
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert b"# EOF" not in body
        status, kind, body = get(place, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert (status, kind) == (200, OPENMETRICS_TYPE)
        assert body.endswith(b"\n# EOF\n")
        assert get(place, "/")[0] == 200
        assert get(place, "/secret")[0] == 404
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert not [name for name in ("duckdb", "pyarrow", "confluent", "rich") if f"/{name}" in mapped]
        assert pss([process.pid]) < 40e6
        assert listening([process.pid]) == [f"tcp 0100007F:{port:04X}"]
        line = command(tmp_path / "a", "--listen", f"127.0.0.1:{port}")
        second = subprocess.run(line, capture_output=True, text=True, check=False, timeout=20)
        said = f"vmsonar: cannot listen on 127.0.0.1:{port}: Address already in use\n"
        assert (second.returncode, second.stderr) == (3, said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_what_a_scrape_of_a_large_machine_costs(tmp_path: Path):
    """100 jobs, 50 containers, 8 GPUs: promised are 30 ms and 40 MB; a shared machine gets fivefold slack of time."""
    machine = Crowded(tmp_path / "a", booted=datetime.now(UTC) - timedelta(seconds=1000), uptime=950.0)
    machine.start_daemon()
    machine.run(2)
    (port,) = free_ports(1)
    with running(*command(machine.root, "--listen", f"127.0.0.1:{port}")) as process:
        wait_until(lambda: accepts(port), 20, process)
        assert get(("127.0.0.1", port))[2].count(b"\nvmsonar_job_cpu_seconds_total{") == 2 * JOBS
        before = cpu_ns([process.pid])
        for _ in range(5):
            machine.run(1, seconds=1)
            newest = f"vmsonar_last_sample_timestamp_seconds {machine.now().timestamp()!r}\n".encode()
            wait_until(lambda told=newest: told in get(("127.0.0.1", port))[2], 20, process, every=0.5)
        assert (cpu_ns([process.pid]) - before) / 5 < 5 * 30e6
        assert pss([process.pid]) < 40e6
    machine.stop_daemon()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize(
    ("login", "said"), [(False, "everybody who reaches"), (True, "the password goes to")]
)
def test_what_others_can_read_or_overhear_is_said(tmp_path: Path, host: str, login: bool, said: str):
    live(tmp_path / "a").stop_daemon()
    password, config, (port,) = tmp_path / "password", tmp_path / "config.yaml", free_ports(1)
    password.touch(0o600)
    password.write_text("s3cret")
    given = {"username": "anna", "password_file": str(password)} if login else {}
    config.write_text(yaml.safe_dump({"metrics": given}))
    with running(*command(tmp_path / "a", "--listen", f"{host}:{port}", "--config", config)) as process:
        wait_until(lambda: accepts(port), 20, process)
        process.terminate()
        assert process.stderr
        assert (said in process.stderr.read()) == (host == "0.0.0.0")


def test_waits_for_an_archive_that_is_not_there_yet(tmp_path: Path):
    (port,) = free_ports(1)
    with running(*command(tmp_path / "a", "--listen", f"127.0.0.1:{port}")) as process:
        wait_until(lambda: accepts(port), 20, process)
        assert get(("127.0.0.1", port))[0] == 503
        live(tmp_path / "a").stop_daemon()
        wait_until(lambda: get(("127.0.0.1", port))[0] == 200, 10, process)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (None, 401),
        ("Basic " + base64.b64encode(b"anna:wrong").decode(), 401),
        ("Basic !!!", 401),
        ("Bearer s3cret", 401),
        ("Basic " + base64.b64encode(b"anna:s3cret").decode(), 200),
    ],
)
def test_a_password(sent: str | None, status: int):
    with serving(Door(credentials="anna:s3cret")) as place:
        assert get(place, **({"Authorization": sent} if sent else {}))[0] == status


def test_tls_and_certificates_of_clients(tmp_path: Path):
    authority = make_authority(tmp_path)
    door = Door(server_context(str(authority.issue("server")), None, str(authority.certificate)))
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(door) as place:
        assert not tells(place, trusting)
        assert not tells(place, None)
        trusting.load_cert_chain(authority.issue("client"))
        assert tells(place, trusting)


def test_a_new_certificate_and_password_are_taken_at_sighup(tmp_path: Path):
    live(tmp_path / "a").stop_daemon()
    old, new = (make_authority(tmp_path / name) for name in ("old", "new"))
    used, password, config = tmp_path / "used.pem", tmp_path / "password", tmp_path / "config.yaml"
    settings = {"tls": {"certificate_file": str(used)}, "username": "anna", "password_file": str(password)}
    config.write_text(yaml.safe_dump({"metrics": settings}))
    password.touch(0o600)

    def asked(authority: Authority, secret: str) -> int:
        given = base64.b64encode(f"anna:{secret}".encode()).decode()
        context = ssl.create_default_context(cafile=str(authority.certificate))
        with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)) as client:
            try:
                client.request("GET", "/metrics", headers={"Authorization": f"Basic {given}"})
            except ssl.SSLCertVerificationError:
                return 0
            return client.getresponse().status

    used.write_bytes(old.issue("server").read_bytes())
    password.write_text("first")
    (port,) = free_ports(1)
    line = command(tmp_path / "a", "--listen", f"127.0.0.1:{port}", "--config", config)
    with running(*line) as process:
        wait_until(lambda: accepts(port), 20, process)
        assert (asked(old, "first"), asked(old, "second"), asked(new, "first")) == (200, 401, 0)
        used.write_text("no certificate")
        process.send_signal(signal.SIGHUP)
        assert process.stderr
        while "stays in use" not in process.stderr.readline():
            assert process.poll() is None
        assert asked(old, "first") == 200
        used.write_bytes(new.issue("server").read_bytes())
        password.write_text("second")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: asked(new, "second") == 200, 10, process)
        assert (asked(new, "first"), asked(old, "second")) == (401, 0)


def tells(place: tuple[str, int], context: ssl.SSLContext | None) -> bool:
    """Whether somebody gets the metrics, over TLS or in the clear."""
    kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    more = {} if context is None else {"context": context}
    with closing(kind(*place, timeout=20, **more)) as client:
        try:
            client.request("GET", "/metrics")
            return client.getresponse().read().startswith(b"x 1")
        except (OSError, http.client.HTTPException):
            return False


def test_a_unix_socket(tmp_path: Path):
    live(tmp_path / "a").stop_daemon()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with running(*command(tmp_path / "a", "--listen", f"unix:{path}")) as process:

        def asked() -> bytes:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                return client.makefile("rb").read()

        def answers() -> bool:
            try:
                return b"vmsonar_node_info" in asked()
            except OSError:
                return False

        wait_until(answers, 20, process)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        second = subprocess.run(
            command(tmp_path / "a", "--listen", f"unix:{path}"), capture_output=True, text=True, check=False
        )
        assert (second.returncode, "another process serves it" in second.stderr) == (3, True)
    assert not path.exists()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "SECONDS", 1.0)
    monkeypatch.setattr(exporter.Scrape, "timeout", 1.0)


@pytest.mark.usefixtures("hasty")
def test_a_client_that_drips_is_cut_off():
    with serving() as place, socket.create_connection(place) as client:
        client.settimeout(0.02)
        for _ in range(500):
            try:
                client.sendall(b"X")
                if client.recv(1000) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("it may go on for ten times as long as it should")


@pytest.mark.usefixtures("hasty")
def test_many_clients_hold_nobody_up_for_long():
    with serving() as place:
        idle = [socket.create_connection(place) for _ in range(40)]
        let_pass(0.3)
        assert threading.active_count() < 25
        wait_until(lambda: tells(place, None), 10, "an answer")
        for client in idle:
            client.close()


@pytest.mark.parametrize(
    "said",
    [
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"GET /" + b"a" * 1_000_000,
        b"\0" * 50_000,
        b"GET /metrics HTTP/9\r\n\r\n",
        b"POST /metrics HTTP/1.0\r\nContent-Length: 99999999\r\n\r\nx",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_nonsense_is_cut_short(said: bytes):
    with serving() as place:
        with socket.create_connection(place, timeout=15) as client:
            answer = b""
            try:
                client.sendall(said)
                client.shutdown(socket.SHUT_WR)
                answer = client.makefile("rb").read(10_000)
            except OSError:
                pass
            assert b"x 1" not in answer
        assert get(place)[0] == 200


def test_the_textfile_is_whole_and_goes_away(tmp_path: Path):
    machine = live(tmp_path / "a")
    folder = tmp_path / "textfiles"
    folder.mkdir()
    path = folder / "vmsonar.prom"
    with running(*command(tmp_path / "a", "--textfile", folder)) as process:
        wait_until(path.exists, 20, process)
        first = path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert b"# EOF" not in first
        machine.run(1, seconds=5)
        wait_until(lambda: path.read_bytes() != first, 10, process)
        assert os.listdir(folder) == ["vmsonar.prom"]
        line = command(tmp_path / "a", "--textfile", folder)
        second = subprocess.run(line, capture_output=True, text=True, check=False, timeout=20)
        assert (second.returncode, "another process keeps vmsonar.prom" in second.stderr) == (3, True)
        assert path.exists()
    assert not path.exists()
    machine.stop_daemon()


def test_a_full_disk_ends_the_textfile_and_not_the_service(tmp_path: Path):
    machine = live(tmp_path / "a")
    folder = tmp_path / "textfiles"
    folder.mkdir()
    path = folder / "vmsonar.prom"
    with running(*command(tmp_path / "a", "--textfile", folder)) as process:
        wait_until(path.exists, 20, process)
        size = path.stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
        machine.run(1, seconds=5)
        wait_until(lambda: not path.exists(), 10, process)
        assert os.listdir(folder) == []
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        wait_until(path.exists, 10, process)
        process.terminate()
        assert process.stderr
        assert process.stderr.read().count("trying again every second") == 1
        assert process.wait(10) == 0
    machine.stop_daemon()


@pytest.mark.parametrize(
    ("words", "metrics", "said"),
    [
        (["--listen", "nonsense"], {}, "give ADDR:PORT"),
        (["--listen", "127.0.0.1:99999"], {}, "give ADDR:PORT"),
        (["--archive", __file__], {}, "export --to openmetrics takes bundles"),
        (["--textfile", "{tmp}/none"], {}, "is not a folder"),
        (["--textfile", "{tmp}", "--listen", "127.0.0.1:1"], {}, "exclude each other"),
        (["--listen", "127.0.0.1:0"], {"username": "anna"}, "needs password_file"),
        (["--listen", "127.0.0.1:0"], {"password_file": "/x"}, "needs username"),
        (["--listen", "127.0.0.1:0"], {"tls": {"key_file": "/x"}}, "no certificate_file"),
        (["--listen", "127.0.0.1:0"], {"tls": {"certificate_file": "/none"}}, "cannot use /none"),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, words: list[str], metrics: dict[str, object], said: str
):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"metrics": metrics}))
    words = [word.format(tmp=tmp_path) for word in words]
    line = command(tmp_path / "a", *words, "--config", config)
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
