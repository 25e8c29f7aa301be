"""Connects the recorder to the companion, or starts it; reads its messages without waiting and keeps them."""

import os
import select
import socket
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.records import ContainerRow, Engine
from vmsonar_archive.system.children import python

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.container.wire import (
    MAX_LINE,
    AnyMessage,
    ContainerEnd,
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
    SnapshotDone,
    from_line,
)
from vmsonar.host.clock import Backoff, Clock

#: Where a companion that runs as a unit of its own listens, below /run.
COMPANION_SOCKET = "vmsonar/engine.sock"
_READ_SIZE = 256 * 1024
_MAX_READS = 64


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


class Link:
    """A connection that is restored by itself; `state` says in one word why it is down."""

    def __init__(self, run: Path, companion: Companion, clock: Clock) -> None:
        self._unit = run / COMPANION_SOCKET
        self._companion = companion
        self._clock = clock
        self._connection: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._backoff = Backoff(1, 60, draw=max)
        self._not_before = 0
        self.state = "absent"
        self.detail: str | None = None

    @property
    def pid(self) -> int | None:
        """The process at the other end, for what it costs (SO_PEERCRED of unix(7))."""
        if self._connection is None:
            return None
        if self._child is not None:
            return self._child.pid
        packed = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", packed)[0])

    def messages(self) -> list[AnyMessage]:
        """The messages since the last call."""
        if self._connection is None:
            self._connect()
        if self._connection is None:
            return []
        return [message for line in self._lines() if (message := from_line(line)) is not None]

    def settled(self, seconds: float) -> list[AnyMessage]:
        """The messages of a companion that was just started, until its snapshot is complete or the time is up."""
        end = self._clock.monotonic_ns() + round(seconds * 1e9)
        told = self.messages()
        while self._connection is not None and not any(isinstance(each, SnapshotDone) for each in told):
            left = (end - self._clock.monotonic_ns()) / 1e9
            if left <= 0 or not select.select([self._connection], [], [], left)[0]:
                break
            told += self.messages()
        return told

    def close(self) -> None:
        """Ends the companion if it is ours: it leaves when its only listener does."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(timeout=1)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def _connect(self) -> None:
        if self._clock.monotonic_ns() < self._not_before:
            return
        self._not_before = self._clock.monotonic_ns() + round(self._backoff.next() * 1e9)
        self._rest = b""
        self._connection = self._connect_to_unit() if self._unit.exists() else self._start_child()
        if self._connection is not None:
            self._connection.setblocking(False)
            self._is("ok", None)

    def _connect_to_unit(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(str(self._unit))
        except OSError as error:
            connection.close()
            self._is("companion", f"{self._unit}: {error.strerror or error}")
            return None
        return connection

    def _start_child(self) -> socket.socket | None:
        there = [path for path in self._companion.sockets if os.path.exists(path)]
        if not any(os.access(path, os.R_OK | os.W_OK) for path in there):
            if there:
                self._is("permission", f"{there[0]}: no permission, and no companion runs")
            else:
                self._is("absent", "no engine socket is there")
            # Looking again costs two system calls: no need to wait longer and longer.
            self._backoff.reset()
            return None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = subprocess.Popen(
                    self._companion.arguments(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                self._is("companion", f"cannot start the companion: {error}")
                return None
        return ours

    def _lines(self) -> list[bytes]:
        data = [self._rest]
        for _ in range(_MAX_READS):
            part = self._receive()
            if not part:
                break
            data.append(part)
        *lines, self._rest = b"".join(data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            self._lose("the companion sent a line without an end")
        if lines:
            self._backoff.reset()
        return lines

    def _receive(self) -> bytes:
        if self._connection is None:
            return b""
        try:
            part = self._connection.recv(_READ_SIZE)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._lose(f"the companion is gone: {error.strerror}")
            return b""
        if not part:
            self._lose("the companion is gone")
        return part

    def _lose(self, detail: str) -> None:
        self.close()
        self._is("companion", detail)

    def _is(self, state: str, detail: str | None) -> None:
        self.state = state
        self.detail = detail


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
