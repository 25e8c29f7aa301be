"""Asks one engine through the docker SDK, with a bound on every wait and answer."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from vmsonar_archive.system.errors import NOT_JSON, way_to_add
from vmsonar_archive.system.text import masked

from vmsonar.companion.failures import EngineError, NotThere, failure_of, probe
from vmsonar.config.schema import DEFAULT_LABELS
from vmsonar.host.roots import Host

T = TypeVar("T")

#: How long an engine may take to answer.
ANSWER_SECONDS = 5.0
# What happens to a container, in the engine's words; it is not even asked for anything else.
_ACTIONS = ["create", "start", "die", "died", "oom", "health_status", "destroy", "remove", "rename", "update"]
_MIB = 1 << 20
# The list has two kilobytes for each running container, and only their ids are taken from it.
_MAX_LIST = 8 * _MIB
_MAX_ANSWER = _MIB
#: The longest event that is decoded.
MAX_EVENT = _MIB // 4
#: Whatever else an engine calls a container is ignored.
CONTAINER_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class _Component(msgspec.Struct):
    Name: str = ""


class _Version(msgspec.Struct):
    ApiVersion: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")]
    Version: str | None = None
    Components: list[_Component] | None = None


class _Info(msgspec.Struct):
    CgroupDriver: str | None = None


class _Listed(msgspec.Struct):
    Id: str


class _Image(msgspec.Struct):
    RepoDigests: list[str] | None = None


class EngineApi:
    """One engine, asked in the version of the API that it prefers."""

    def __init__(self, path: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        probe(path, answer_seconds)
        try:
            from vmsonar.companion.client import BoundedClient
        except ImportError:
            raise EngineError(f"the docker SDK is missing: {way_to_add('docker')}", "no_sdk") from None
        self._path = path
        self._seconds = answer_seconds
        self._client = self._call(BoundedClient, path, answer_seconds)
        self._version = self._ask(_Version, self._client.version, api_version=False)
        self._client.speak(self._version.ApiVersion)

    def about(self) -> dict[str, Any]:
        """Name, version and control group driver of the engine."""
        info = self._ask(_Info, self._client.info)
        is_podman = any("Podman" in part.Name for part in self._version.Components or ())
        return {
            "engine": "podman" if is_podman else "docker",
            "version": self._version.Version,
            "cgroup_driver": info.CgroupDriver,
        }

    def running(self) -> list[str]:
        """The ids of the running containers."""
        listed = self._ask(list[_Listed], self._client.containers, most=_MAX_LIST)
        return [entry.Id for entry in listed if CONTAINER_ID.fullmatch(entry.Id)]

    def inspect(self, container_id: str) -> dict[str, Any] | None:
        """Everything about a container; None when it is gone."""
        with suppress(NotThere):
            return self._ask(dict[str, Any], self._client.inspect_container, container_id)
        return None

    def image_digest(self, image_id: str) -> str | None:
        """The digest under which a registry knows the image."""
        with suppress(NotThere):
            image = self._ask(_Image, self._client.inspect_image, image_id)
            return next(iter(image.RepoDigests or ()), None)
        return None

    def events(self, since: float, until: float) -> Iterator[dict[str, Any]]:
        """The events from one time to another; blocks until then. One that is too long is {}."""
        self._client.bound(max(until - since, 0) + self._seconds, MAX_EVENT)
        wanted = {"type": ["container"], "event": _ACTIONS}
        for line in self._call(self._client.events, f"{since:.9f}", f"{until:.9f}", wanted):
            event = {} if line is None else self._decoded(line, object) if line.strip() else None
            if isinstance(event, dict):
                yield event

    def ping(self) -> None:
        self._client.bound(self._seconds, _MAX_ANSWER)
        self._call(self._client.ping)

    def _ask(
        self,
        kind: type[T],
        call: Callable[..., bytes],
        *arguments: object,
        most: int = _MAX_ANSWER,
        **options: object,
    ) -> T:
        self._client.bound(self._seconds, most)
        return self._decoded(self._call(call, *arguments, **options), kind)

    def _call(self, call: Callable[..., T], *arguments: object, **options: object) -> T:
        """Calls the SDK, which lets the errors of four libraries through."""
        try:
            return call(*arguments, **options)
        except EngineError:
            raise
        except Exception as error:
            raise failure_of(self._path, error) from None

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except NOT_JSON as error:
            raise EngineError(f"{self._path}: {masked(str(error))}") from None


@dataclass(frozen=True, slots=True)
class CompanionSettings:
    """What to pass on, and how long to wait."""

    labels: tuple[str, ...] = DEFAULT_LABELS
    command_line: str = "program"
    host: Host = Host()  # noqa: RUF009 - it is frozen
    answer_seconds: float = ANSWER_SECONDS
    #: The event stream is asked for in windows: one that does not end in time is an engine that hangs.
    window_seconds: float = 30.0
    first_wait: float = 0.25
    longest_wait: float = 5.0
