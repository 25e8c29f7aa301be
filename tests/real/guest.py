"""A systemd guest with cloud-init, booted by systemd-nspawn(1) over the tree that `.ci/parts` built.

It is a machine in all that matters to units: its own PID 1, processes, mounts, network, boot id, an orderly
power-off and a hard kill. The kernel is the host's.
"""

import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.parts import cache_dir
from tests.real.console import Console
from tests.real.guest_seed import write_seed
from tests.real.wait import wait_until

BOOT_SECONDS = 120
STOP_SECONDS = 120
RUN_SECONDS = 60
FINAL = "/run/cloud-init/result.json"  # cloud-init writes it last of all


class Guest:
    """A guest below `folder`; as a context manager it is prepared on entry, and killed and unmounted on exit.

    with Guest(tmp_path, user_data="#cloud-config\\n...") as guest:
        guest.copy_in(wheel, "/root/vmsonar.whl")
        guest.boot()
        print(guest.run("systemctl", "is-system-running", check=False).stdout)
        guest.power_off()
        bundle = guest.read("/var/lib/vmsonar/bundle.tar")
    """

    def __init__(
        self,
        folder: Path,
        user_data: str = "#cloud-config\n{}\n",
        instance_id: str = "i-test",
        host_name: str = "guest",
        disk: str = "2g",
        options: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.user_data, self.instance_id, self.host_name = user_data, instance_id, host_name
        self._disk, self._options = disk, options
        self._name = f"vmsonar-{secrets.token_hex(4)}"
        self._console: Console | None = None
        self._leader: int | None = None

    def __enter__(self) -> Self:
        _mount_overlay(self.folder, self._disk)
        try:
            self.write("/etc/machine-id", "")  # empty: made at first boot (machine-id(5))
            self.seed()
        except BaseException:
            self._unmount()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._unmount()

    @property
    def is_running(self) -> bool:
        return self._console is not None and self._console.is_running

    @property
    def leader(self) -> int:
        """The guest's PID 1, as the host sees it."""
        assert self._leader is not None, "the guest is not running"
        return self._leader

    def seed(self) -> None:
        """(Re)writes cloud-init's seed; a new instance id makes the next boot a first boot."""
        write_seed(self.root, self.user_data, self.instance_id, self.host_name)

    def boot(self, until_final: bool = True) -> None:
        """Starts the guest; returns when cloud-init has finished, or at once when PID 1 is there."""
        assert not self.is_running, "the guest is already running"
        command = ["systemd-nspawn", "--quiet", "--directory", str(self.root), "--machine", self._name,
                   "--register=no", "--keep-unit", "--private-network", *self._options, "--boot"]  # fmt: skip
        # The guest gets cgroup v2 even on a host that still has v1 beside it.
        environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        self._console = Console(command, self.folder / "console.log", environment)
        try:
            wait_until(self._find_leader, BOOT_SECONDS, "the guest's PID 1", every=0.02)
            if until_final:
                self.wait_for(FINAL, BOOT_SECONDS)
        except BaseException:
            self.kill()
            raise

    def wait_for(self, path: str, seconds: float) -> None:
        """Returns when a path exists in the running guest."""
        wait_until(
            lambda: self._exists(path), seconds, f"{path} in the guest (see {self.folder}/console.log)"
        )

    def run(
        self, *command: str, check: bool = True, text: str | None = None, seconds: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command as root in the guest (in no cgroup of its own: for that run systemd-run)."""
        done = subprocess.run([*self._enter(), *command], input=text, capture_output=True, text=True,
                              timeout=seconds, check=False)  # fmt: skip
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def write(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Writes a file into the guest, running or not (not below /run or /tmp of a running one)."""
        target = self._host_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(mode)

    def read(self, path: str) -> bytes:
        """Reads a file of the guest; of a running one anywhere, of a stopped one from its disk."""
        if not self.is_running:
            return self._host_path(path).read_bytes()
        done = subprocess.run(
            [*self._enter(), "cat", path], capture_output=True, timeout=RUN_SECONDS, check=False
        )
        if done.returncode != 0:
            raise FileNotFoundError(done.stderr.decode().strip())
        return done.stdout

    def copy_in(self, source: Path, path: str) -> None:
        """Copies a file or a tree into the guest's disk."""
        target = self._host_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)

    def copy_out(self, path: str, target: Path) -> Path:
        """Copies a file or a tree out of the guest's disk."""
        source = self._host_path(path)
        if source.is_dir():
            return shutil.copytree(source, target, symlinks=True)
        return shutil.copy2(source, target)

    def power_off(self, seconds: float = STOP_SECONDS) -> None:
        """An orderly power-off, as from the cloud's console; returns when it is off."""
        assert self._console is not None, "the guest is not running"
        self._console.signal(signal.SIGTERM)  # nspawn tells PID 1 to power off
        self.wait_until_off(seconds)

    def reboot(self, until_final: bool = True) -> None:
        """An orderly reboot from inside: a new boot id on the same disk."""
        self.run("systemctl", "reboot", check=False)
        self.wait_until_off(STOP_SECONDS)
        self.boot(until_final)

    def kill(self) -> None:
        """Pulls the plug: every process of the guest is gone at once."""
        if self._console is None:
            return
        if self._leader is not None and self._console.is_running:
            os.kill(self._leader, signal.SIGKILL)  # the kernel then kills the rest of its PID namespace
        else:
            self._console.signal(signal.SIGKILL)
        self.wait_until_off(STOP_SECONDS)

    def wait_until_off(self, seconds: float = STOP_SECONDS) -> None:
        """Returns when it has gone down by itself."""
        assert self._console is not None
        self._console.wait(seconds)
        self._console = self._leader = None

    def _enter(self) -> list[str]:
        assert self.is_running, "the guest is not running"
        return ["nsenter", "--target", str(self.leader), "--all", "--root", "--wd", "env", "-i",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                "LANG=C.UTF-8"]  # fmt: skip

    def _exists(self, path: str) -> bool:
        assert self._console is not None
        if not self._console.is_running:
            raise RuntimeError(f"the guest went off:\n{self._console.tail()}")
        return self.run("test", "-e", path, check=False).returncode == 0

    def _find_leader(self) -> bool:
        assert self._console is not None
        if not self._console.is_running:
            raise RuntimeError(f"systemd-nspawn ended:\n{self._console.tail()}")
        self._leader = next((pid for pid in _children(self._console.pid) if _is_init(pid)), None)
        return self._leader is not None

    def _host_path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _unmount(self) -> None:
        for mount in (self.root, self.folder / "layer"):
            subprocess.run(["umount", "--lazy", str(mount)], check=True, timeout=RUN_SECONDS)


def _mount_overlay(folder: Path, disk: str) -> None:
    """Mounts the guest's tree; what it writes goes to a tmpfs, which works on any host and then vanishes."""
    layer, root = folder / "layer", folder / "root"
    for each in (layer, root):
        each.mkdir(parents=True)
    _mount("tmpfs", layer, f"size={disk},mode=0755")
    for each in ("upper", "work"):
        (layer / each).mkdir(mode=0o755)
    _mount("overlay", root, f"lowerdir={cache_dir() / 'guest'},upperdir={layer}/upper,workdir={layer}/work")


def _mount(kind: str, target: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(target)], check=True, timeout=RUN_SECONDS)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_init(pid: int) -> bool:
    """Is it PID 1 of an inner PID namespace, and no longer nspawn's own code (proc(5), NSpid)?"""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return fields["NSpid"].split()[-1] == "1" and fields["Name"] in ("systemd", "init")
