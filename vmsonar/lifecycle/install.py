"""Makes vmsonar a service of this machine or image, or takes it away: sysusers.d(5), tmpfiles.d(5), systemd.unit(5)."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import AtomicFile

from vmsonar.config.file import read_config
from vmsonar.config.schema import Config
from vmsonar.lifecycle.target import parse_target

_IN_WHEEL = Path(__file__).with_name("files")
_IN_SOURCES = Path(__file__).resolve().parents[2] / "cloud-init"

_SYSUSERS = Path("etc/sysusers.d/vmsonar.conf")
_TMPFILES = Path("etc/tmpfiles.d/vmsonar.conf")
_UNITS = Path("etc/systemd/system")
_RECORDER_DROP_INS = _UNITS / "vmsonar.service.d"
_PRESET = Path("etc/systemd/system-preset/50-vmsonar.preset")
#: What every unit runs.
_PROGRAM = Path("opt/vmsonar/bin/python")
#: What stays unless it is purged.
_KEPT = (
    "var/lib/vmsonar",
    "var/lib/vmsonar-bundles",
    "var/lib/vmsonar-forward",
    "var/lib/vmsonar-fleet",
    "etc/vmsonar",
)
_SAVERS = ("vmsonar-bundle.service", "vmsonar-increment.service", "vmsonar-notice.service")


def shipped(name: str) -> Path:
    """The path of a file of cloud-init/, from the wheel or the repository."""
    for folder in (_IN_WHEEL, _IN_SOURCES):
        if (folder / name).exists():
            return folder / name
    raise VmsonarError(f"{name} is missing from this installation: install vmsonar again")


@dataclass(frozen=True, slots=True)
class Choice:
    """The parts of vmsonar to run here."""

    #: Keep running a daemon, or take a sample a minute by a timer.
    one_shot: bool = False
    #: Grant the two capabilities that show every process's I/O.
    process_io: bool = False
    #: Bring what was recorded away: all along, and at shutdown.
    save: bool = False
    #: Forward records as the configuration says.
    forward: bool = False
    #: Answer Prometheus' scrapes on loopback.
    metrics: bool = False
    #: Serve a fleet, and keep it in order.
    serve: bool = False
    #: Read the account of every process that ends, by a companion with CAP_NET_ADMIN.
    accounts: bool = False


class Installer:
    """Writes files below a root and reloads systemd; idempotent."""

    def __init__(self, root: Path, run: Callable[[list[str]], None] | None = None) -> None:
        self._root = root.resolve()
        self._run = run or _run
        self._live = self._root == Path("/")

    def install(self, choice: Choice, *, start: bool) -> list[str]:
        """Installs what was chosen and what applies here; returns the paths that were written."""
        written = [self._write(target, source.read_bytes()) for source, target in self._files(choice)]
        written += self._open_folder()
        written.append(self._write(_PRESET, self._preset(choice).encode()))
        if not self._live:
            self._enable_in_image(choice)
        else:
            self._run(["systemd-sysusers", f"/{_SYSUSERS}"])
            self._run(["systemd-tmpfiles", "--create", f"/{_TMPFILES}"])
            self._run(["systemctl", "daemon-reload"])
            self._run(["systemctl", "disable", _other_recorder(choice)])
            if start:  # in two steps: disable --now fails where systemd does not run
                self._run(["systemctl", "--no-block", "stop", _other_recorder(choice)])
            for unit in self.enabled(choice):
                self._run(["systemctl", "enable", unit])
                if start:
                    # Without --no-block this would wait, in cloud-init's final stage, for what waits for that stage.
                    # To restart the one that acts when it is stopped would be a teardown.
                    verb = "start" if unit == "vmsonar-bundle.service" else "restart"
                    self._run(["systemctl", "--no-block", verb, unit])
        return written

    def uninstall(self, *, purge: bool) -> list[str]:
        """Stops and removes what install wrote; the archive and the configuration go only when purged."""
        if self._live:
            units = sorted(path.name for path in (self._root / _UNITS).glob("vmsonar*") if path.is_file())
            if units:
                self._run(["systemctl", "stop", *units])
                self._run(["systemctl", "disable", *units])
        written = [self._root / name for name in (_SYSUSERS, _TMPFILES, _PRESET)]
        written += [*self._links("vmsonar*"), *sorted((self._root / _UNITS).glob("vmsonar*"))]
        written.append(self._root / "usr/local/sbin/vmsonar-setup")
        if purge:
            written += [self._root / name for name in _KEPT]
            # The link that the setup script made; until the end it reads what was recorded.
            link = self._root / "usr/local/bin/vmsonar"
            if link.is_symlink() and str(link.readlink()).startswith("/opt/vmsonar/"):
                written.append(link)
        removed = [path for path in written if os.path.lexists(path)]
        self._remove(removed)
        if self._live:
            self._run(["systemctl", "daemon-reload"])
            # One that ended badly would stay in systemd's list although its file is gone.
            self._run(["systemctl", "reset-failed", "vmsonar*"])
        return [str(path) for path in removed]

    def enabled(self, choice: Choice) -> list[str]:
        """The units that are to start with the machine."""
        units = ["vmsonar-sample.timer" if choice.one_shot else "vmsonar.service"]
        if self.has_docker and not choice.one_shot:
            units.append("vmsonar-containers.service")
        if choice.accounts and not choice.one_shot:
            units.append("vmsonar-accounts.service")
        if self._config.collectors.slurm != "none" and not choice.one_shot:
            units.append("vmsonar-slurm.service")
        if choice.save:
            units += ["vmsonar-bundle.service", "vmsonar-increment.timer"]
        if choice.save and self._config.save.notice != "none":
            units.append("vmsonar-notice.service")
        if choice.forward:
            units.append("vmsonar-forward.service")
        if choice.metrics:
            units.append("vmsonar-metrics.service")
        if choice.serve:
            units += ["vmsonar-serve.service", "vmsonar-collect.service"]
        if self.has_pyarrow:
            units.append("vmsonar-derive.timer")
        return units

    def check_program(self) -> None:
        """Raises if the program that the units run is missing."""
        if not os.path.lexists(self._root / _PROGRAM):
            raise VmsonarError(
                f"{self._root / _PROGRAM} is not there, and the units run it: put vmsonar there first, with its "
                "single file (sudo python3 vmsonar-….pyz, in a chroot for an image) or from a wheelhouse"
            )

    @property
    def has_pyarrow(self) -> bool:
        if self._live:
            return find_spec("pyarrow") is not None
        return any(self._root.glob("opt/vmsonar/lib/python3*/site-packages/pyarrow"))

    def _enable_in_image(self, choice: Choice) -> None:
        """Does what systemctl enable would, and has the next boot create the user; works without systemd."""
        self._remove(self._links(_other_recorder(choice)))
        for unit in self.enabled(choice):
            for target in re.findall(r"(?m)^WantedBy=(\S+)$", (self._root / _UNITS / unit).read_text()):
                link = self._inside(_UNITS / f"{target}.wants" / unit)
                link.parent.mkdir(exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(f"/{_UNITS / unit}")
        # systemd-sysusers.service runs only where /etc is older than /usr (ConditionNeedsUpdate=, systemd.unit(5)).
        self._inside(Path("etc/.updated")).unlink(missing_ok=True)

    def _links(self, unit: str) -> list[Path]:
        # By a pattern: of a plain name glob() wants that the link leads somewhere, and it does only in the image.
        found = sorted((self._root / _UNITS).glob("*.wants/vmsonar*"))
        return [link for link in found if fnmatchcase(link.name, unit)]

    def _preset(self, choice: Choice) -> str:
        """A first boot enables by preset, on Debian all there is: the timer that stops the recorder as well."""
        chosen = "".join(f"enable {unit}\n" for unit in self.enabled(choice))
        return f"# What the first boot of an image enables (systemd.preset(5)).\n{chosen}disable vmsonar*\n"

    @property
    def _config(self) -> Config:
        path = self._plain_file(Path("etc/vmsonar/config.yaml"))
        return read_config(path) if path else Config()

    @property
    def has_docker(self) -> bool:
        """Whether the group of the engine's socket exists; a unit that names it fails to start where it does not."""
        path = self._plain_file(Path("etc/group"))
        return path is not None and any(line.startswith("docker:") for line in path.read_text().splitlines())

    def _files(self, choice: Choice) -> Iterator[tuple[Path, Path]]:
        yield shipped("sysusers.conf"), _SYSUSERS
        yield shipped("tmpfiles.conf"), _TMPFILES
        for unit in sorted(shipped("units").glob("vmsonar*")):
            if unit.name != "vmsonar-containers.service" or self.has_docker:
                yield unit, _UNITS / unit.name
        if choice.process_io:
            yield shipped("units/drop-ins/vmsonar-io.conf"), _RECORDER_DROP_INS / "vmsonar-io.conf"
        if (self._root / "proc/driver/nvidia/version").exists():
            yield shipped("units/drop-ins/vmsonar-nvidia.conf"), _RECORDER_DROP_INS / "vmsonar-nvidia.conf"

    def _open_folder(self) -> list[str]:
        """Lets the units that save write to the folder that the configuration names, and to no other."""
        to = self._config.save.to
        target = parse_target(to) if to is not None else None
        places = [_UNITS / f"{unit}.d/vmsonar-save.conf" for unit in _SAVERS]
        if target is None or not target.is_folder:
            self._remove([self._root / place for place in places])
            return []
        content = f"# Where save.to leads.\n[Service]\nReadWritePaths=-{target.fixed_folder}\n".encode()
        return [self._write(place, content) for place in places]

    def _inside(self, target: Path) -> Path:
        """A path below the root; a link in an image must not lead us to the machine that we run on."""
        place = self._root / target
        if not place.parent.resolve().is_relative_to(self._root):
            raise VmsonarError(
                f"{place.parent} leads out of {self._root}: run vmsonar install inside of it (chroot)"
            )
        return place

    def _plain_file(self, target: Path) -> Path | None:
        """A file to read below the root, None where there is none; in an image it may be a FIFO, or lead out."""
        place = self._root / target
        if not os.path.lexists(place):
            return None
        if not place.is_file() or not place.resolve().is_relative_to(self._root):
            raise VmsonarError(f"{place} is not a plain file inside of {self._root}: remove it")
        return place

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            place = self._inside(path.relative_to(self._root))
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)

    def _write(self, target: Path, content: bytes) -> str:
        place = self._inside(target)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with AtomicFile(place, durable=False) as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o644)
        except PermissionError:
            raise VmsonarError(f"cannot write {place}: run vmsonar install as root") from None
        return str(place)


def _other_recorder(choice: Choice) -> str:
    """The unit of the other form of recording, which must not run beside the chosen one."""
    return "vmsonar.service" if choice.one_shot else "vmsonar-sample.timer"


def _run(command: list[str]) -> None:
    environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "SYSTEMD_PAGER": "cat"}
    if not Path("/run/systemd/system").is_dir():
        # Where systemd does not run (sd_booted(3)), as when an image is built, files are all there is to change.
        environment["SYSTEMD_OFFLINE"] = "1"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=environment
        )
    except FileNotFoundError:
        raise VmsonarError(f"{command[0]} is not here: vmsonar install needs systemd") from None
    except subprocess.TimeoutExpired:
        raise VmsonarError(f"{' '.join(command)} did not answer for two minutes") from None
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise VmsonarError(f"{' '.join(command)} failed: {' '.join(reason)}")
