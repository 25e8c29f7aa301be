"""Follows one engine: asks once what runs, then listens to what happens, and begins again when that breaks."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from vmsonar.containers.wire import AnyMessage, ContainerEvent, ContainerGone, EngineState, Snapshot
from vmsonar.engine.api import EngineApi, EngineError
from vmsonar.engine.facts import exit_code_of
from vmsonar.engine.inquiry import Inquiry
from vmsonar.engine.settings import Settings

_EVENTS = {
    "create": "create",
    "start": "start",
    "die": "die",
    "died": "die",  # podman's word
    "oom": "oom",
    "health_status": "health",
}
_CHANGES = ("create", "start", "rename", "update")
_LEAVING = ("destroy", "remove")
_REMEMBERED = 4096
_CUTS_IN_A_ROW = 3


class Follower:
    """The engine behind one socket; `run` is made for a thread of its own."""

    def __init__(self, path: str, put: Callable[[AnyMessage], None], settings: Settings) -> None:
        self._path = path
        self._put = put
        self._settings = settings
        self._inquiry = Inquiry(settings)
        self._engine = "docker"
        self._state: str | None = None
        self._cuts = 0
        #: Up to when events were heard: after a break they are asked for from here on.
        self._heard_until: float | None = None
        self._running: set[str] = set()
        self._told: set[tuple[str, str, int]] = set()

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop: a session, or a wait that grows while none can be had."""
        wait = self._settings.first_wait
        while not stopping.is_set():
            began = time.monotonic()
            try:
                self._session(stopping)
            except EngineError as error:
                self._complain(error)
            except Exception as error:  # an answer of another shape than any engine gives
                detail = f"{self._path}: {type(error).__name__}: {error}"[:300]
                self._say(EngineState(socket=self._path, state="protocol", detail=detail))
            if time.monotonic() - began > self._settings.longest_wait:
                wait = self._settings.first_wait
            stopping.wait(wait)
            wait = min(wait * 2, self._settings.longest_wait)

    def _complain(self, error: EngineError) -> None:
        """One cut connection is no state yet; an engine that cuts every one makes no sense."""
        self._cuts = self._cuts + 1 if error.state == "cut" else 0
        if error.state != "cut":
            self._say(EngineState(socket=self._path, state=error.state, detail=str(error)))
        elif self._cuts >= _CUTS_IN_A_ROW:
            self._say(EngineState(socket=self._path, state="protocol", detail=str(error)))

    def _session(self, stopping: threading.Event) -> None:
        api = EngineApi(self._path, self._settings.answer_seconds)
        try:
            about = api.about()
            self._engine = about["engine"]
            began = time.time()
            if self._heard_until is not None:
                self._hear_all(api, self._heard_until, began)
            self._list(api)
            self._heard_until = began
            self._cuts = 0
            self._say(EngineState(socket=self._path, state="ok", **about))
            self._put(Snapshot())
            while not stopping.is_set():
                self._listen(api, self._heard_until)
        finally:
            api.close()

    def _listen(self, api: EngineApi, since: float) -> None:
        """Hears one window of events."""
        api.ping()
        until = time.time() + self._settings.window_seconds
        self._hear_all(api, since, until)
        self._heard_until = until

    def _hear_all(self, api: EngineApi, since: float, until: float) -> None:
        for event in api.events(since, until):
            self._hear(api, event)

    def _list(self, api: EngineApi) -> None:
        """Tells what runs now, and the end of what ran when the engine was last heard."""
        running = set(api.running())
        for container_id in sorted(running):
            self._ask(api, container_id, is_new=False)
        for container_id in self._inquiry.known():
            if container_id not in running:
                self._tell_missed(api, container_id)
        self._running = running

    def _tell_missed(self, api: EngineApi, container_id: str) -> None:
        answer = api.inspect(container_id)
        if container_id in self._running:
            code = ((answer or {}).get("State") or {}).get("ExitCode")
            self._put(
                ContainerEvent(
                    container_id=container_id,
                    action="die",
                    time_ns=time.time_ns(),
                    exit_code=code if isinstance(code, int) else None,
                    detail="noticed late: the engine did not answer when it happened",
                )
            )
        if answer is None:
            self._leave(container_id)

    def _hear(self, api: EngineApi, event: Mapping[str, Any]) -> None:
        action, _, detail = str(event.get("Action") or event.get("status") or "").partition(":")
        actor = event.get("Actor") or {}
        container_id = str(actor.get("ID") or event.get("id") or "")
        moment = int(event.get("timeNano") or 0)
        if not container_id or self._is_repeat(container_id, action, moment):
            return
        attributes = actor.get("Attributes") or {}
        if action in _LEAVING:
            self._leave(container_id)
            return
        if action not in _CHANGES or not self._ask(api, container_id, is_new=action == "create"):
            self._put_if(self._inquiry.from_event(self._engine, container_id, attributes))
        if action in _EVENTS:
            self._tell(container_id, _EVENTS[action], moment, detail.strip(), attributes)

    def _is_repeat(self, container_id: str, action: str, moment: int) -> bool:
        # Windows share their borders, and a session that begins again asks from before its list.
        if len(self._told) > _REMEMBERED:
            self._told.clear()
        key = (container_id, action, moment)
        repeated = key in self._told
        self._told.add(key)
        return repeated

    def _tell(
        self, container_id: str, action: str, moment: int, detail: str, attributes: Mapping[str, Any]
    ) -> None:
        if action == "start":
            self._running.add(container_id)
        elif action == "die":
            self._running.discard(container_id)
        self._put(
            ContainerEvent(
                container_id=container_id,
                action=action,
                time_ns=moment,
                exit_code=exit_code_of(attributes) if action == "die" else None,
                detail=detail or None,
            )
        )

    def _ask(self, api: EngineApi, container_id: str, is_new: bool) -> bool:
        facts = self._inquiry.ask(api, self._engine, container_id, is_new)
        self._put_if(facts)
        return facts is not None

    def _leave(self, container_id: str) -> None:
        self._running.discard(container_id)
        self._inquiry.forget(container_id)
        self._put(ContainerGone(container_id=container_id))

    def _put_if(self, message: AnyMessage | None) -> None:
        if message is not None:
            self._put(message)

    def _say(self, state: EngineState) -> None:
        """Tells a state when it changes; the words about the same state may differ each time."""
        if self._state != state.state:
            self._state = state.state
            self._put(state)
