"""Makes vmsonar a service of this machine, or takes it away: sysusers.d(5), tmpfiles.d(5), systemd.unit(5)."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vmsonar_archive.errors import VmsonarError

from vmsonar.config import Config
from vmsonar.config_file import read_config
from vmsonar.lifecycle.shipped import shipped
from vmsonar.lifecycle.target import parse_target

_UNITS = Path("etc/systemd/system")
_RECORDER_DROP_INS = _UNITS / "vmsonar.service.d"
_SAVERS = ("vmsonar-bundle.service", "vmsonar-increment.service", "vmsonar-notice.service")


@dataclass(frozen=True, slots=True)
class Choice:
    """What of vmsonar is to run here."""

    #: Keep running a daemon, or take a sample a minute by a timer.
    one_shot: bool = False
    #: Grant the two capabilities that show every process's I/O.
    process_io: bool = False
    #: Bring what was recorded away: all along, and at shutdown.
    save: bool = False
    #: Forward records as the configuration says.
    forward: bool = False


class Installer:
    """Writes files below a root and tells systemd; doing it twice does nothing more."""

    def __init__(self, root: Path, run: Callable[[list[str]], None] | None = None) -> None:
        self._root = root
        self._run = run or _run
        self._live = root == Path("/")

    def install(self, choice: Choice, *, start: bool) -> list[str]:
        """Installs what was chosen and what applies here; returns the paths that were written."""
        written = [self._write(target, source.read_bytes()) for source, target in self._files(choice)]
        written += self._open_folder()
        if self._live:
            self._run(["systemd-sysusers", "/etc/sysusers.d/vmsonar.conf"])
            self._run(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/vmsonar.conf"])
            self._run(["systemctl", "daemon-reload"])
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
        removed = [path for path in self._installed() if os.path.lexists(path)]
        if purge:
            kept = ("var/lib/vmsonar", "var/lib/vmsonar-bundles", "var/lib/vmsonar-forward", "etc/vmsonar")
            removed += [self._root / name for name in kept if os.path.lexists(self._root / name)]
            removed += self._command()
        for path in removed:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
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
        if choice.save:
            units += ["vmsonar-bundle.service", "vmsonar-increment.timer"]
        if choice.save and self._config.save.notice != "none":
            units.append("vmsonar-notice.service")
        if choice.forward:
            units.append("vmsonar-forward.service")
        if self._live and find_spec("pyarrow") is not None:
            units.append("vmsonar-derive.timer")
        return units

    @property
    def _config(self) -> Config:
        path = self._root / "etc/vmsonar/config.yaml"
        return read_config(path) if path.exists() else Config()

    @property
    def has_docker(self) -> bool:
        """Whether the group of the engine's socket exists; a unit that names it fails to start where it does not."""
        try:
            groups = (self._root / "etc/group").read_text()
        except OSError:
            return False
        return any(line.startswith("docker:") for line in groups.splitlines())

    @property
    def has_nvidia(self) -> bool:
        return (self._root / "proc/driver/nvidia/version").exists()

    def _files(self, choice: Choice) -> Iterator[tuple[Path, Path]]:
        yield shipped("sysusers.conf"), Path("etc/sysusers.d/vmsonar.conf")
        yield shipped("tmpfiles.conf"), Path("etc/tmpfiles.d/vmsonar.conf")
        for unit in sorted(shipped("units").glob("vmsonar*")):
            if unit.name != "vmsonar-containers.service" or self.has_docker:
                yield unit, _UNITS / unit.name
        if choice.process_io:
            yield shipped("units/drop-ins/vmsonar-io.conf"), _RECORDER_DROP_INS / "vmsonar-io.conf"
        if self.has_nvidia:
            yield shipped("units/drop-ins/vmsonar-nvidia.conf"), _RECORDER_DROP_INS / "vmsonar-nvidia.conf"

    def _open_folder(self) -> list[str]:
        """Lets the units that save write to the folder that the configuration names, and to no other."""
        to = self._config.save.to
        places = [_UNITS / f"{unit}.d/vmsonar-save.conf" for unit in _SAVERS]
        if to is None or not parse_target(to).is_folder:
            for place in places:
                (self._root / place).unlink(missing_ok=True)
            return []
        folder = Path(to.split("{")[0] + "x").parent if "{" in to else Path(to)
        content = f"# Where save.to leads.\n[Service]\nReadWritePaths=-{folder}\n".encode()
        return [self._write(place, content) for place in places]

    def _write(self, target: Path, content: bytes) -> str:
        place = self._root / target
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.with_name(f".{place.name}.tmp")
            temporary.write_bytes(content)
            temporary.chmod(0o644)
            temporary.replace(place)
        except PermissionError:
            raise VmsonarError(f"cannot write {place}: run vmsonar install as root") from None
        return str(place)

    def _installed(self) -> Iterator[Path]:
        yield self._root / "etc/sysusers.d/vmsonar.conf"
        yield self._root / "etc/tmpfiles.d/vmsonar.conf"
        yield from sorted((self._root / _UNITS).glob("vmsonar*"))
        yield self._root / "usr/local/sbin/vmsonar-setup"

    def _command(self) -> list[Path]:
        """The link that the setup script made; until the end it reads what was recorded."""
        link = self._root / "usr/local/bin/vmsonar"
        ours = link.is_symlink() and str(link.readlink()).startswith("/opt/vmsonar/")
        return [link] if ours else []


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=_environment()
        )
    except FileNotFoundError:
        raise VmsonarError(f"{command[0]} is not here: vmsonar install needs systemd") from None
    except subprocess.TimeoutExpired:
        raise VmsonarError(f"{' '.join(command)} did not answer for two minutes") from None
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise VmsonarError(f"{' '.join(command)} failed: {' '.join(reason)}")


def _environment() -> dict[str, str]:
    """Where systemd does not run (sd_booted(3)), as when an image is built, files are all there is to change."""
    settings = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "SYSTEMD_PAGER": "cat"}
    return settings if Path("/run/systemd/system").is_dir() else {**settings, "SYSTEMD_OFFLINE": "1"}
