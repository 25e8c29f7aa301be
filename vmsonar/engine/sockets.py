"""Where engines listen: the system's, and those of the user who runs us."""

import os
from pathlib import Path

from vmsonar.config import Containers

_USUAL = {"docker": "docker.sock", "podman": "podman/podman.sock"}


def engine_sockets(containers: Containers, run: Path, user: int | None = None) -> list[str]:
    """The sockets to ask, as the configuration wants; they need not exist."""
    if containers.engine == "none":
        return []
    if containers.socket is not None:
        return [containers.socket]
    uid = os.getuid() if user is None else user
    folders = [run] if uid == 0 else [run, run / "user" / str(uid)]
    wanted = [name for engine, name in _USUAL.items() if containers.engine in ("auto", engine)]
    return [str(folder / name) for folder in folders for name in wanted]
