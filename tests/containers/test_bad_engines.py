"""Engines that hang, talk nonsense, never end, are absent or forbidden: samples stay in time, one gap row each."""

import os
import time

import psutil
import pytest

from tests.containers import fake_engine
from tests.containers.recording import Recording
from tests.parts import DOCKER_SOCKET, requires

# A sample takes about 1 ms; an engine is given half a second to answer.
IN_TIME = 0.25
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
    assert recording.gaps.count(reason) == 1
    assert recording.slowest < IN_TIME


def test_an_answer_without_end_does_not_take_the_memory(recording, socket_path):
    sizes = []

    def told() -> bool:
        pid = recording.collector.companion_pid
        if pid is not None:
            sizes.append(psutil.Process(pid).memory_info().rss)
        return "engine_protocol" in recording.gaps

    with fake_engine.fake_engine(socket_path, fake_engine.endless):
        recording.until(told)
    assert max(sizes) < 300 * 2**20
    assert recording.slowest < IN_TIME * 5  # the flood takes a core


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
    assert recording.slowest < IN_TIME


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
    assert recording.slowest < IN_TIME
    docker_engine.remove(container_id)
