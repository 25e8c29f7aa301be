"""Engines that hang, talk nonsense, never end, are absent or forbidden: samples stay in time, one gap row each."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import hypothesis
import psutil
import pytest
from hypothesis import strategies as st

from tests.collectors.container import fake_engine
from tests.collectors.container.recording import Recording
from tests.parts import DOCKER_SOCKET, requires
from tests.real.wait import wait_until
from vmsonar.collectors.container.wire import ContainerEvent, ContainerFacts, EngineState
from vmsonar.collectors.protocol import MAX_LINE, to_line
from vmsonar.companion.api import CompanionSettings
from vmsonar.companion.follow import Follower
from vmsonar.companion.hub import Hub
from vmsonar.companion.lives import Lives
from vmsonar.host.roots import Host

SHORT_WAITS = ("--answer-seconds=0.5", "--window-seconds=1")

BAD = [
    (fake_engine.silent, "engine_timeout"),
    (fake_engine.garbage, "engine_protocol"),
    (fake_engine.wrong_json, "engine_protocol"),
]


@pytest.fixture
def socket_path(tmp_path):
    return tmp_path / "engine.sock"


@pytest.fixture
def recording(tmp_path, socket_path):
    made = Recording(tmp_path, [socket_path], SHORT_WAITS)
    yield made
    made.close()


@pytest.mark.parametrize(("behave", "reason"), BAD)
def test_a_bad_engine_is_one_gap_row_and_no_delay(recording, socket_path, behave, reason):
    with fake_engine.fake_engine(socket_path, behave):
        recording.until(lambda: recording.gaps)
        for _ in range(15):
            recording.sample()
            time.sleep(0.1)
    assert recording.gaps[:1] == [reason]
    # Said once while it lasts; a loaded machine may see it time out in between.
    assert all(before != after for before, after in itertools.pairwise(recording.gaps))
    recording.assert_never_waited()


ENDLESS = {
    "list": {"/containers/json": fake_engine.flood(b"HTTP/1.1 200 OK\r\n\r\n", b'[{"Id": "a"},' * 9999)},
    "inspect": {
        f"/containers/{fake_engine.ID}": fake_engine.flood(b"HTTP/1.1 200 OK\r\n\r\n{", b'"a": [{}],' * 9999)
    },
    "events": {"/events": fake_engine.flood(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 2**16)},
    "event lines": {"/events": fake_engine.flood(b"HTTP/1.1 200 OK\r\n\r\n", b"{}\n" * 2**14)},
    "headers": {"/version": fake_engine.flood(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 60_000 + b"\r\n")},
    "status": {"/version": fake_engine.flood(b"HTTP/1.1 200 ", b"y" * 60_000)},
    "nested": {"/version": fake_engine.headed(b"[" * 2**20)},
    "objects": {"/info": fake_engine.headed(b"[" + b"{}," * 340_000 + b"{}]")},
}


@pytest.mark.parametrize("where", ENDLESS)
def test_an_answer_without_end_does_not_take_the_memory(recording, socket_path, where):
    sizes = []
    expected = {"inspect": "engine_too_large", "event lines": None}.get(where, "engine_protocol")
    end = time.monotonic() + 4

    def told() -> bool:
        pid = recording.collector.companion_pid
        if pid is not None:
            sizes.append(peak_of(pid))
        return expected in recording.gaps if expected else time.monotonic() > end

    with fake_engine.fake_engine(socket_path, fake_engine.answering(**ENDLESS[where])):
        recording.until(told)
    print(f"endless {where}: the companion takes at most {max(sizes) / 2**20:.0f} MiB")
    assert max(sizes) < 60 * 2**20
    recording.assert_never_waited()


def peak_of(pid: int) -> int:
    """The most memory that a process ever had (VmHWM of proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


SLOW = {
    "headers": {"/version": fake_engine.flood(b"HTTP/1.1 200 OK\r\n", b"X", pause=0.05)},
    "body": {
        "/info": fake_engine.flood(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b" ", pause=0.05)
    },
    "continue": {"/version": fake_engine.flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.05)},
    "trailers": {
        "/version": fake_engine.flood(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", pause=0.05
        )
    },
    "events": {"/events": fake_engine.flood(b"HTTP/1.1 200 OK\r\n\r\n", b"x", pause=0.05)},
}


