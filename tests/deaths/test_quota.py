"""A container whose own volume is full: its size is a limit of its own, and the disk below has room."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deaths.jobs import LAST
from tests.parts import requires
from tests.real.docker import DockerEngine
from tests.real.wait import let_pass, wait_until

pytestmark = requires("docker", "root")
NAME = "deaths-quota"
SIZE = 8 << 20
# As a program that was refused: dd ends with 1, and the message is the kernel's.
FILL = f"{LAST}; dd if=/dev/zero of=/data/hog bs=64k; code=$?; sleep 2; exit $code"


@pytest.fixture
def volume(docker_engine: DockerEngine):
    """A volume of a limited size, as the engine's own driver makes it."""
    options = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", f"o=size={SIZE}")
    docker_engine.docker("volume", "create", *options, NAME)
    yield NAME
    docker_engine.docker("volume", "rm", "-f", NAME)


def test_a_full_volume_is_named_with_the_end_of_its_container(
    docker_engine: DockerEngine, volume: str, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    line = [sys.executable, "-m", "vmsonar", "daemon", "--archive", str(archive), "--interval", "1s"]
    with subprocess.Popen([*line, "--for", "60s"], stderr=subprocess.DEVNULL) as recorder:
        try:
            wait_until(lambda: any(archive.glob("*/*/*/sample-*")), 30, "the first sample")
            container = docker_engine.start("sh", "-c", FILL, options=("-v", f"{volume}:/data"))
            assert docker_engine.docker("wait", container).strip() == "1"
            assert "No space left on device" in subprocess.run(
                ["docker", "logs", container], capture_output=True, text=True, check=True
            ).stderr  # fmt: skip
            let_pass(2.5)
        finally:
            recorder.terminate()
            recorder.wait(30)
            docker_engine.remove(container)
    told = [sys.executable, "-m", "vmsonar", "inspect", str(archive), "jobs", "--json"]
    rows = json.loads(subprocess.run(told, capture_output=True, check=True, timeout=60).stdout)["rows"]
    (job,) = [row for row in rows if row["container_id"] == container]
    place = f"/var/lib/docker/volumes/{volume}/_data"
    assert job["ending"]["words"] == f"exit 1, at the same time {place} had 0 bytes free"
    assert (job["ending"]["cause"], job["ending"]["is_proven"]) == ("disk_full", False)
