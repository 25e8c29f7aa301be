"""What the companion passes to the sampler, one JSON object per line, and where engines listen."""

import os
from collections.abc import Callable
from pathlib import Path

from vmsonar_archive.records import ContainerRow

from vmsonar.collectors.protocol import WireMessage, line_reader
from vmsonar.config.schema import Containers


class EngineState(WireMessage, kw_only=True, tag="engine"):
    """Whether an engine answers; sent when that changes."""

    socket: str
    #: ok, absent, permission, refused, timeout, protocol or no_sdk; ok with a detail heard less than was said
    state: str
    detail: str | None = None
    engine: str | None = None
    version: str | None = None
    cgroup_driver: str | None = None


class ContainerFacts(WireMessage, kw_only=True, tag="container"):
    """What the engine says about a container, and whose that makes it."""

    container_id: str
    engine: str
    name: str | None = None
    image: str | None = None
    image_digest: str | None = None
    command: str | None = None
    labels: dict[str, str] | None = None
    compose_project: str | None = None
    compose_service: str | None = None
    created: str | None = None
    started: str | None = None
    restart_count: int | None = None
    network_mode: str | None = None
    pid: int | None = None
    client_user: int | None = None
    compose_user: int | None = None
    bind_users: list[int] | None = None


class ContainerEvent(WireMessage, kw_only=True, tag="event"):
    """Something that happened to a container."""

    container_id: str
    #: create, start, die, oom or health
    action: str
    time_ns: int
    exit_code: int | None = None
    cpu_time: int | None = None
    runtime: int | None = None
    detail: str | None = None


class ContainerEnd(WireMessage, kw_only=True, tag="end"):
    """The row of a life's end: its control group, read between the end of its processes and its removal if possible."""

    container_id: str
    row: ContainerRow


class ContainerGone(WireMessage, kw_only=True, tag="gone"):
    """The engine has removed a container: nothing more will be said about it."""

    container_id: str


class SnapshotDone(WireMessage, kw_only=True, tag="snapshot"):
    """All containers that run have been told once."""


AnyMessage = EngineState | ContainerFacts | ContainerEvent | ContainerEnd | ContainerGone | SnapshotDone

from_line: Callable[[bytes], AnyMessage | None] = line_reader(AnyMessage)

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
