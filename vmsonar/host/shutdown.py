"""Whether the machine is going down, and to what end: systemd tells everybody (org.freedesktop.systemd1(5)).

One question over the system bus, by hand: the message format is in the D-Bus specification, and a library for it would
cost more memory than all the rest of a recorder.
"""

import os
import re
import socket
import struct
import sys
import time
from pathlib import Path

from vmsonar.host.roots import Host

#: A stop that has nothing to do with the machine's end.
STOP = "stop"
_BUS = "dbus/system_bus_socket"
_MOST = 1 << 20
_METHOD_CALL, _METHOD_RETURN = 1, 2
_PATH, _INTERFACE, _MEMBER, _DESTINATION = 1, 2, 3, 6
_HELLO = ("/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", "org.freedesktop.DBus")
_LIST_JOBS = (
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
    "ListJobs",
    "org.freedesktop.systemd1",
)
# A job for one of these targets waits in the queue until everything else has stopped.
_GOAL = re.compile(rb"\0(poweroff|reboot|halt|kexec|soft-reboot)\.target\0.{1,8}?start\0", re.DOTALL)
# What systemd becomes at the very end, or at once with --force; its first argument is the goal.
_LAST = b"systemd-shutdown"


def stop_reason(host: Host, seconds: float = 0.5) -> str | None:
    """Why we are told to stop: poweroff, reboot, halt, kexec, soft_reboot or stop; None where nobody can say."""
    return _last_words(host.proc) or _goal(host.run / _BUS, seconds)


def _last_words(proc: Path) -> str | None:
    try:
        first, *goal = (proc / "1/cmdline").read_bytes().split(b"\0")[:2]
    except OSError:
        return None
    is_last = os.path.basename(first) == _LAST and goal
    return goal[0].decode(errors="replace") if is_last else None


def _goal(bus: Path, seconds: float) -> str | None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            jobs = _Bus(line, seconds).ask(bus)
    except (OSError, ValueError, struct.error):
        return None
    found = _GOAL.search(jobs)
    return found[1].decode().replace("-", "_") if found else STOP


class _Bus:
    """One conversation, within a deadline."""

    def __init__(self, line: socket.socket, seconds: float) -> None:
        self._line = line
        self._end = time.monotonic() + seconds
        self._rest = b""

    def ask(self, bus: Path) -> bytes:
        """The body of systemd's list of jobs."""
        self._wait()
        self._line.connect(str(bus))
        self._line.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
        while b"\r\n" not in self._rest:
            self._read()
        said, _, self._rest = self._rest.partition(b"\r\n")
        if not said.startswith(b"OK"):
            raise ValueError("the bus does not know us")
        self._line.sendall(b"BEGIN\r\n" + _call(1, *_HELLO) + _call(2, *_LIST_JOBS))
        while True:
            kind, fields, body = self._message()
            if b"\x05\x01u\0" + struct.pack("=I", 2) in fields:
                if kind != _METHOD_RETURN:
                    raise ValueError("systemd does not answer")
                return body

    def _message(self) -> tuple[int, bytes, bytes]:
        """Kind, header fields and body of the next message."""
        self._fill(16)
        _, kind, _, _, size, _, length = struct.unpack("=BBBBIII", self._rest[:16])
        begin = 16 + length + -length % 8
        self._fill(begin + size)
        message, self._rest = self._rest[: begin + size], self._rest[begin + size :]
        return kind, message[16:begin], message[begin:]

    def _fill(self, size: int) -> None:
        if size > _MOST:
            raise ValueError("a message is too long")
        while len(self._rest) < size:
            self._read()

    def _read(self) -> None:
        self._wait()
        part = self._line.recv(1 << 16)
        if not part:
            raise ValueError("the bus is gone")
        self._rest += part

    def _wait(self) -> None:
        """Gives the next call what is left of the time."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._line.settimeout(left)


def _call(serial: int, path: str, interface: str, member: str, destination: str) -> bytes:
    """A method call without arguments."""
    named = ((_PATH, b"o", path), (_INTERFACE, b"s", interface), (_MEMBER, b"s", member))
    fields = b""
    for code, kind, value in (*named, (_DESTINATION, b"s", destination)):
        fields += b"\0" * (-len(fields) % 8)
        fields += struct.pack("=BBcBI", code, 1, kind, 0, len(value)) + value.encode() + b"\0"
    order = b"l" if sys.byteorder == "little" else b"B"
    head = struct.pack("=cBBBIII", order, _METHOD_CALL, 0, 1, 0, serial, len(fields))
    return head + fields + b"\0" * (-len(fields) % 8)
