"""Connects the recorder to a companion, or starts one; reads its lines without waiting, and says why it is down."""

import select
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

from vmsonar.collectors.protocol import MAX_LINE
from vmsonar.host.clock import Backoff, Clock

_READ_SIZE = 256 * 1024
_MAX_READS = 64


def is_readable(connection: socket.socket, seconds: float) -> bool:
    """Whether it says something within that time.

    Not by select(2), which knows no descriptor above 1023: processes take thousands.
    """
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


class CompanionLink:
    """A connection that is restored by itself; `state` says in one word why it is down."""

    #: Seconds that a companion of our own has to go, and again once it was killed.
    farewell = 1.0

    def __init__(self, unit: Path | None, clock: Clock) -> None:
        #: Where a companion that runs as a unit of its own listens.
        self._unit = unit
        self._clock = clock
        self._connection: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._backoff = Backoff(1, 60, draw=max)
        self._not_before = 0
        self.state = "absent"
        self.detail: str | None = None

    def may_start(self) -> bool:
        """Whether to start a companion of our own; where not, sets `state`."""
        return False

    def own_command(self, descriptor: int) -> list[str]:
        """The command of a companion of our own, connected by that descriptor."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """The process at the other end, for what it costs (SO_PEERCRED of unix(7))."""
        if self._connection is None:
            return None
        if self._child is not None:
            return self._child.pid
        packed = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", packed)[0])

    def lines(self) -> list[bytes]:
        """The lines since the last call; connects where that is due."""
        if self._connection is None:
            self._connect()
        if self._connection is None:
            return []
        return self._lines()

    def close(self) -> None:
        """Ends the companion if it is ours; one that hangs in the kernel stays behind, and is not waited for."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._child is not None:
            self._child.terminate()
            for _ in range(2):
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(self.farewell)
                    break
                self._child.kill()
            self._child = None

    def _connect(self) -> None:
        if self._clock.monotonic_ns() < self._not_before:
            return
        self._not_before = self._clock.monotonic_ns() + round(self._backoff.next() * 1e9)
        self._rest = b""
        self._connection = (
            self._connect_to_unit() if self._unit and self._unit.exists() else self._start_child()
        )
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
        if not self.may_start():
            # Looking again costs two system calls: no need to wait longer and longer.
            self._backoff.reset()
            return None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = subprocess.Popen(
                    self.own_command(theirs.fileno()),
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
