"""Passes on what followers tell: to each listener all that is known, then what is new."""

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

from vmsonar.containers.wire import (
    AnyMessage,
    ContainerEnd,
    ContainerEvent,
    ContainerFacts,
    ContainerGone,
    EngineState,
    Snapshot,
    to_line,
)
from vmsonar.engine.endings import Endings

# A listener that reads nothing for that long of a backlog is cut off; it may come back and ask anew.
MAX_BACKLOG = 8 * 1024 * 1024


class Listener:
    """One sampler at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._backlog = bytearray()

    def send(self, line: bytes) -> bool:
        """Sends what fits and keeps the rest; False when the listener is gone or asleep."""
        self._backlog += line
        return self.flush() and len(self._backlog) <= MAX_BACKLOG

    def flush(self) -> bool:
        try:
            while self._backlog:
                del self._backlog[: self.connection.send(self._backlog)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    @property
    def waits(self) -> bool:
        return bool(self._backlog)


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
        self._listeners: dict[socket.socket, Listener] = {}
        self._states: dict[str, EngineState] = {}
        self._facts: dict[str, ContainerFacts] = {}

    def put(self, message: AnyMessage) -> None:
        """For other threads."""
        self._queue.append(message)
        self.wake()

    def wake(self) -> None:
        try:
            self._wake_write.send(b"x")
        except BlockingIOError:
            return

    def listen(self, server: socket.socket) -> None:
        """Accepts listeners on a socket."""
        server.setblocking(False)

        def accept(_: int) -> None:
            connection, _address = server.accept()
            self.add(connection)

        self._selector.register(server, selectors.EVENT_READ, accept)

    def add(self, connection: socket.socket) -> None:
        """A new listener: it is told all that is known."""
        connection.setblocking(False)
        self._listeners[connection] = Listener(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._serve(connection, mask))
        known: list[AnyMessage] = [*self._states.values(), *self._facts.values()]
        for message in [*known, Snapshot()] if known else []:
            self._send(connection, to_line(message))

    def run(self, stopping: threading.Event, until_alone: bool) -> None:
        """Until told to stop or, if so wished, until the last listener is gone."""
        while not stopping.is_set() and not (until_alone and not self._listeners):
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
        for connection in list(self._listeners):
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
            self._watch(message)
        elif isinstance(message, ContainerGone):
            self._facts.pop(message.container_id, None)
            self._endings.totals.pop(message.container_id, None)
        elif isinstance(message, ContainerEvent) and message.action == "die":
            message.cpu_time = self._endings.totals.get(message.container_id)
        self._broadcast(message)

    def _watch(self, facts: ContainerFacts) -> None:
        if facts.pid is not None:
            descriptor = self._endings.watch(facts.container_id, facts.pid)
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ, None)

    def _broadcast(self, message: AnyMessage) -> None:
        line = to_line(message)
        for connection in list(self._listeners):
            self._send(connection, line)

    def _send(self, connection: socket.socket, line: bytes) -> None:
        listener = self._listeners.get(connection)
        if listener is None:
            return
        if not listener.send(line):
            self._drop(connection)
        else:
            self._adjust(listener)

    def _serve(self, connection: socket.socket, mask: int) -> None:
        listener = self._listeners[connection]
        alive = listener.flush() if mask & selectors.EVENT_WRITE else True
        if alive and mask & selectors.EVENT_READ:
            alive = self._hears(connection)
        if alive:
            self._adjust(listener)
        else:
            self._drop(connection)

    @staticmethod
    def _hears(connection: socket.socket) -> bool:
        """A listener says nothing; the end of its stream means that it is gone."""
        try:
            return bool(connection.recv(4096))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _adjust(self, listener: Listener) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if listener.waits else 0)
        key = self._selector.get_key(listener.connection)
        if key.events != wanted:
            self._selector.modify(listener.connection, wanted, key.data)

    def _drop(self, connection: socket.socket) -> None:
        del self._listeners[connection]
        self._selector.unregister(connection)
        connection.close()
