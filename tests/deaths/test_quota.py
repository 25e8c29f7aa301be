"""Containers whose own room is full, a volume or the writable layer: the disk below has room for others."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deaths.jobs import LAST
from tests.parts import requires
from tests.real.docker import IMAGE, DockerEngine
from tests.real.wait import let_pass, wait_until

pytestmark = requires("docker", "root")
NAME = "deaths-quota"
SIZE = 8 << 20


def fill(path: str) -> tuple[str, ...]:
    """As a program that was refused: dd ends with 1, and the message is the kernel's."""
    return "sh", "-c", f"{LAST}; dd if=/dev/zero of={path} bs=64k; code=$?; sleep 2; exit $code"


@pytest.fixture
def volume(docker_engine: DockerEngine) -> Iterator[str]:
    """A volume of a limited size, as the engine's own driver makes it."""
    options = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", f"o=size={SIZE}")
    docker_engine.docker("volume", "create", *options, NAME)
    yield NAME
    docker_engine.docker("volume", "rm", "-f", NAME)


@contextmanager
def small_layer(engine: DockerEngine, container: str, keep: Path) -> Iterator[str]:
    """Puts the writable layer of a container that was not started yet on a small file system.

    The engine's own limit (--storage-opt size) takes project quotas, which few kernels have; an overlay shows either
    alike, as its own room.
    """
    upper = engine.docker("inspect", "-f", "{{.GraphDriver.Data.UpperDir}}", container)
    layer = Path(upper).parent
    shutil.copytree(layer, keep, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0710,size={SIZE}", "tmpfs", layer], check=True)
    try:
        shutil.copytree(keep, layer, symlinks=True, dirs_exist_ok=True)
        yield str(layer)
    finally:
        engine.remove(container)  # the engine may unmount it as it removes the layer
        subprocess.run(["umount", layer], check=False, capture_output=True)


def ending(engine: DockerEngine, archive: Path, start: Callable[[], str]) -> dict[str, Any]:
    """How a container that was refused room ended, as `inspect` says it of its job."""
    line = [sys.executable, "-m", "vmsonar", "daemon", "--archive", str(archive), "--interval", "1s"]
    with subprocess.Popen([*line, "--for", "60s"], stderr=subprocess.DEVNULL) as recorder:
        try:
            wait_until(lambda: any(archive.glob("*/*/*/sample-*")), 30, "the first sample")
            container = start()
            assert engine.docker("wait", container).strip() == "1"
            logs = subprocess.run(
                [engine.command, "logs", container], capture_output=True, text=True, check=True
            )
            assert "No space left on device" in logs.stderr
            let_pass(2.5)
        finally:
            recorder.terminate()
            recorder.wait(30)
    told = [sys.executable, "-m", "vmsonar", "inspect", str(archive), "jobs", "--json"]
    rows = json.loads(subprocess.run(told, capture_output=True, check=True, timeout=60).stdout)["rows"]
    (job,) = [row for row in rows if row["container_id"] == container]
    return dict(job["ending"])


def test_a_full_volume_is_named_with_the_end_of_its_container(
    docker_engine: DockerEngine, volume: str, tmp_path: Path
) -> None:
    options = ("--name", NAME, "-v", f"{volume}:/data")
    try:
        found = ending(
            docker_engine,
            tmp_path / "archive",
            lambda: docker_engine.start(*fill("/data/hog"), options=options),
        )
    finally:
        docker_engine.remove(NAME)
    place = f"/var/lib/docker/volumes/{volume}/_data"
    assert found["words"] == f"exit 1, at the same time {place} had 0 bytes free"
    assert (found["cause"], found["is_proven"]) == ("disk_full", False)


def test_a_full_writable_layer_is_named_with_the_end_of_its_container(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    container = docker_engine.docker("create", "--label", docker_engine.label, IMAGE, *fill("/hog"))
    with small_layer(docker_engine, container, tmp_path / "layer") as layer:

        def start() -> str:
            docker_engine.docker("start", container)
            return container

        found = ending(docker_engine, tmp_path / "archive", start)
    place = f"{Path(layer).parent}/{Path(layer).name[:12]}"
    assert found["words"] == f"exit 1, at the same time {place} had 0 bytes free"
    assert (found["cause"], found["is_proven"]) == ("disk_full", False)
