"""An engine that is killed and comes back in the middle of a recording."""

import os
import secrets
import signal
from pathlib import Path

import pytest

from tests.collectors.container.own_engine import own_engine
from tests.collectors.container.recording import Recording
from tests.collectors.container.ticks import tick_of
from tests.parts import requires
from tests.real.docker import IMAGE

pytestmark = requires("docker", "root", "netns")
NO_NETWORK = ("--network", "none")


@pytest.fixture
def engine():
    with own_engine(Path(f"/tmp/vms-{secrets.token_hex(4)}")) as running:
        yield running


def test_numbers_go_on_and_names_come_back(tmp_path, engine):
    recording = Recording(tmp_path, [engine.socket], ("--answer-seconds=2", "--window-seconds=2"))
    recording.until(lambda: recording.collector.describe())
    old = engine.docker("run", "--detach", "--name", "old", *NO_NETWORK, IMAGE, "sh", "-c",
                        "while :; do sleep 0.05; done")  # fmt: skip
    lost = engine.docker("run", "--detach", "--name", "lost", *NO_NETWORK, IMAGE, "sleep", "600")
    recording.until(lambda: recording.by_name("old") and recording.by_name("lost"))

    engine.kill()
    recording.until(lambda: recording.gaps)
    before = recording.rows[old].cpu_time
    os.kill(tick_of().containers[lost][0], signal.SIGKILL)  # it dies while nobody can tell
    recording.until(lambda: recording.rows[old].cpu_time > before)
    assert recording.infos[old].name == "old"

    engine.start()
    young = engine.docker("run", "--detach", "--name", "young", *NO_NETWORK, IMAGE, "sleep", "600")
    recording.until(
        lambda: recording.event(young, "container_start") and recording.event(lost, "container_die")
    )
    assert recording.by_name("young").container_id == young
    assert recording.events_of(young) == ["container_create", "container_start"]
    assert recording.event(lost, "container_die").exit_code == 137
    assert recording.events_of(old) == ["container_create", "container_start"]
    assert recording.infos[old].name == "old"
    assert recording.gaps == ["engine_refused"]
    recording.assert_never_waited()
    recording.close()
