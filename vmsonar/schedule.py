"""When the ticks are: at multiples of the interval, moved by an offset that is the node's own."""

import zlib


def node_offset(machine_id: str, interval: int) -> int:
    """A stable part of the interval in nanoseconds, so that the nodes of a fleet do not beat in time."""
    return zlib.crc32(machine_id.encode()) * interval >> 32


class Schedule:
    """Ticks in wall time; all in nanoseconds."""

    def __init__(self, interval: int, machine_id: str) -> None:
        self.interval = interval
        self._offset = node_offset(machine_id, interval)

    def wait_from(self, wall: int) -> int:
        """How long from now to the next tick; it is at most one and a half intervals, however clocks jump.

        A tick less than half an interval away counts as the one that was just taken: a clock that is being
        slewed may reach it a little early. Ticks that were missed are skipped, not made up for.
        """
        wait = self.interval - (wall - self._offset) % self.interval
        return wait if 2 * wait >= self.interval else wait + self.interval
