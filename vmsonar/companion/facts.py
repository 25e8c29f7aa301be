"""Picks the listed fields out of what an engine says; environment variables are not among them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vmsonar.collectors.container.wire import ContainerFacts
from vmsonar.collectors.process.command import policy
from vmsonar.config.schema import allowed

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
WORKING_DIR = "com.docker.compose.project.working_dir"
# An engine's word for "never".
_NEVER = "0001-01-01T00:00:00Z"
# What an event says beside the labels of its container.
_NOT_LABELS = {
    "image",
    "name",
    "exitCode",
    "signal",
    "execID",
    "execDuration",
    "containerExitCode",
    "oldName",
    "podId",
}
_MAX_TEXT = 4096
_MAX_TIME = 64
# PID_MAX_LIMIT of the kernel's threads.h.
_MAX_PID = 2**22


def from_inspect(answer: Mapping[str, Any], engine: str, labels: Sequence[str]) -> ContainerFacts:
    """The facts in the answer to `GET /containers/ID/json`."""
    settings = _table(answer, "Config")
    state = _table(answer, "State")
    all_labels = _labels(settings.get("Labels"))
    return ContainerFacts(
        container_id=str(answer["Id"]),
        engine=engine,
        name=_text(answer.get("Name"), strip="/"),
        image=_text(settings.get("Image")),
        image_digest=_text(answer.get("Image")),
        labels=allowed(all_labels, labels),
        compose_project=_text(all_labels.get(PROJECT)),
        compose_service=_text(all_labels.get(SERVICE)),
        created=_time(answer.get("Created")),
        started=_time(state.get("StartedAt")),
        restart_count=_count(answer.get("RestartCount")),
        network_mode=_text(_table(answer, "HostConfig").get("NetworkMode")),
        pid=_count(state.get("Pid"), _MAX_PID) or None,
    )


def from_event(
    container_id: str, attributes: Mapping[str, Any], engine: str, labels: Sequence[str]
) -> ContainerFacts:
    """What the event itself says: for a container that was gone before it could be asked about."""
    all_labels = _labels({name: value for name, value in attributes.items() if name not in _NOT_LABELS})
    return ContainerFacts(
        container_id=container_id,
        engine=engine,
        name=_text(attributes.get("name")),
        image=_text(attributes.get("image")),
        labels=allowed(all_labels, labels),
        compose_project=_text(all_labels.get(PROJECT)),
        compose_service=_text(all_labels.get(SERVICE)),
    )


def command_of(answer: Mapping[str, Any], setting: str) -> str | None:
    """The command line of a container as it may be recorded."""
    program, words = str(answer.get("Path") or ""), answer.get("Args")
    arguments = [program, *(map(str, words) if isinstance(words, list) else ())]
    return policy(setting)(arguments) if program else None


def working_dir_of(answer: Mapping[str, Any]) -> str | None:
    """The folder that compose was started in."""
    return _labels(_table(answer, "Config").get("Labels")).get(WORKING_DIR)


def bind_sources(answer: Mapping[str, Any]) -> list[str]:
    """The folders of the host that a container sees."""
    mounts = answer.get("Mounts")
    return [
        str(mount.get("Source"))
        for mount in (mounts if isinstance(mounts, list) else ())
        if isinstance(mount, Mapping)
        and mount.get("Type") == "bind"
        and str(mount.get("Source")).startswith("/")
    ]


def exit_code_of(attributes: Mapping[str, Any]) -> int | None:
    """The exit code in a `die` event; podman has another name for it."""
    word = str(attributes.get("exitCode") or attributes.get("containerExitCode") or "")
    return int(word) if re.fullmatch(r"-?[0-9]{1,9}", word) else None


def _table(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = answer.get(name)
    return value if isinstance(value, Mapping) else {}


def _labels(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, Mapping) else {}


def _text(value: object, strip: str = "") -> str | None:
    return str(value).lstrip(strip)[:_MAX_TEXT] if value else None


def _count(value: object, most: int = 2**31) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _time(value: object) -> str | None:
    return str(value)[:_MAX_TIME] if value and value != _NEVER else None
