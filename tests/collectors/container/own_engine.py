"""A Docker engine of the test's own, to be killed: its own data, socket and processes, nobody else's network."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.real.docker import DOCKER, IMAGE, SECONDS, busybox_tar
from tests.real.wait import wait_until


class OwnEngine:
    """A dockerd in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A path of a socket must be short; pytest's folders are long.
        self.socket = folder / "d.sock"
        self._daemon: subprocess.Popen[bytes] | None = None

    def docker(self, *arguments: str, check: bool = True, stdin: bytes | None = None) -> str:
        done = subprocess.run([DOCKER, "-H", f"unix://{self.socket}", *arguments], input=stdin, check=check,
                              capture_output=True, timeout=SECONDS)  # fmt: skip
        return done.stdout.decode().strip()

    def start(self) -> None:
        folder = self.folder
        # In a network namespace of its own: without a bridge, dockerd removes that of the machine.
        options = [
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--live-restore",
        ]
        options += [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        command = ["unshare", "--net", "dockerd", *options, "-H", f"unix://{self.socket}"]
        with (folder / "log").open("ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self._answers, SECONDS, f"an answer of our dockerd (log: {folder}/log)")

    def kill(self) -> None:
        """As a crash does it: what it managed goes on."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()
        # Its containerd dies with it, but stays as a zombie where the machine's first process does not reap.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            self._daemon.wait(SECONDS)
        self._end_rest()

    def _answers(self) -> bool:
        return bool(self.docker("version", "--format", "{{.Server.Version}}", check=False))

    def _end_rest(self) -> None:
        """Shims and containers that outlived a failed test, told by our folder in their arguments."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(self.folder) in word for word in process.cmdline()):
                    for each in (*process.children(recursive=True), process):
                        each.kill()
        for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", line.split()[1]], check=False, capture_output=True)


@contextlib.contextmanager
def own_engine(folder: Path) -> Iterator[OwnEngine]:
    """A running engine with the image in it; everything of it goes at the end."""
    folder.mkdir()
    engine = OwnEngine(folder)
    try:
        engine.start()
        busybox = shutil.which("busybox")
        assert busybox is not None
        engine.docker("import", "-", f"{IMAGE}:latest", stdin=busybox_tar(busybox))
        yield engine
    finally:
        with contextlib.suppress(subprocess.SubprocessError):
            engine.docker("rm", "--force", *engine.docker("ps", "--all", "--quiet").split(), check=False)
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)
