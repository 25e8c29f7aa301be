"""Passes messages of the followers on: to each new listener all that is known, then what is new."""

import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from vmsonar_archive.records import ContainerRow

from vmsonar.collectors.container.cgroup import Descriptors, Group, GroupReader, Hierarchies
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
from vmsonar.host.roots import Host

# A listener with a larger backlog is cut off; it may connect again.
MAX_BACKLOG = 8 * 1024 * 1024


class Endings:
    """Watches the first process of each running container by a pidfd, for a last reading at its end."""

    def __init__(self, host: Host, limit: int) -> None:
        self._hierarchies = Hierarchies(host)
        self._limit = limit
        self._groups: dict[int, tuple[str, Group]] = {}
        self._watched: dict[str, int] = {}
        self.totals: dict[str, int] = {}

    def watch(self, container_id: str, pid: int) -> int | None:
        """Holds a container's first process; returns the descriptor to wait for."""
        if container_id in self._watched or len(self._watched) >= self._limit:
            return None
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return None
        # Only now is it certain that the process in this group is the one held.
        group = self._hierarchies.of_process(pid, container_id)
        if group is None:
            os.close(descriptor)
            return None
        self._watched[container_id] = descriptor
        self._groups[descriptor] = (container_id, group)
        self.totals.pop(container_id, None)
        return descriptor

    def ended(self, descriptor: int) -> ContainerRow | None:
        """The last reading of the container whose first process has ended; None if it came too late."""
        container_id, group = self._groups.pop(descriptor)
        del self._watched[container_id]
        os.close(descriptor)
        reader = GroupReader(container_id, group, Descriptors(0))
        if not reader.read(everything=True):
            return None
        # A zombie still counts; others left mean a shared PID namespace and a total that is not final.
        if reader.row.cpu_time is not None and (reader.row.processes or 0) <= 1:
            self.totals[container_id] = reader.row.cpu_time
        return reader.row


class Hub:
    """The companion's one loop; followers hand it their messages from their threads."""

    def __init__(self, endings: Endings) -> None:
        self._endings = endings
        self._queue: deque[AnyMessage] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._empty_queue)
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
            ready = self._selector.select(timeout=60)
            # Ends first: the engine tells of an end later than the kernel, and the total goes with it.
            ready.sort(key=lambda pair: pair[0].data is not None)
            for key, mask in ready:
                handler: Callable[[int], None] | None = key.data
                if handler is None:
                    self._end(key.fd)
                elif key.fileobj in self._selector.get_map():
                    handler(mask)

    def close(self) -> None:
        """Gives back what it holds."""
        for connection in list(self._backlogs):
            self._drop(connection)
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _end(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        row = self._endings.ended(descriptor)
        if row is not None:
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
                descriptor = self._endings.watch(message.container_id, message.pid)
                if descriptor is not None:
                    self._selector.register(descriptor, selectors.EVENT_READ, None)
        elif isinstance(message, ContainerGone):
            self._facts.pop(message.container_id, None)
            self._endings.totals.pop(message.container_id, None)
        elif isinstance(message, ContainerEvent) and message.action == "die":
            message.cpu_time = self._endings.totals.get(message.container_id)
        self._broadcast(message)

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
