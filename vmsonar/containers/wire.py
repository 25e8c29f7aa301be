"""What the companion passes to the sampler: one JSON object per line, of these kinds and fields only."""

import msgspec
from vmsonar_archive.records import ContainerRow

#: A longer line is not ours.
MAX_LINE = 256 * 1024


class Message(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One line."""


class EngineState(Message, kw_only=True, tag="engine"):
    """Whether an engine answers; sent when that changes."""

    socket: str
    #: ok, absent, permission, refused, timeout, protocol or no_sdk
    state: str
    detail: str | None = None
    engine: str | None = None
    version: str | None = None
    cgroup_driver: str | None = None


class ContainerFacts(Message, kw_only=True, tag="container"):
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


class ContainerEvent(Message, kw_only=True, tag="event"):
    """Something that happened to a container."""

    container_id: str
    #: create, start, die, oom or health
    action: str
    time_ns: int
    exit_code: int | None = None
    cpu_time: int | None = None
    detail: str | None = None


class ContainerEnd(Message, kw_only=True, tag="end"):
    """The last reading of a control group, taken between the end of its processes and its removal."""

    container_id: str
    row: ContainerRow


class ContainerGone(Message, kw_only=True, tag="gone"):
    """The engine has removed a container: nothing more will be said about it."""

    container_id: str


class Snapshot(Message, kw_only=True, tag="snapshot"):
    """All containers that run have been told once."""


AnyMessage = EngineState | ContainerFacts | ContainerEvent | ContainerEnd | ContainerGone | Snapshot

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AnyMessage)


def to_line(message: AnyMessage) -> bytes:
    return _encode(message) + b"\n"


def from_line(line: bytes) -> AnyMessage | None:
    """The message in a line, or None if it is not one of ours: a newer companion may say more."""
    try:
        message: AnyMessage = _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return message
