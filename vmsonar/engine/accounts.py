"""Whose a path is: by its owner or, where it cannot be looked at, by whose home it lies in (passwd(5))."""

import os
import pwd
import threading
from collections.abc import Callable
from pathlib import PurePosixPath

Stat = Callable[[str], os.stat_result]
_NOBODY = 65534
# Homes of system accounts, such as / or /var/lib/x, say nothing about a person.
_FIRST_PERSON = 1000


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
        try:
            answer.append(stat(path).st_uid)
        except OSError:
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else None
