"""Asks one engine through the docker SDK, with a bound on every wait."""

import errno
import json
import socket
from collections.abc import Iterator
from typing import Any

#: How long an engine may take to answer.
ANSWER_SECONDS = 5.0
# What happens to a container, as the engine calls it; anything else is not even sent to us.
_ACTIONS = ["create", "start", "die", "died", "oom", "health_status", "destroy", "remove", "rename", "update"]
_MAX_EVENT = 1 << 20
_STATES = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ECONNREFUSED: "refused",
    errno.EAGAIN: "timeout",
    errno.ETIMEDOUT: "timeout",
}


class EngineError(Exception):
    """The engine does not answer as it should; `state` says in one word how.

    A connection that is `cut` says little: asking again tells whether the engine is gone.
    """

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(detail)
        self.state = state


def probe(path: str, seconds: float) -> None:
    """Whether somebody listens; asked before the SDK is imported."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(seconds)
        try:
            client.connect(path)
        except OSError as error:
            raise EngineError(_state_of(error), f"{path}: {error.strerror or error}") from None


def _state_of(error: OSError) -> str:
    return "timeout" if isinstance(error, TimeoutError) else _STATES.get(error.errno or 0, "refused")


def _state_in(text: str) -> str:
    """What an error of the SDK means; its classes do not tell a cut connection from a strange answer."""
    if "timed out" in text:
        return "timeout"
    cut = ("Connection broken", "Connection aborted", "ended prematurely", "IncompleteRead")
    return "cut" if any(word in text for word in cut) else "protocol"


class EngineApi:
    """One engine."""

    def __init__(self, path: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        probe(path, answer_seconds)
        self._path = path
        self._seconds = answer_seconds
        self._client = self._connect()

    def about(self) -> dict[str, Any]:
        """Name, version and control group driver of the engine."""
        version = self._ask(self._client.version)
        info = self._ask(self._client.info)
        names = [str(part.get("Name")) for part in version.get("Components") or () if isinstance(part, dict)]
        return {
            "engine": "podman" if any("Podman" in name for name in names) else "docker",
            "version": version.get("Version"),
            "cgroup_driver": info.get("CgroupDriver"),
        }

    def running(self) -> list[str]:
        """The ids of the containers that run."""
        answer = self._ask(self._client.containers, quiet=True)
        return [str(entry["Id"]) for entry in answer]

    def inspect(self, container_id: str) -> dict[str, Any] | None:
        """Everything about a container; None when it is gone."""
        return self._ask_or_none(self._client.inspect_container, container_id)

    def image_digest(self, image_id: str) -> str | None:
        """The digest under which the image is known to a registry."""
        answer = self._ask_or_none(self._client.inspect_image, image_id)
        digests = (answer or {}).get("RepoDigests") or []
        return str(digests[0]) if digests else None

    def events(self, since: float, until: float) -> Iterator[dict[str, Any]]:
        """What happened and happens from one time to another; blocks until then.

        Asked through the SDK's session: its own `events` waits without a bound for an engine that hangs.
        """
        wanted = json.dumps({"type": ["container"], "event": _ACTIONS})
        response = self._ask(
            self._client.get,
            f"{self._client.base_url}/v{self._client.api_version}/events",
            params={"since": f"{since:.9f}", "until": f"{until:.9f}", "filters": wanted},
            stream=True,
            timeout=(self._seconds, max(until - since, 0) + self._seconds),
        )
        with response:
            self._ask(response.raise_for_status)
            yield from self._lines(response.iter_content(chunk_size=None))

    def ping(self) -> None:
        self._ask(self._client.ping)

    def close(self) -> None:
        self._client.close()

    def _lines(self, chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
        rest = b""
        while (chunk := self._ask(next, chunks, None)) is not None:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _MAX_EVENT:
                raise EngineError("protocol", f"{self._path}: an event without an end")
            for line in lines:
                event = self._ask(json.loads, line) if line.strip() else None
                if isinstance(event, dict):
                    yield event

    def _connect(self) -> Any:
        try:
            import docker
        except ImportError:
            raise EngineError("no_sdk", "the docker SDK is missing: pip install 'vmsonar[docker]'") from None
        return self._ask(
            docker.APIClient, base_url=f"unix://{self._path}", version="auto", timeout=self._seconds
        )

    def _ask_or_none(self, call: Any, argument: str) -> dict[str, Any] | None:
        from docker.errors import NotFound

        try:
            answer: dict[str, Any] = self._ask(call, argument)
        except EngineError as error:
            if isinstance(error.__cause__, NotFound):
                return None
            raise
        return answer

    def _ask(self, call: Any, *arguments: Any, **options: Any) -> Any:
        """Calls the SDK; whatever it raises becomes one kind of error."""
        try:
            return call(*arguments, **options)
        except Exception as error:  # the SDK lets errors of four libraries through
            text = f"{self._path}: {error}".replace("\n", " ")[:300]
            raise EngineError(_state_in(text), text) from error
