"""A real Docker engine: the one that runs, or one that we start; and an image of nothing but busybox."""

import io
import os
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import docker_answers, need
from tests.real.wait import wait_until

DOCKER = "/usr/bin/docker"  # Debian's: another client on the PATH may be newer than the engine
IMAGE = "vmsonar-test/busybox"
SECONDS = 60
APPLETS = ("cat", "date", "dd", "echo", "env", "false", "head", "ls", "nproc", "ps", "sh", "sleep", "tail",
           "test", "timeout", "touch", "true", "yes")  # fmt: skip


class DockerEngine:
    """Runs containers that carry a label of this session, so that only they are removed at its end."""

    command = DOCKER
    run_options: tuple[str, ...] = ()
    remove_options: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.label = f"vmsonar-test={secrets.token_hex(8)}"

    def docker(self, *arguments: str, check: bool = True, timeout: float = SECONDS) -> str:
        """Runs the docker command; returns its standard output without the last newline."""
        done = subprocess.run(
            [self.command, *arguments], capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{self.command} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

    def start(self, *command: str, options: tuple[str, ...] = ()) -> str:
        """Starts a container in the background; returns its 64-digit id."""
        return self.docker("run", "--detach", *self._options(options), IMAGE, *command)

    def run(self, *command: str, options: tuple[str, ...] = ()) -> str:
        """Runs a container to its end and removes it; returns what it printed."""
        return self.docker("run", "--rm", *self._options(options), IMAGE, *command)

    def remove(self, *containers: str) -> None:
        """Kills and removes; a container that is already gone is fine."""
        for container in containers:
            self.docker("rm", "--force", "--volumes", *self.remove_options, container, check=False)

    def remove_all(self) -> None:
        self.remove(*self.docker("ps", "--all", "--quiet", "--filter", f"label={self.label}").split())

    def _options(self, more: tuple[str, ...]) -> tuple[str, ...]:
        return ("--label", self.label, *self.run_options, *more)


def busybox_tar(path: str) -> bytes:
    """A root file system: a static busybox and links for its applets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "root", "sys", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        binary = tarfile.TarInfo("bin/busybox")
        binary.mode, binary.size = 0o755, os.path.getsize(path)
        with open(path, "rb") as source:
            tar.addfile(binary, source)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def import_image(command: str) -> None:
    """Makes the image for an engine (docker or podman) unless it has it."""
    if subprocess.run([command, "image", "inspect", IMAGE], capture_output=True, check=False).returncode == 0:
        return
    busybox = shutil.which("busybox")
    assert busybox is not None
    subprocess.run([command, "import", "-", f"{IMAGE}:latest"], input=busybox_tar(busybox), check=True,
                   capture_output=True, timeout=SECONDS)  # fmt: skip


def start_daemon(log: Path) -> subprocess.Popen[bytes]:
    """Starts dockerd and returns when it answers."""
    with log.open("wb") as output:
        daemon = subprocess.Popen(["dockerd"], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                  start_new_session=True)  # fmt: skip
    try:
        wait_until(docker_answers, SECONDS, f"dockerd's answer (log: {log})")
    except BaseException:
        stop_daemon(daemon)
        raise
    return daemon


def stop_daemon(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait(SECONDS)


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    """The engine with the image in it; at the end our containers go, and the daemon too if we started it."""
    need("docker")
    log = tmp_path_factory.mktemp("docker") / "dockerd.log"
    daemon = None if docker_answers() else start_daemon(log)
    engine = DockerEngine()
    try:
        import_image(DOCKER)
        yield engine
    finally:
        engine.remove_all()
        if daemon:
            stop_daemon(daemon)
