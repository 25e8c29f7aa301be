"""The wire between companion and sampler: late listeners, sleeping ones, long lines, ends before deaths."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.real.wait import wait_until
from vmsonar.collectors.container.link import Companion, Link
from vmsonar.collectors.container.wire import (
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
    SnapshotDone,
)
from vmsonar.collectors.protocol import to_line
from vmsonar.companion import hub as hub_module
from vmsonar.companion.hub import Hub
from vmsonar.companion.lives import Lives
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host

A = "a" * 64
B = "b" * 64
OK = EngineState(socket="/s", state="ok", engine="docker")


@pytest.fixture
def hub():
    made = Hub(Lives(Host(), limit=64))
    stopping = threading.Event()
    thread = threading.Thread(target=made.run, args=(stopping, False))
    thread.start()
    yield made
    stopping.set()
    made.wake()
    thread.join()
    made.close()


@pytest.fixture
def unit(tmp_path, hub):
    """A hub that listens where a unit's companion does."""
    path = tmp_path / "vmsonar/engine.sock"
    path.parent.mkdir()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    hub.listen(server)
    hub.wake()
    yield tmp_path
    server.close()


def heard(link, count):
    told = []
    wait_until(lambda: len(told) >= count or told.extend(link.messages()), 30, f"{count} messages")
    return told


def facts(container_id, name):
    return ContainerFacts(container_id=container_id, engine="docker", name=name)


def test_a_late_listener_is_told_all_that_is_known(hub, unit):
    for message in (OK, facts(A, "a"), facts(B, "b"), ContainerGone(container_id=B)):
        hub.put(message)
    first = Link(unit, Companion(sockets=[]), Clock())
    told = heard(first, 3)
    assert told[-3:] == [OK, facts(A, "a"), SnapshotDone()]
    assert first.state == "ok"
    assert first.pid == os.getpid()
    hub.put(ContainerEvent(container_id=A, action="start", time_ns=1))
    assert heard(first, 1) == [ContainerEvent(container_id=A, action="start", time_ns=1)]
    first.close()


def test_a_listener_that_sleeps_is_cut_off_and_may_come_back(hub, unit, monkeypatch):
    monkeypatch.setattr(hub_module, "MAX_BACKLOG", 1 << 20)
    link = Link(unit, Companion(sockets=[]), Clock())
    hub.put(facts(A, "x" * 1000))
    heard(link, 2)
    for number in range(4000):
        hub.put(facts(A, f"{number}-" + "x" * 1000))
    wait_until(lambda: not hub._queue, 30, "the hub has sent what it could")
    told = []

    def reads_until(state):
        told.extend(link.messages())
        return link.state == state

    wait_until(lambda: reads_until("companion"), 30, "the end of the connection")
    told.clear()
    wait_until(lambda: reads_until("ok") and SnapshotDone() in told, 30, "the way back")
    assert told[0].name.startswith("3999-")
    link.close()


def test_a_line_without_an_end_is_not_swallowed(tmp_path):
    path = tmp_path / "vmsonar/engine.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        link = Link(tmp_path, Companion(sockets=[]), Clock())
        link.messages()
        connection, _ = server.accept()
        with connection:
            connection.setblocking(False)
            sent = 0
            while link.state == "ok" and sent < 4 * 2**20:
                sent += connection.send(b"x" * 65536)
                assert link.messages() == []
            assert link.state == "companion"


def test_nonsense_between_lines_is_passed_over(hub, unit, tmp_path):
    ours, theirs = socket.socketpair()
    link = Link(tmp_path / "none", Companion(sockets=[]), Clock())
    ours.setblocking(False)
    link._connection = ours
    theirs.sendall(b"{}\nnonsense\n" + to_line(OK) + b'{"kind":')
    assert link.messages() == [OK]
    theirs.sendall(b'"snapshot"}\n')
    assert link.messages() == [SnapshotDone()]
    theirs.close()
    link.close()


def test_the_companion_as_a_unit(tmp_path):
    """Started by hand as a unit starts it: it makes its socket, tells that no engine is there, and leaves."""
    path = tmp_path / "vmsonar/engine.sock"
    path.parent.mkdir()
    config = tmp_path / "config.yaml"
    config.write_text(f"containers:\n  socket: {tmp_path}/none.sock\n")
    command = [sys.executable, "-m", "vmsonar.companion", "--listen", str(path), "--config", str(config)]
    companion = subprocess.Popen(command)
    try:
        wait_until(path.exists, 30, "the companion's socket")
        link = Link(tmp_path, Companion(sockets=[]), Clock())
        (state, *_) = heard(link, 1)
        assert (state.state, state.socket) == ("absent", f"{tmp_path}/none.sock")
        assert link.pid == companion.pid
        # The SDK is imported only where a socket is: it would bring TLS with it.
        assert "_ssl" not in Path(f"/proc/{companion.pid}/maps").read_text()
        link.close()
    finally:
        companion.terminate()
        assert companion.wait(30) == 0
    assert not path.exists()


def test_a_companion_that_cannot_listen_says_so_in_one_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "vmsonar.companion",
        "--listen",
        f"{tmp_path}/no/where.sock",
        "--socket",
        "/x",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr == (
        f"vmsonar.companion: cannot listen on {tmp_path}/no/where.sock: No such file or directory: "
        "is its folder ours to write?\n"
    )


def test_a_group_is_read_when_the_engine_tells_of_a_kill_in_it(hub, monkeypatch):
    looked = []
    monkeypatch.setattr(Lives, "look", lambda _, container_id: looked.append(container_id))
    hub.put(ContainerEvent(container_id=A, action="oom", time_ns=1))
    wait_until(lambda: looked == [A], 30, "a look at the group")


def test_a_process_that_is_in_no_container_is_not_watched():
    lives = Lives(Host(), limit=64)
    assert not lives.found(A, os.getpid())
    assert not lives.found(A, 2**22 - 1)
    lives.close()
