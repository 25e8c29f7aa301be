"""Containers that meet their limits: the kernel counts it, and so do their rows."""

import pytest

from tests.collectors.container.recording import Recording
from tests.parts import DOCKER_SOCKET, requires

pytestmark = requires("docker")
# The inner shell ends when it cannot fork; the outer one becomes the last process without forking.
CROWD = "sh -c 'for n in 1 2 3 4 5 6 7 8; do sleep 60 & done'; exec sleep 60"
HUNGRY = "sh -c 'head -c 200000000 /dev/zero | tail -c 200000000'; exec sleep 60"


@pytest.fixture
def recording(tmp_path, docker_engine):
    made = Recording(tmp_path, [DOCKER_SOCKET])
    made.until(lambda: made.collector.describe().get("engines"))
    yield made
    made.close()


@pytest.fixture
def start(docker_engine):
    started = []

    def run(script, *options):
        started.append(docker_engine.start("sh", "-c", script, options=options))
        return started[-1]

    yield run
    docker_engine.remove(*started)


def test_a_fork_that_failed_is_counted(recording, start):
    crowded, calm = start(CROWD, "--pids-limit", "5"), start("exec sleep 60", "--pids-limit", "5")
    recording.until(lambda: crowded in recording.rows and recording.rows[crowded].pids_max_events)
    assert recording.rows[crowded].processes_limit == 5
    assert recording.rows[calm].pids_max_events == 0


def test_how_often_the_memory_limit_was_met_is_counted(recording, start):
    container_id = start(HUNGRY, "-m", "32m")
    recording.until(lambda: container_id in recording.rows and recording.rows[container_id].memory_max_events)
    assert recording.rows[container_id].memory_limit == 32 * 2**20
