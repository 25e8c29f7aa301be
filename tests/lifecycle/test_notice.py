"""The three clouds, simulated on loopback: from the notice to the bundle in its place."""

import json
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path

from tests.lifecycle.metadata_service import SOON
from tests.making.load import Recorder
from tests.real import hostile_http
from vmsonar.daemon.log import Log
from vmsonar.host.cloud import NoticeWatch
from vmsonar.lifecycle.notice import ADDRESS, Metadata, Notice, Watcher, seconds_left, tear_down_with

SAMPLES_A_DAY = 8640
PROCESSES = 40


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """A day of the model load."""
    root = tmp_path_factory.mktemp("day") / "archive"
    recorder = Recorder(root, PROCESSES)
    recorder.record(SAMPLES_A_DAY)
    recorder.writer.close()
    return root


@pytest.mark.slow
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


@pytest.mark.parametrize("name", ["aws", "gcp", "azure"])
@pytest.mark.parametrize("behave", hostile_http.WAITING)
def test_a_service_that_keeps_us_waiting(name, behave, tmp_path):
    said = StringIO()
    with hostile_http.serving(behave) as port:
        service = Metadata(("127.0.0.1", port), seconds=0.3)
        begin = time.monotonic()
        assert Watcher(name, _never, Log("info", said), tmp_path, service).look() is None
        assert time.monotonic() - begin < 15, "the server would keep it for 30 s"
    assert "no whole answer in time" in said.getvalue()


def _never(seconds: float) -> int:
    raise AssertionError("there was no notice")


class Says(Metadata):
    """Answers every question in the same way."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()
        self._answer = (status, body)
        self._token = "token"

    def get(self, path, headers, method="GET"):
        return self._answer


NESTED = b"[" * 100_000
ODD = [
    b"", b"\xff\xfe", b"<html>\x1b[31mlogin</html>", b"null", b"[]", b"3", NESTED, b'{"a":' * 50_000, b"{}" * 9,
    b'{"action": null}', b'{"action": ["terminate"]}', b'{"Events": {"a": 1}}', b'{"Events": [null, 3, []]}',
    b'{"Events": [{"EventType": ["Preempt"]}]}', b'{"Events": [{"EventType": {}}]}', b'{"Events": "Preempt"}',
]  # fmt: skip


@pytest.mark.parametrize("name", ["aws", "gcp", "azure"])
@pytest.mark.parametrize("body", ODD)
def test_odd_answers_are_no_notice(name, body, tmp_path):
    assert Watcher(name, _never, Log("error", StringIO()), tmp_path, Says(200, body)).look() is None


def test_a_notice_with_odd_words_is_one_all_the_same(tmp_path):
    strange = [
        "\x1b]0;x\x07" * 99,
        "\ud800",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "",
        5,
        None,
        [],
    ]
    for word in strange:
        aws = Says(200, json.dumps({"action": "terminate", "time": word}).encode())
        event = {"EventType": "Preempt", "EventId": word, "NotBefore": word}
        azure = Says(200, json.dumps({"Events": [event]}).encode())
        for name, service in (("aws", aws), ("azure", azure)):
            notice = Watcher(name, lambda _: 0, Log("info", StringIO()), tmp_path, service).look()
            assert notice is not None
            assert notice.detail.isprintable()
            assert len(notice.detail) < 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["action", "time", "Events", "EventType", "EventId", "NotBefore"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["aws", "gcp", "azure"]),
    status=st.sampled_from([200, 200, 200, 401, 404, 500]),
    body=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()),
)
def test_nothing_that_is_said_raises(name, status, body, tmp_path):
    Watcher(name, lambda _: 0, Log("info", StringIO()), tmp_path, Says(status, body)).look()


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("vmsonar.lifecycle.notice.subprocess.run", fail)
    assert tear_down_with(None)(5) == 3


def test_how_long_tearing_down_may_take():
    now = datetime(2026, 11, 16, tzinfo=UTC)
    assert seconds_left(Notice("x", ""), now) == 22
    assert seconds_left(Notice("x", "", now + timedelta(seconds=120)), now) == 110
    assert seconds_left(Notice("x", "", now + timedelta(seconds=30)), now) == 26
    assert seconds_left(Notice("x", "", now - timedelta(seconds=30)), now) == 11


def test_only_the_link_local_address_is_asked():
    assert ADDRESS == ("169.254.169.254", 80)