@pytest.mark.parametrize("where", SLOW)
def test_a_byte_at_a_time_is_too_slow(recording, socket_path, where):
    with fake_engine.fake_engine(socket_path, fake_engine.answering(**SLOW[where])):
        recording.until(lambda: "engine_timeout" in recording.gaps)
    recording.assert_never_waited()


def api_of(socket_path: Path, **odd: object):
    return fake_engine.fake_engine(socket_path, fake_engine.answering(**odd))


def followed(socket_path: Path, until, **odd: object) -> list:
    """What a follower tells of such an engine."""
    told: list = []
    stopping = threading.Event()
    settings = CompanionSettings(answer_seconds=0.5, window_seconds=0.2)

    def put(message) -> None:
        assert len(to_line(message)) <= MAX_LINE
        told.append(message)

    follower = threading.Thread(target=Follower(str(socket_path), put, settings).run, args=(stopping,))
    with api_of(socket_path, **odd):
        follower.start()
        try:
            wait_until(lambda: until(told), 30, "what the engine says")
        finally:
            stopping.set()
            follower.join()
    return told


def names(told: list) -> set:
    return {message.name for message in told if isinstance(message, ContainerFacts)}


def test_one_container_with_too_much_to_say_hides_no_other(socket_path):
    huge = {**fake_engine.PLAIN[f"/containers/{fake_engine.ID}"], "Config": {"Labels": {"x": "y" * 2**21}}}
    told = followed(
        socket_path,
        lambda told: "other" in names(told) and any(isinstance(one, EngineState) for one in told),
        **{f"/containers/{fake_engine.ID}": huge},
    )
    (state,) = [one for one in told if isinstance(one, EngineState)]
    assert state.state == "ok"
    assert (
        state.detail
        == f"{socket_path} answers with more than 1048576 bytes to /v1.41/containers/{fake_engine.ID}/json"
    )


def test_a_long_event_is_passed_and_the_next_is_heard(socket_path):
    long = json.dumps({"Action": "die", "Actor": {"ID": fake_engine.ID, "Attributes": {"x": "y" * 2**19}}})
    next_one = json.dumps(
        {"Action": "die", "Actor": {"ID": fake_engine.OTHER, "Attributes": {}}, "timeNano": 5}
    )

    def is_heard(told: list) -> bool:
        events = any(isinstance(one, ContainerEvent) for one in told)
        return events and any(
            "an event is longer than 262144 bytes" in (getattr(one, "detail", "") or "") for one in told
        )

    told = followed(socket_path, is_heard, **{"/events": f"{long}\n{next_one}\n"})
    assert {one.container_id for one in told if isinstance(one, ContainerEvent)} == {fake_engine.OTHER}


def test_what_an_engine_says_of_an_error_is_cut_and_printable(socket_path):
    said = b"\x1b[31mAuthorization: Bearer canary-t0ken\x07" + b"x" * 5000
    told = followed(socket_path, lambda told: told, **{"/info": fake_engine.headed(said, "500 \x1b[31mred")})
    assert told[0].state == "protocol"
    assert told[0].detail.isprintable()
    assert "canary" not in told[0].detail
    assert len(told[0].detail) < 400


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "Id",
    "Name",
    "Image",
    "Config",
    "State",
    "HostConfig",
    "Mounts",
    "Args",
    "Path",
    "Created",
    "RestartCount",
]
DEEPER = ["Labels", "Image", "Pid", "StartedAt", "ExitCode", "NetworkMode"]


