"""The three clouds, simulated on loopback: from the notice to the bundle in its place."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.reader import open_archive
from vmsonar_archive.verify_path import verify_path

from bench.model import Recorder
from tests.real.serving import served
from vmsonar.lifecycle.clouds import ADDRESS, Metadata, Notice
from vmsonar.log import Log
from vmsonar.notice import Watcher, seconds_left, tear_down_with
from vmsonar.notice_file import NoticeWatch

SAMPLES_A_DAY = 8640
PROCESSES = 40
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=120)


class Cloud(ThreadingHTTPServer):
    """Answers as the three metadata services do, and refuses what they refuse."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ends = False
        self.tokens = 0


class Handler(BaseHTTPRequestHandler):
    server: Cloud

    def do_PUT(self) -> None:
        if self.path != "/latest/api/token" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
            return self._answer(400)
        self.server.tokens += 1
        return self._answer(200, f"token-{self.server.tokens}")

    def do_GET(self) -> None:
        ends = self.server.ends
        if self.path == "/latest/meta-data/spot/instance-action":
            if self.headers.get("X-aws-ec2-metadata-token") != f"token-{self.server.tokens}":
                return self._answer(401)
            said = {"action": "terminate", "time": f"{SOON:%Y-%m-%dT%H:%M:%SZ}"}
            return self._answer(200, json.dumps(said)) if ends else self._answer(404)
        if self.path == "/computeMetadata/v1/instance/preempted":
            google = self.headers.get("Metadata-Flavor") == "Google"
            return self._answer(200, "TRUE" if ends else "FALSE") if google else self._answer(403)
        if self.path == "/metadata/scheduledevents?api-version=2020-07-01":
            if self.headers.get("Metadata") != "true":
                return self._answer(400)
            reboot = {"EventId": "a", "EventType": "Reboot", "NotBefore": ""}
            at = f"{SOON:%a, %d %b %Y %H:%M:%S GMT}"
            preempt = {"EventId": "b", "EventType": "Preempt", "NotBefore": at}
            return self._answer(200, json.dumps({"Events": [reboot, preempt] if ends else [reboot]}))
        return self._answer(404)

    def _answer(self, status: int, body: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with served(Cloud()) as server:
        yield server


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """A day of the model load."""
    root = tmp_path_factory.mktemp("day") / "archive"
    recorder = Recorder(root, PROCESSES)
    recorder.record(SAMPLES_A_DAY)
    recorder.writer.close()
    return root


@pytest.mark.parametrize("name", ["aws", "gcp", "azure"])
def test_from_the_notice_to_the_bundle_in_its_place(name, cloud, archive, tmp_path):
    (tmp_path / "run/vmsonar").mkdir(parents=True)
    for folder in ("results", "waiting"):
        (tmp_path / folder).mkdir()
    # Each cloud gets everything: as if nothing had been sent before.
    (archive / "uploads.json").unlink(missing_ok=True)
    config = tmp_path / "config.yaml"
    save = {"to": str(tmp_path / "results"), "waiting": str(tmp_path / "waiting"), "notice": name}
    config.write_text(yaml.safe_dump({"archive": str(archive), "save": save}))
    recorder = NoticeWatch(tmp_path / "run")
    service = Metadata(cloud.server_address[:2])
    watcher = Watcher(name, tear_down_with(config), Log("info", StringIO()), tmp_path / "run", service)
    assert watcher.look() is None
    assert recorder.events() == []
    cloud.tokens += 1  # the token has expired meanwhile
    cloud.ends = True
    begin = time.monotonic()
    notice = watcher.look()
    took = time.monotonic() - begin
    print(f"{name}: from the notice to a day's bundle in its place {took:.1f} s")
    assert took < 5 * 10
    assert notice is not None
    assert notice.detail.startswith(f"{name}: ")
    assert notice.at == (None if name == "gcp" else SOON)
    (bundle,) = (tmp_path / "results").iterdir()
    assert verify_path(bundle).ok
    with open_archive(bundle) as inside:
        assert sum(1 for _ in inside.samples()) == SAMPLES_A_DAY
    (event,) = recorder.events()
    assert (event.event_type, event.detail) == ("teardown_notice", notice.detail)
    assert recorder.events() == []
    begin = time.monotonic()
    watcher.look()
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_what_failed_is_tried_again_and_what_worked_is_not(cloud, tmp_path):
    codes, asked = [3, 0], []
    said = StringIO()

    def tear_down(seconds: float) -> int:
        asked.append(seconds)
        return codes.pop(0)

    watcher = Watcher("gcp", tear_down, Log("info", said), tmp_path, Metadata(cloud.server_address[:2]))
    cloud.ends = True
    for _ in range(4):
        watcher.look()
    assert asked == [22.0, 22.0]
    assert said.getvalue().count("about to be taken away") == 1
    assert "everything is safe" in said.getvalue()


def test_a_service_that_is_not_there_is_told_of_once(cloud, tmp_path):
    said = StringIO()
    service = Metadata(("127.0.0.1", 1))
    watcher = Watcher("aws", lambda seconds: 0, Log("info", said), tmp_path, service)
    for _ in range(3):
        assert watcher.look() is None
    assert said.getvalue().count("cannot ask the metadata service") == 1


def test_how_long_tearing_down_may_take():
    now = datetime(2026, 11, 16, tzinfo=UTC)
    assert seconds_left(Notice("x", ""), now) == 22
    assert seconds_left(Notice("x", "", now + timedelta(seconds=120)), now) == 110
    assert seconds_left(Notice("x", "", now + timedelta(seconds=30)), now) == 26
    assert seconds_left(Notice("x", "", now - timedelta(seconds=30)), now) == 11


def test_only_the_link_local_address_is_asked():
    assert ADDRESS == ("169.254.169.254", 80)
