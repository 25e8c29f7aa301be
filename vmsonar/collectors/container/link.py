"""The companion that asks the engine, as the recorder sees it: connects or starts it, and keeps what it says."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.records import ContainerRow, Engine
from vmsonar_archive.system.children import python

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.container.wire import (
    AnyMessage,
    ContainerEnd,
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
    SnapshotDone,
    from_line,
)
from vmsonar.collectors.link import CompanionLink, is_readable
from vmsonar.host.clock import Clock

#: Where a companion that runs as a unit of its own listens, below /run.
COMPANION_SOCKET = "vmsonar/engine.sock"


@dataclass(frozen=True, slots=True)
class Companion:
    """The arguments of a companion that we start."""

    sockets: Sequence[str]
    labels: Sequence[str] = ()
    command_line: str = "program"
    #: Further arguments, such as shorter waits in tests.
    more: Sequence[str] = ()

    def arguments(self, descriptor: int) -> list[str]:
        words = python("-m", "vmsonar.companion", "--fd", str(descriptor))
        words += [f"--command-line={self.command_line}", *self.more]
        words += [f"--socket={path}" for path in self.sockets]
        return words + [f"--label={pattern}" for pattern in self.labels]


class Link(CompanionLink):
    """The companion that asks the engine."""

    def __init__(self, run: Path, companion: Companion, clock: Clock) -> None:
        super().__init__(run / COMPANION_SOCKET, clock)
        self._companion = companion

    def messages(self) -> list[AnyMessage]:
        """The messages since the last call."""
        return [message for line in self.lines() if (message := from_line(line)) is not None]

    def settled(self, seconds: float) -> list[AnyMessage]:
        """The messages of a companion that was just started, until its snapshot is complete or the time is up."""
        end = self._clock.monotonic_ns() + round(seconds * 1e9)
        told = self.messages()
        while self._connection is not None and not any(isinstance(each, SnapshotDone) for each in told):
            left = (end - self._clock.monotonic_ns()) / 1e9
            if left <= 0 or not is_readable(self._connection, left):
                break
            told += self.messages()
        return told

    def own_command(self, descriptor: int) -> list[str]:
        return self._companion.arguments(descriptor)

    def may_start(self) -> bool:
        there = [path for path in self._companion.sockets if os.path.exists(path)]
        if any(os.access(path, os.R_OK | os.W_OK) for path in there):
            return True
        if there:
            self._is("permission", f"{there[0]}: no permission, and no companion runs")
        else:
            self._is("absent", "no engine socket is there")
        return False


class Book:
    """Facts by container, states by socket; `take` begins a new page."""

    def __init__(self) -> None:
        self.facts: dict[str, ContainerFacts] = {}
        self.events: list[ContainerEvent] = []
        #: The rows of lives that ended, in that order.
        self.ends: list[ContainerRow] = []
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
        self.events, self.ends, self.changed, self._gone = [], [], set(), set()
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
            self.ends.append(message.row)
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
