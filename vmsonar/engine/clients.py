"""Who asked for a container: the docker or podman client that is still waiting for it (proc_pid_cmdline(5))."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

UNSET_LOGINUID = 4294967295
_CLIENTS = {"docker", "docker-compose", "podman", "nerdctl"}
# Python's compose, and an engine's client started by a wrapper, are told by their arguments instead.
_RUNNING = {"run", "create", "up", "start"}


class Client(NamedTuple):
    """A live client that starts containers."""

    pid: int
    user: int
    arguments: tuple[str, ...]

    @property
    def is_compose(self) -> bool:
        return "compose" in self.arguments or self.arguments[0].endswith("docker-compose")


def clients(proc: Path) -> Iterator[Client]:
    """The clients that run now."""
    for name in os.listdir(proc):
        if name.isdigit() and _read(proc / name / "comm").strip().decode("utf-8", "replace") in _CLIENTS:
            arguments = tuple(_read(proc / name / "cmdline").decode("utf-8", "replace").split("\0")[:-1])
            user = _user(proc / name)
            if user is not None and _RUNNING.intersection(arguments):
                yield Client(int(name), user, arguments)


def client_user(found: list[Client], name: str, image: str, project: str | None) -> int | None:
    """The user of the client that asked for this container; None if none did or several may have."""
    by_name = [client for client in found if _names(client, name)]
    fitting = by_name or [client for client in found if _fits(client, image, project)]
    users = {client.user for client in fitting}
    return users.pop() if len(users) == 1 else None


def _names(client: Client, name: str) -> bool:
    return f"--name={name}" in client.arguments or any(
        pair == ("--name", name) for pair in zip(client.arguments, client.arguments[1:], strict=False)
    )


def _fits(client: Client, image: str, project: str | None) -> bool:
    named = any(word.startswith("--name") for word in client.arguments)
    if project is None:
        return not client.is_compose and not named and image in client.arguments
    return client.is_compose


def _user(folder: Path) -> int | None:
    """Who logged in, where that is known: `sudo docker run` is still that person's."""
    loginuid = _read(folder / "loginuid").strip()
    if loginuid.isdigit() and int(loginuid) != UNSET_LOGINUID:
        return int(loginuid)
    try:
        return folder.stat().st_uid
    except OSError:
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
