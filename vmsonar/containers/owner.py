"""Whose a container is: the strongest sign that speaks, and which one it was."""

import re
from pathlib import Path
from typing import NamedTuple

from vmsonar.containers.wire import ContainerFacts

_ROOTLESS = re.compile(r"/user@(\d+)\.service(?:/|$)", re.ASCII)
_UNSET_LOGINUID = 4294967295
_WHOLE_RANGE = ["0", "0", "4294967295"]


class Owners(NamedTuple):
    """The owners (one, unless the sign is of several people) and the sign."""

    users: tuple[int, ...]
    source: str


def owner_of(
    proc: Path, engine: str | None, cgroup: str | None, pid: int | None, facts: ContainerFacts | None
) -> Owners | None:
    """Goes down the ladder: cgroup, loginuid, client, compose_dir, bind_mount, process_uid.

    A client that is root speaks for an unknown person: it is heard only when nothing else is.
    """
    client = facts.client_user if facts else None
    rungs = (
        ("cgroup", _one(rootless_user(cgroup))),
        ("loginuid", _one(_login_user(proc, pid)) if engine == "podman" else ()),
        ("client", _one(client or None)),
        ("compose_dir", _one(facts.compose_user if facts else None)),
        ("bind_mount", tuple(facts.bind_users or ()) if facts else ()),
        ("process_uid", _one(_inner_user(proc, pid))),
        ("client", _one(client)),
    )
    return next((Owners(users, source) for source, users in rungs if users), None)


def rootless_user(cgroup: str | None) -> int | None:
    """The user whose own service manager the container runs below: exact."""
    match = _ROOTLESS.search(cgroup or "")
    return int(match[1]) if match else None


def _login_user(proc: Path, pid: int | None) -> int | None:
    """Who logged in and started it; an engine without a daemon passes that on to its containers."""
    text = _read(proc, pid, "loginuid").strip()
    return int(text) if text.isdigit() and int(text) != _UNSET_LOGINUID else None


def _inner_user(proc: Path, pid: int | None) -> int | None:
    """The uid inside, where it is the same outside and not root's: weak."""
    if pid is None or _read(proc, pid, "uid_map").split() != _WHOLE_RANGE:
        return None
    try:
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return None
    return uid or None


def _one(user: int | None) -> tuple[int, ...]:
    return () if user is None else (user,)


def _read(proc: Path, pid: int | None, name: str) -> str:
    if pid is None:
        return ""
    try:
        return (proc / str(pid) / name).read_text()
    except OSError:
        return ""
