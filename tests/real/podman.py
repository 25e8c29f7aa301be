"""podman with its Docker-compatible socket (podman-system-service(1))."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import need
from tests.real.docker import SECONDS, DockerEngine, import_image
from tests.real.wait import wait_until


class PodmanEngine(DockerEngine):
    """Runs containers as DockerEngine does; `socket` is the Docker-compatible one."""

    command = "podman"
    # Without a network nothing is left on the host; podman's default limits need CAP_SYS_RESOURCE.
    run_options = ("--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
    remove_options = ("--time=0",)

    def __init__(self, socket: Path) -> None:
        super().__init__()
        self.socket = socket


@pytest.fixture(scope="session")
def podman_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanEngine]:
    """podman's service for the whole session."""
    need("podman")
    folder = tmp_path_factory.mktemp("podman")
    engine = PodmanEngine(folder / "podman.sock")
    import_image("podman")
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{engine.socket}"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
    try:
        wait_until(engine.socket.exists, SECONDS, "podman's socket")
        yield engine
    finally:
        engine.remove_all()
        service.terminate()
        service.wait(SECONDS)
