"""Reports state to the service manager (sd_notify(3), sd_watchdog_enabled(3)) over a plain socket."""

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

from vmsonar.host.clock import Clock


class Notifier:
    """Sends datagrams to NOTIFY_SOCKET; silent where there is none."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._status = ""
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def send(self, message: str) -> None:
        """Sends one message; a manager that does not listen is ignored."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(message.encode(), self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ready(self) -> None:
        self.send("READY=1")

    def reloading(self, monotonic_ns: int) -> None:
        self.send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_ns // 1000}")

    def stopping(self) -> None:
        self.send("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for people, sent when it differs from the last."""
        if text != self._status:
            self._status = text
            self.send(f"STATUS={text}")


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often the manager expects a sign of life, or None."""
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 1e6


class Watchdog:
    """Reports that we live from a thread of its own: a disk that hangs must not get the recorder killed.

    Only collecting is watched: it is silent once that has taken longer than the manager's patience.
    """

    def __init__(self, notifier: Notifier, clock: Clock, seconds: float | None) -> None:
        self._notifier = notifier
        self._clock = clock
        self._seconds = seconds
        self._busy_since: int | None = None
        self._end = threading.Event()
        if seconds is not None:
            threading.Thread(target=self._run, name="vmsonar-watchdog", daemon=True).start()

    def collecting(self) -> None:
        self._busy_since = self._clock.monotonic_ns()

    def resting(self) -> None:
        """Waiting for the next tick, or for the disk."""
        self._busy_since = None

    @property
    def alive(self) -> bool:
        since = self._busy_since
        if since is None or self._seconds is None:
            return True
        return self._clock.monotonic_ns() - since < self._seconds * 1e9

    def close(self) -> None:
        self._end.set()

    def _run(self) -> None:
        assert self._seconds is not None
        while not self._end.wait(self._seconds / 3):
            if self.alive:
                self._notifier.send("WATCHDOG=1")
