"""What the companion has reported so far, and what is new since the last sample."""

from vmsonar_archive.records import ContainerRow, Engine

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.container.wire import (
    AnyMessage,
    ContainerEnd,
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
)


class Book:
    """Facts by container, states by socket; `take` begins a new page."""

    def __init__(self) -> None:
        self.facts: dict[str, ContainerFacts] = {}
        self.events: list[ContainerEvent] = []
        self.ends: dict[str, ContainerRow] = {}
        #: Containers about which something new was said.
        self.changed: set[str] = set()
        #: Whether any engine has ever answered: if so, it is asked for starts and ends, not guessed.
        self.heard = False
        self._early: list[AnyMessage] = []
        self._gone: set[str] = set()
        self._states: dict[str, EngineState] = {}

    def take(self, messages: list[AnyMessage]) -> None:
        """Notes the messages of one tick; what went at the last one is forgotten now."""
        for container_id in self._gone:
            self.facts.pop(container_id, None)
        self.events, self.ends, self.changed, self._gone = [], {}, set(), set()
        for message in (*self._early, *messages):
            self._note(message)
        self._early.clear()

    def keep(self, messages: list[AnyMessage]) -> None:
        """Keeps messages that came before the tick that is to take them."""
        self._early += messages

    def engines(self) -> list[Engine]:
        """The engines that answer."""
        return [
            Engine(
                engine=state.engine or "docker",
                version=state.version,
                cgroup_driver=state.cgroup_driver,
                socket=state.socket,
            )
            for state in self._states.values()
            if state.state == "ok"
        ]

    def troubles(self) -> list[Trouble]:
        """The engines that do not answer, or say more of a container than is heard."""
        return [
            (f"engine_{state.state}" if state.state != "ok" else "engine_too_large", state.detail)
            for state in self._states.values()
            if state.state != "ok" or state.detail
        ]

    def _note(self, message: AnyMessage) -> None:
        if isinstance(message, ContainerFacts):
            if self.facts.get(message.container_id) != message:
                self.changed.add(message.container_id)
            self.facts[message.container_id] = message
            self._gone.discard(message.container_id)
        elif isinstance(message, ContainerEvent):
            self.events.append(message)
        elif isinstance(message, ContainerEnd):
            self.ends[message.container_id] = message.row
        elif isinstance(message, ContainerGone):
            self._gone.add(message.container_id)
        elif isinstance(message, EngineState):
            self._note_state(message)

    def _note_state(self, state: EngineState) -> None:
        before = self._states.get(state.socket)
        self.heard = self.heard or state.state == "ok"
        # An engine that was never there is not missed.
        if state.state != "absent" or before is not None:
            self._states[state.socket] = state
