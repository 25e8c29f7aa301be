"""Whose a container is: by its paths (passwd(5)) and by the client that waits for it (proc_pid_cmdline(5))."""

import os
import pwd
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from vmsonar.host.files import read_text

Stat = Callable[[str], os.stat_result]
_NOBODY = 65534
# Homes of system accounts, such as / or /var/lib/x, say nothing about a person.
_FIRST_PERSON = 1000
_UNSET_LOGINUID = 4294967295
_CLIENTS = {"docker", "docker-compose", "podman", "nerdctl"}
# The commands of a client that start containers.
_RUNNING = {"run", "create", "up", "start"}


def home_owner(path: str) -> int | None:
    """The person whose home the path lies in."""
    folders = [PurePosixPath(path), *PurePosixPath(path).parents]
    homes = {entry.pw_dir.rstrip("/"): entry.pw_uid for entry in pwd.getpwall() if _is_person(entry.pw_uid)}
    for folder in folders:
        if (uid := homes.get(str(folder))) is not None:
            return uid
    # A directory service may not list its accounts but still knows each by name.
    return next((uid for folder in folders[:-1] if (uid := _by_name(folder)) is not None), None)


def path_owner(path: str, seconds: float = 1.0, stat: Stat = os.stat) -> int | None:
    """The owner of a path if that is a person, else the person whose home it lies in."""
    uid = _owner(path, seconds, stat)
    return uid if uid is not None and uid != 0 else home_owner(path)


def _is_person(uid: int) -> bool:
    return uid >= _FIRST_PERSON and uid != _NOBODY


def _by_name(folder: PurePosixPath) -> int | None:
    try:
        entry = pwd.getpwnam(folder.name)
    except (KeyError, ValueError):
        return None
    return entry.pw_uid if entry.pw_dir.rstrip("/") == str(folder) and _is_person(entry.pw_uid) else None


def _owner(path: str, seconds: float, stat: Stat) -> int | None:
    """The owner, asked on a thread: a dead network file system never answers."""
    answer: list[int] = []

    def ask() -> None:
        with suppress(OSError):
            answer.append(stat(path).st_uid)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else None


class EngineClient(NamedTuple):
    """A live client that starts containers."""

    pid: int
    user: int
    arguments: tuple[str, ...]

    @property
    def is_compose(self) -> bool:
        return "compose" in self.arguments or self.arguments[0].endswith("docker-compose")


def clients(proc: Path) -> Iterator[EngineClient]:
    """The clients that run now."""
    for name in os.listdir(proc):
        if name.isdigit() and read_text(proc / name / "comm") in _CLIENTS:
            arguments = tuple((read_text(proc / name / "cmdline") or "").split("\0")[:-1])
            user = _user(proc / name)
            if user is not None and _RUNNING.intersection(arguments):
                yield EngineClient(int(name), user, arguments)


def client_user(found: list[EngineClient], name: str, image: str, project: str | None) -> int | None:
    """The user of the client that asked for this container; None if none did or several may have."""
    by_name = [client for client in found if _names(client, name)]
    fitting = by_name or [client for client in found if _fits(client, image, project)]
    users = {client.user for client in fitting}
    return users.pop() if len(users) == 1 else None


def _names(client: EngineClient, name: str) -> bool:
    return f"--name={name}" in client.arguments or ("--name", name) in pairwise(client.arguments)


def _fits(client: EngineClient, image: str, project: str | None) -> bool:
    named = any(word.startswith("--name") for word in client.arguments)
    if project is None:
        return not client.is_compose and not named and image in client.arguments
    return client.is_compose


def _user(folder: Path) -> int | None:
    """Who logged in, where that is known: `sudo docker run` is still that person's."""
    loginuid = read_text(folder / "loginuid") or ""
    if loginuid.isdigit() and int(loginuid) != _UNSET_LOGINUID:
        return int(loginuid)
    try:
        return folder.stat().st_uid
    except OSError:
        return None
