"""How processes ended whose main thread ended before the others: of those the connector tells the wrong status or none.

A pidfd that was opened in time tells it to anybody once the process was waited for, since Linux 6.15 (PIDFD_GET_INFO
of include/uapi/linux/pidfd.h).
"""

import fcntl
import os
import struct
from contextlib import suppress

from vmsonar.collectors.process.lives import Life

_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_EXIT = 1 << 3  # PIDFD_INFO_EXIT
# What is wanted, or was found; much that is not asked for; the wait status.
_INFO = struct.Struct("=Q52xi")
#: Each takes a descriptor from when its main thread ended until it was waited for.
MOST = 64


class Pidfds:
    """The descriptors of such processes."""

    def __init__(self) -> None:
        self._open: dict[Life, int] = {}

    def __contains__(self, life: Life) -> bool:
        return life in self._open

    def follow(self, life: Life) -> None:
        """Opens a descriptor, unless there are too many or the process is gone."""
        if len(self._open) < MOST:
            with suppress(OSError):
                self._open[life] = os.pidfd_open(life.pid)

    def leave(self, life: Life) -> None:
        if (descriptor := self._open.pop(life, None)) is not None:
            os.close(descriptor)

    def leave_all(self) -> None:
        for life in list(self._open):
            self.leave(life)

    def status(self, life: Life) -> int | None:
        """The wait status of one that was waited for; None where the kernel does not tell."""
        descriptor = self._open.get(life)
        return None if descriptor is None else exit_status(descriptor)


def exit_status(descriptor: int) -> int | None:
    """What a pidfd says; None before its process was waited for, and before Linux 6.15."""
    try:
        found, status = _INFO.unpack(fcntl.ioctl(descriptor, _GET_INFO, _INFO.pack(_EXIT, 0)))
    except OSError:
        return None
    return int(status) if found & _EXIT else None
