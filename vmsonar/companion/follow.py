"""Follows one engine: lists what runs, then listens to events, and starts over when the connection breaks."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from vmsonar_archive.system.text import masked, printable

from vmsonar.collectors.container.wire import (
    AnyMessage,
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
    SnapshotDone,
)
from vmsonar.companion import facts as pick
from vmsonar.companion.api import CONTAINER_ID, MAX_EVENT, CompanionSettings, EngineApi
from vmsonar.companion.failures import EngineError, TooLarge
from vmsonar.companion.ownership import client_user, clients, home_owner, path_owner
from vmsonar.host.clock import Backoff

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
_MOST_TOLD = 100
_LONGEST_DETAIL = 200
_CUTS_IN_A_ROW = 3


class Follower:
    """The engine behind one socket; `run` is made for a thread of its own."""

    def __init__(self, path: str, put: Callable[[AnyMessage], None], settings: CompanionSettings) -> None:
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
        #: Containers whose description is too large, and the limit in words.
        self._too_large: dict[str, str] = {}

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop: a session, or a pause that grows while there is none."""
        backoff = Backoff(self._settings.first_wait, self._settings.longest_wait, draw=max)
        while not stopping.is_set():
            began = time.monotonic()
            try:
                self._session(stopping)
            except EngineError as error:
                self._complain(error)
            except Exception as error:  # an answer of another shape than any engine gives
                self._complain(EngineError(masked(f"{self._path}: {type(error).__name__}: {error}")))
            if time.monotonic() - began > self._settings.longest_wait:
                backoff.reset()
            stopping.wait(backoff.next())

    def _complain(self, error: EngineError) -> None:
        """One cut connection is no trouble yet; several in a row are."""
        self._cuts = self._cuts + 1 if error.state == "cut" else 0
        if error.state != "cut" or self._cuts >= _CUTS_IN_A_ROW:
            state = "protocol" if error.state == "cut" else error.state
            self._say(EngineState(socket=self._path, state=state, detail=str(error)))

    def _session(self, stopping: threading.Event) -> None:
        api = EngineApi(self._path, self._settings.answer_seconds)
        about = api.about()
        self._engine = about["engine"]
        began = time.time()
        if self._heard_until is not None:
            self._hear_all(api, self._heard_until, began)
        self._list(api)
        self._heard_until = began
        self._cuts = 0
        self._say_ok(about)
        self._put(SnapshotDone())
        while not stopping.is_set():
            api.ping()
            until = time.time() + self._settings.window_seconds
            self._hear_all(api, self._heard_until, until)
            self._heard_until = until
            self._say_ok(about)

    def _say_ok(self, about: Mapping[str, Any]) -> None:
        beyond = next(iter(self._too_large.values()), None)
        self._say(EngineState(socket=self._path, state="ok", detail=beyond, **about))

    def _hear_all(self, api: EngineApi, since: float, until: float) -> None:
        for event in api.events(since, until):
            if event:
                self._hear(api, event)
            else:
                self._too_large[""] = f"{self._path}: an event is longer than {MAX_EVENT} bytes"

    def _list(self, api: EngineApi) -> None:
        """Passes on what runs now, and the end of containers that ran when the engine was last heard."""
        running = set(api.running())
        for container_id in sorted(running):
            self._ask(api, container_id, is_new=False)
        for container_id in sorted(self._inquiry.client_users):
            if container_id not in running:
                self._tell_missed(api, container_id)
        self._running = running

    def _tell_missed(self, api: EngineApi, container_id: str) -> None:
        try:
            answer = api.inspect(container_id)
        except TooLarge:
            answer = {}
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
        known = action in _EVENTS or action in _CHANGES or action in _LEAVING
        if not known or not CONTAINER_ID.fullmatch(container_id) or not 0 <= moment < 2**63:
            return
        if self._is_repeat(container_id, action, moment):
            return
        attributes = actor.get("Attributes") or {}
        if action in _LEAVING:
            self._leave(container_id)
            return
        told = action in _CHANGES and self._ask(api, container_id, is_new=action == "create")
        if not told and container_id not in self._inquiry.client_users:
            # the engine has never said more than the event itself
            self._put(pick.from_event(container_id, attributes, self._engine, self._settings.labels))
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
                exit_code=pick.exit_code_of(attributes) if action == "die" else None,
                detail=printable(detail, _LONGEST_DETAIL) or None,
            )
        )

    def _ask(self, api: EngineApi, container_id: str, is_new: bool) -> bool:
        try:
            facts = self._inquiry.ask(api, self._engine, container_id, is_new)
            self._too_large.pop(container_id, None)
        except TooLarge as error:
            # The others must not go without their names for it.
            facts = None
            if len(self._too_large) < _MOST_TOLD:
                self._too_large[container_id] = str(error)
        if facts is not None:
            self._put(facts)
        return facts is not None

    def _leave(self, container_id: str) -> None:
        self._running.discard(container_id)
        self._inquiry.client_users.pop(container_id, None)
        self._too_large.pop(container_id, None)
        self._put(ContainerGone(container_id=container_id))

    def _say(self, state: EngineState) -> None:
        """Passes on a state when it changes; the wording of the same trouble may vary."""
        new = f"{state.state} {state.detail}" if state.state == "ok" else state.state
        if self._state != new:
            self._state = new
            self._put(state)


class Inquiry:
    """Asks about the containers of one engine, and remembers what asking again would not tell."""

    def __init__(self, settings: CompanionSettings) -> None:
        self._settings = settings
        #: Who asked the engine for each container, of those that were asked about and are not gone.
        self.client_users: dict[str, int | None] = {}
        self._digests: dict[str, str | None] = {}

    def ask(self, api: EngineApi, engine: str, container_id: str, is_new: bool) -> ContainerFacts | None:
        """The facts about a container; None when it is gone. For a new one, its client is looked for first."""
        waiting = list(clients(self._settings.host.proc)) if is_new else []
        answer = api.inspect(container_id)
        if answer is None:
            return None
        facts = self._facts(api, engine, answer)
        if waiting:
            self.client_users[container_id] = client_user(
                waiting, facts.name or "", facts.image or "", facts.compose_project
            )
        facts.client_user = self.client_users.setdefault(container_id, None)
        return facts

    def _facts(self, api: EngineApi, engine: str, answer: Mapping[str, Any]) -> ContainerFacts:
        facts = pick.from_inspect(answer, engine, self._settings.labels)
        facts.command = pick.command_of(answer, self._settings.command_line)
        facts.image_digest = self._digest(api, facts.image_digest)
        if folder := pick.working_dir_of(answer):
            facts.compose_user = path_owner(folder)
        in_homes = [path for path in pick.bind_sources(answer) if home_owner(path) is not None]
        owners = {owner for path in in_homes if (owner := path_owner(path)) is not None}
        facts.bind_users = sorted(owners) or None
        return facts

    def _digest(self, api: EngineApi, image_id: str | None) -> str | None:
        """The registry's digest where the image has one, else the image's id."""
        if image_id is None:
            return None
        if image_id not in self._digests:
            self._digests[image_id] = api.image_digest(image_id)
        return self._digests[image_id] or image_id
