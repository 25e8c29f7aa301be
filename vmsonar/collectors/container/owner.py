"""Finds the owner of a container and how that is known, and makes its info row."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from vmsonar_archive.records import ContainerInfoRow, EventRow
from vmsonar_archive.records.ids import SeriesIds

from vmsonar.collectors.container.wire import ContainerEvent, ContainerFacts
from vmsonar.host.files import read_text

_ROOTLESS = re.compile(r"/user@(\d+)\.service(?:/|$)", re.ASCII)
_UNSET_LOGINUID = 4294967295
_WHOLE_RANGE = ["0", "0", "4294967295"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What an info row takes from the engine as it is.
_TOLD = {*ContainerFacts.__struct_fields__} & {*ContainerInfoRow.__struct_fields__} - {"created", "started"}


class Owners(NamedTuple):
    """The owners (several only where the evidence names several people) and how they are known."""

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
    """The login user; an engine without a daemon passes its own on to its containers."""
    text = _read(proc, pid, "loginuid")
    return int(text) if text.isdigit() and int(text) != _UNSET_LOGINUID else None


def _inner_user(proc: Path, pid: int | None) -> int | None:
    """The uid inside, where it is the same outside and not root's: weak."""
    if _read(proc, pid, "uid_map").split() != _WHOLE_RANGE:
        return None
    try:
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return None
    return uid or None


def _one(user: int | None) -> tuple[int, ...]:
    return () if user is None else (user,)


def _read(proc: Path, pid: int | None, name: str) -> str:
    return (read_text(proc / str(pid) / name) if pid is not None else None) or ""


def info_row(
    ids: SeriesIds,
    container_id: str,
    facts: ContainerFacts | None,
    owners: Owners | None,
    user_name: Callable[[int], str | None],
    engine: str | None,
    cgroup: str | None,
) -> ContainerInfoRow:
    """The info row; without facts from the engine, what the control group tells."""
    row = ContainerInfoRow(
        series_id=ids.container(container_id), container_id=container_id, engine=engine, cgroup=cgroup
    )
    if owners is not None:
        row.user_source = owners.source
        # Several people cannot be one id: then only their names stand there.
        row.user_id = owners.users[0] if len(owners.users) == 1 else None
        names = [user_name(user) or (str(user) if len(owners.users) > 1 else None) for user in owners.users]
        row.user_name = ",".join(name for name in names if name) or None
    if facts is not None:
        for name in _TOLD:
            setattr(row, name, getattr(facts, name))
        row.created, row.started = parse_time(facts.created), parse_time(facts.started)
    return row


def parse_time(text: str | None) -> datetime | None:
    """An engine's time in UTC; engines write nanoseconds and any offset."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None


def event_row(ids: SeriesIds, event: ContainerEvent) -> EventRow:
    """The row of something that happened, at an unknown time where the event has none."""
    return EventRow(
        event_type=f"container_{event.action}",
        happened=_EPOCH + timedelta(microseconds=event.time_ns // 1000) if event.time_ns else None,
        series_id=ids.container(event.container_id),
        container_id=event.container_id,
        subject="container" if event.action == "die" else None,
        exit_code=event.exit_code,
        exit_source="engine" if event.exit_code is not None else None,
        runtime=event.runtime,
        cpu_time=event.cpu_time,
        detail=event.detail,
    )
