"""Passes messages of the followers on: to each new listener all that is known, then what is new."""

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from vmsonar_archive.records import ContainerRow

from vmsonar.collectors.container.wire import (
    AnyMessage,
    ContainerEnd,
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
    SnapshotDone,
)
from vmsonar.collectors.protocol import MAX_LINE, to_line
from vmsonar.companion.listeners import heard, sent
from vmsonar.companion.lives import Lives

# A listener with a larger backlog is cut off; it may connect again.
MAX_BACKLOG = 8 * 1024 * 1024


class Hub:
    """The companion's one loop; followers hand it their messages from their threads."""

    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._queue: deque[AnyMessage] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._empty_queue)
        self._selector.register(lives, selectors.EVENT_READ, lambda _: None)
        #: The samplers at the other ends, and what each has still to be sent.
        self._backlogs: dict[socket.socket, bytearray] = {}
        self._states: dict[str, EngineState] = {}
        self._facts: dict[str, ContainerFacts] = {}

    def put(self, message: AnyMessage) -> None:
        """For other threads; raises ValueError for what a listener would not take."""
        if len(to_line(message)) > MAX_LINE:
            raise ValueError(f"what the engine says makes a message of more than {MAX_LINE} bytes")
        self._queue.append(message)
        self.wake()

    def wake(self) -> None:
        with suppress(BlockingIOError):
            self._wake_write.send(b"x")

    def listen(self, server: socket.socket) -> None:
        """Accepts listeners on a socket."""
        server.setblocking(False)

        def accept(_: int) -> None:
            connection, _address = server.accept()
            self.add(connection)

        self._selector.register(server, selectors.EVENT_READ, accept)

    def add(self, connection: socket.socket) -> None:
        """Adds a listener and sends it all that is known."""
        connection.setblocking(False)
        self._backlogs[connection] = bytearray()
        self._selector.register(
            connection,
            selectors.EVENT_READ,
            lambda mask: self._serve(connection, hear=bool(mask & selectors.EVENT_READ)),
        )
        known: list[AnyMessage] = [*self._states.values(), *self._facts.values()]
        for message in [*known, SnapshotDone()] if known else []:
            self._serve(connection, to_line(message))

    def run(self, stopping: threading.Event, until_alone: bool) -> None:
        """Runs until told to stop or, with `until_alone`, until the last listener is gone."""
        while not stopping.is_set() and not (until_alone and not self._backlogs):
            ready = self._selector.select(timeout=self._lives.pause())
            # Ends first: a control group goes within milliseconds.
            self._attend_lives()
            for key, mask in ready:
                handler: Callable[[int], None] = key.data
                if key.fileobj in self._selector.get_map():
                    handler(mask)

    def close(self) -> None:
        """Gives back what it holds."""
        for connection in list(self._backlogs):
            self._drop(connection)
        self._selector.close()
        self._lives.close()
        self._wake_read.close()
        self._wake_write.close()

    def _attend_lives(self) -> None:
        for row in self._lives.attend():
            self._tell_end(row)

    def _tell_end(self, row: ContainerRow) -> None:
        self._broadcast(ContainerEnd(container_id=row.container_id, row=row))

    def _empty_queue(self, _: int) -> None:
        self._wake_read.recv(4096)
        while self._queue:
            self._handle(self._queue.popleft())

    def _handle(self, message: AnyMessage) -> None:
        if isinstance(message, EngineState):
            self._states[message.socket] = message
        elif isinstance(message, ContainerFacts):
            self._facts[message.container_id] = message
            if message.pid is not None:
                self._lives.found(message.container_id, message.pid)
        elif isinstance(message, ContainerGone):
            self._facts.pop(message.container_id, None)
            self._lives.forget(message.container_id)
        elif isinstance(message, ContainerEvent) and message.action == "start":
            self._lives.started(message.container_id, message.time_ns)
        elif isinstance(message, ContainerEvent) and message.action == "oom":
            self._lives.look(message.container_id)  # its counters go with its group, milliseconds later
        elif isinstance(message, ContainerEvent) and message.action == "die":
            self._handle_death(message)
        self._broadcast(message)

    def _handle_death(self, message: ContainerEvent) -> None:
        """Sends the last row of a life with the word of its end, and the total with that word."""
        self._attend_lives()
        row = self._lives.died(message.container_id, message.time_ns)
        if row is None:
            return
        if row.cpu_time_high is None:
            message.cpu_time = row.cpu_time
        if row.start_boottime is not None and row.end_boottime is not None:
            message.runtime = row.end_boottime - row.start_boottime
        self._tell_end(row)

    def _broadcast(self, message: AnyMessage) -> None:
        line = to_line(message)
        for connection in list(self._backlogs):
            self._serve(connection, line)

    def _serve(self, connection: socket.socket, line: bytes = b"", hear: bool = False) -> None:
        backlog = self._backlogs.get(connection)
        if backlog is None:
            return
        backlog += line
        # A listener says nothing; the end of its stream means that it is gone. A long backlog means that it sleeps.
        is_gone = (hear and heard(connection) is None) or not sent(connection, backlog)
        if is_gone or len(backlog) > MAX_BACKLOG:
            self._drop(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if backlog else 0)
        key = self._selector.get_key(connection)
        if key.events != wanted:
            self._selector.modify(connection, wanted, key.data)

    def _drop(self, connection: socket.socket) -> None:
        del self._backlogs[connection]
        self._selector.unregister(connection)
        connection.close()
