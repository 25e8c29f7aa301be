"""Where things are: the roots of /proc and /sys, the archive and the configuration (XDG Base Directory, FHS 3.0)."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """The roots of one machine."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    etc: Path = Path("/etc")
    run: Path = Path("/run")

    @property
    def is_this_machine(self) -> bool:
        """Whether kept descriptors and system calls speak of the same machine as the roots."""
        return self.proc == Path("/proc")


SYSTEM_ARCHIVE = Path("/var/lib/vmsonar")
SYSTEM_FORWARD_STATE = Path("/var/lib/vmsonar-forward")
DEFAULT_CONFIG = Path("/etc/vmsonar/config.yaml")


def user_archive(environment: Mapping[str, str] = os.environ) -> Path:
    """The archive of an ordinary user."""
    if os.path.isabs(state := environment.get("XDG_STATE_HOME", "")):
        return Path(state) / "vmsonar"
    return Path(environment.get("HOME") or _home()) / ".local" / "state" / "vmsonar"


def _home() -> str:
    """By the user id: expanduser takes an empty HOME for one."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user id without a name, as containers have
        raise FileNotFoundError("no home directory is known: set HOME or XDG_STATE_HOME") from None


def archive_to_write(
    given: Path | None, configured: str | None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The archive that a recorder writes: the option, the environment, the file, or the usual place."""
    if (named := _named(given, configured, environment)) is not None:
        return named
    may_write = os.geteuid() == 0 or os.access(SYSTEM_ARCHIVE, os.W_OK)
    return SYSTEM_ARCHIVE if may_write else user_archive(environment)


def archive_to_read(
    given: Path | None, configured: str | None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The archive that a question is about: one's own where there is one, or the system's."""
    if (named := _named(given, configured, environment)) is not None:
        return named
    with suppress(FileNotFoundError):  # a user without a home has none of their own
        own = archive_to_write(None, None, environment)
        return own if (own / "archive.json").exists() else SYSTEM_ARCHIVE
    return SYSTEM_ARCHIVE


def _named(given: Path | None, configured: str | None, environment: Mapping[str, str]) -> Path | None:
    name = given or environment.get("VMSONAR_ARCHIVE") or configured
    return Path(name) if name else None


def forward_state(configured: str | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Where forwarding keeps its cursor: outside the archive, which it never writes."""
    if configured:
        return Path(configured)
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]  # set by systemd.exec(5)
    if given:
        return Path(given)
    own = user_archive(environment).with_name("vmsonar-forward")
    if os.geteuid() == 0 or (not own.exists() and os.access(SYSTEM_FORWARD_STATE, os.R_OK | os.X_OK)):
        return SYSTEM_FORWARD_STATE
    return own


def find_config(given: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that counts: the given one, VMSONAR_CONFIG, or the usual one where it exists."""
    if given is not None:
        return given
    if named := environment.get("VMSONAR_CONFIG"):
        return Path(named)
    return DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None
