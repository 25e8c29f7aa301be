"""Secrets come from files or systemd credentials (systemd.exec(5), LoadCredential=), from nowhere else."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from vmsonar_archive.errors import UsageError

_MAX_BYTES = 64 * 1024


def read_secret(name: str, key: str, environment: Mapping[str, str] = os.environ) -> str:
    """The content of a file without its last newline; a bare name is that of a systemd credential."""
    path = _place(name, key, environment)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{key}: cannot read {path}: {error.strerror}") from None
    if mode & stat.S_IROTH:
        raise UsageError(f"{key}: everybody can read {path}: chmod 600 {path}")
    secret = content.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not secret:
        raise UsageError(f"{key}: {path} is empty")
    return secret


def _place(name: str, key: str, environment: Mapping[str, str]) -> Path:
    if "/" in name:
        return Path(name)
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise UsageError(
            f"{key}: {name} is not a path, and there are no systemd credentials: give a path, "
            f"or LoadCredential={name}:/path in the unit"
        )
    return Path(folder) / name
