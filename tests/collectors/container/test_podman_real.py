"""Podman through its Docker-compatible socket."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.collectors.container.recording import Recording
from tests.parts import requires
from tests.real.docker import IMAGE

pytestmark = requires("podman")


@pytest.fixture
def recording(tmp_path, podman_engine):
    made = Recording(tmp_path, [podman_engine.socket])
    made.until(lambda: made.collector.describe().get("engines"))
    yield made
    made.close()


def test_a_container_has_numbers_a_name_and_its_engine(recording, podman_engine):
    (engine,) = recording.collector.describe()["engines"]
    assert (engine.engine, engine.socket) == ("podman", str(podman_engine.socket))
    container_id = podman_engine.start("sleep", "60", options=("--label", "com.docker.compose.project=shop"))
    recording.until(lambda: recording.infos.get(container_id) and recording.infos[container_id].name)
    info, row = recording.infos[container_id], recording.rows[container_id]
    assert (info.engine, info.compose_project, info.command) == ("podman", "shop", "sleep")
    assert IMAGE in info.image
    assert f"libpod-{container_id}" in info.cgroup
    assert row.cpu_time > 0
    assert row.processes == 1
    podman_engine.remove(container_id)
    recording.until(lambda: recording.event(container_id, "container_die"))


def test_a_short_one_is_found_with_its_exit_code(recording, podman_engine):
    name = f"short-{time.time_ns()}"
    options = ("--rm", "--name", name, "--label", podman_engine.label, *podman_engine.run_options)
    podman_engine.docker("run", *options, IMAGE, "sh", "-c", "sleep 0.3; exit 4", check=False)

    def died():
        info = recording.by_name(name)
        return info and recording.event(info.container_id, "container_die")

    recording.until(died)
    assert died().exit_code == 4
    assert recording.events_of(died().container_id) == [
        "container_create",
        "container_start",
        "container_die",
    ]


def test_a_container_belongs_to_whoever_logged_in(recording, podman_engine):
    def log_in() -> None:
        Path("/proc/self/loginuid").write_text("1")

    options = ("--detach", "--label", podman_engine.label, *podman_engine.run_options)
    try:
        done = subprocess.run(["podman", "run", *options, IMAGE, "sleep", "60"], capture_output=True, text=True,
                              preexec_fn=log_in, check=True)  # fmt: skip
    except subprocess.SubprocessError:
        pytest.skip("this kernel does not let the test log in (CONFIG_AUDIT)")
    container_id = done.stdout.strip()
    recording.until(lambda: recording.infos.get(container_id) and recording.infos[container_id].name)
    info = recording.infos[container_id]
    assert (info.user_id, info.user_name, info.user_source) == (1, "daemon", "loginuid")
    assert os.getuid() != info.user_id
    podman_engine.remove(container_id)