class Odd:
    """An engine that answers about every container in the same way."""

    def __init__(self, answer: dict) -> None:
        self.answer = answer

    def inspect(self, container_id: str) -> dict:
        return self.answer

    def image_digest(self, image_id: str) -> str | None:
        return None


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(
    answer=st.dictionaries(
        st.sampled_from(FIELDS), anything | st.dictionaries(st.sampled_from(DEEPER), anything), max_size=8
    ),
    event=st.dictionaries(
        st.sampled_from(["Action", "status", "id", "timeNano", "Actor"]),
        anything
        | st.sampled_from(["die", "start", "create", "oom"])
        | st.dictionaries(st.just("ID"), anything),
    ),
)
def test_odd_facts_make_messages_or_one_kind_of_error(answer, event):
    """What cannot be told is told as such by the follower's thread; the companion's loop never sees it."""
    hub = Hub(Lives(Host(), limit=8))
    follower = Follower("/nowhere", hub.put, CompanionSettings())
    for _ in range(2):
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError, OverflowError):
            follower._hear(Odd(answer), event)
            follower._ask(Odd(answer), "a", is_new=True)
    hub.wake()
    hub._empty_queue(0)
    hub.close()


def test_without_the_sdk_the_engine_is_told_with_what_brings_it(socket_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "vmsonar.companion.client", raising=False)
    monkeypatch.setitem(sys.modules, "docker.api.client", None)
    (state,) = followed(socket_path, lambda told: told)
    assert state.state == "no_sdk"
    assert "vmsonar[docker]" in state.detail


def test_the_sdk_is_not_loaded_for_a_socket_where_nobody_listens(tmp_path):
    code = (
        "import sys, threading; from vmsonar.companion.follow import Follower; from vmsonar.companion.api import *\n"
        "stop = threading.Event(); told = lambda state: (print(state.state, 'docker' in sys.modules), stop.set())\n"
        "Follower(sys.argv[1], told, CompanionSettings()).run(stop)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "none.sock")], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["absent", "False"]


def test_an_engine_that_is_not_there_is_no_gap(recording):
    for _ in range(3):
        recording.sample()
    assert recording.gaps == []
    assert recording.collector.companion_pid is None


def test_a_dead_socket_is_refused_once(recording, socket_path):
    with fake_engine.fake_engine(socket_path, fake_engine.silent):
        os.link(socket_path, f"{socket_path}.kept")
    os.rename(f"{socket_path}.kept", socket_path)
    recording.until(lambda: recording.gaps)
    for _ in range(10):
        recording.sample()
        time.sleep(0.1)
    assert recording.gaps == ["engine_refused"]


def test_a_companion_that_dies_is_told_and_started_again(recording, socket_path):
    with fake_engine.fake_engine(socket_path, fake_engine.silent):
        recording.until(lambda: recording.collector.companion_pid)
        first = psutil.Process(recording.collector.companion_pid)
        first.kill()
        recording.until(lambda: "companion" in recording.gaps)
        recording.until(lambda: recording.collector.companion_pid not in (None, first.pid))
    assert recording.gaps.count("companion") == 1
    recording.assert_never_waited()


def test_the_companion_leaves_with_the_sampler(recording, socket_path):
    with fake_engine.fake_engine(socket_path, fake_engine.silent):
        recording.until(lambda: recording.collector.companion_pid)
        companion = psutil.Process(recording.collector.companion_pid)
        recording.close()
        assert not companion.is_running()


@requires("docker")
def test_names_come_back_by_themselves(recording, socket_path, docker_engine):
    container_id = docker_engine.start("sleep", "60")
    with fake_engine.fake_engine(socket_path, fake_engine.silent):
        recording.until(lambda: "engine_timeout" in recording.gaps)
        assert container_id in recording.rows
        assert recording.infos[container_id].name is None
    socket_path.symlink_to(DOCKER_SOCKET)
    recording.until(lambda: recording.infos[container_id].name)
    recording.assert_never_waited()
    docker_engine.remove(container_id)
