"""A machine with a kernel, a memory and a disk of its own: User-Mode Linux over the disk that `.ci/parts` built.

What nspawn cannot show is real here on any host and at nearly its speed: all controllers of cgroup v2, the kernel
choosing whom to kill when memory is short, and a power cut, which takes with it what was not written to the disk
(the kernel's Documentation/virt/uml). There is no network but loopback, and no cloud-init: nspawn's guest has those.
"""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.parts import cache_dir
from tests.real import agent
from tests.real.wait import wait_until

BOOT_SECONDS = 300
STOP_SECONDS = 300
RUN_SECONDS = 120
#: What takes time at boot and is not looked at.
UNWANTED = (
    "apparmor", "apt-daily.timer", "apt-daily-upgrade.timer", "cron", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap", "fstrim.timer", "getty@tty1", "ssh", "systemd-logind", "systemd-pstore", "systemd-timesyncd",
    "systemd-udevd", "systemd-udev-trigger",
)  # fmt: skip


class Machine:
    """Its disk and its console lie in `folder`; as a context manager it gets a disk on entry and is killed on exit."""

    def __init__(self, folder: Path, memory: str = "768M") -> None:
        self.folder, self.disk, self._memory = folder, folder / "disk", memory
        #: What the guest wrote to /dev/ttyS1 since it was switched on; it outlives a power cut.
        self.said = folder / "said"
        self._process: subprocess.Popen[bytes] | None = None
        self._agent: agent.Agent | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        copy_disk(cache_dir() / "guest.disk", self.disk)
        for name, text in agent.FILES.items():
            self.put(name, text, 0o644 if name.endswith(".service") else 0o755)
        # An empty machine id is made at first boot (machine-id(5)).
        self.change(
            'systemctl -q --root=. enable test-agent; systemctl -q --root=. mask "$@"; : > etc/machine-id',
            *UNWANTED,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut_power()
        self.disk.unlink()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def change(self, script: str, *arguments: str, text: str = "") -> None:
        """Runs a shell script in the root of the disk of a machine that is off.

        In a mount name space of its own: a copy of the mount in somebody else's would keep the disk in use.
        """
        assert not self.is_running, "two kernels must not have one disk"
        (self.folder / "mounted").mkdir(exist_ok=True)
        whole = f'mount -o loop ../disk . && cd "$PWD"\n{script}'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-euc", whole, "sh", *arguments], cwd=self.folder / "mounted",
            input=text, capture_output=True, text=True, timeout=STOP_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{script}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def put(self, name: str, text: str, mode: int = 0o644) -> None:
        """Writes a file to the disk of a machine that is off."""
        self.change('mkdir -p "$(dirname "$1")"; cat > "$1"; chmod "$2" "$1"', name, f"{mode:o}", text=text)

    def boot(self, *disks: Path) -> None:
        """Starts it, with more disks as /dev/ubdb and so on; returns when it answers, long before all units are up."""
        assert not self.is_running, "the machine is already on"
        ours, theirs = socket.socketpair()
        line = theirs.fileno()
        command = ["linux.uml", f"ubd0={self.disk}", "root=/dev/ubda", "rw", f"mem={self._memory}", "con=null",
                   "con0=null,fd:1", "ssl=null", f"ssl0=fd:{line},fd:{line}", "ssl1=null,fd:2",
                   *(f"ubd{number}={disk}" for number, disk in enumerate(disks, 1)),
                   f"uml_dir={self.folder}/", "umid=control", "cloud-init=disabled", "quiet"]  # fmt: skip
        with theirs, (self.folder / "console").open("ab") as console, self.said.open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=said, pass_fds=[line],
                start_new_session=True,
            )  # fmt: skip
        self._agent = agent.Agent(ours)
        self._agent.wait(BOOT_SECONDS)

    def run(
        self, *command: str, check: bool = True, text: str = "", seconds: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command as root."""
        assert self._agent is not None, "the machine is off"
        done = self._agent.run(list(command), text.encode(), seconds)
        output, errors = done.stdout.decode(), done.stderr.decode()
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{output}{errors}")
        return subprocess.CompletedProcess(command, done.returncode, output, errors)

    def read(self, path: str) -> str:
        return self.run("cat", path).stdout

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat > "$1"', "sh", path, text=text)

    def wait(self, condition: str, seconds: float = RUN_SECONDS) -> None:
        """Returns when a shell command succeeds."""
        try:
            wait_until(
                lambda: self.run("sh", "-c", condition, check=False).returncode == 0, seconds, condition
            )
        except TimeoutError as error:
            told = self.run(
                "sh", "-c", "systemctl list-jobs; journalctl --no-pager | tail -n 40", check=False
            )
            raise TimeoutError(f"{error}\n{told.stdout}") from None

    def copy_out(self, path: str, target: Path) -> Path:
        """Copies a tree off a machine that is off."""
        self.change('cp -a "$1" "$2"', path.lstrip("/"), str(target))
        return target

    def power_off(self) -> float:
        """An orderly power-off; returns the seconds it took."""
        begin = time.monotonic()
        self.run("systemctl", "--no-block", "poweroff")
        self._wait_until_off(STOP_SECONDS)
        return time.monotonic() - begin

    def cut_power(self) -> None:
        """Pulls the plug: memory is gone, the disk has what was written to it."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._wait_until_off(STOP_SECONDS)

    def _wait_until_off(self, seconds: float) -> None:
        assert self._process is not None
        assert self._agent is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still on after {seconds:g} s (see {self.folder}/console)") from None
        finally:
            _end_group(self._process)
            self._agent.close()
            self._process = self._agent = None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Its processes, which stand for those of the guest, go as well."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def copy_disk(source: Path, target: Path) -> None:
    """With the holes that the source has."""
    command = ["cp", "--sparse=always", "--reflink=auto", str(source), str(target)]
    subprocess.run(command, check=True, timeout=RUN_SECONDS)
