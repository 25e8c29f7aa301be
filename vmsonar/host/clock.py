"""The clocks that recording needs (clock_gettime(2)), when ticks are due, and whether time stepped or slept."""

import time
import zlib
from datetime import UTC, datetime, timedelta

from vmsonar_archive.records import EventRow, GapRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """The real clocks."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, as set by whoever sets the clock."""
        return time.time_ns()

    def boottime_ns(self) -> int:
        """Nanoseconds since boot, suspend included; never steps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def monotonic_ns(self) -> int:
        """Nanoseconds since boot, suspend left out; never steps."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def now(self) -> datetime:
        """Wall time in UTC, in microseconds."""
        return _EPOCH + timedelta(microseconds=self.wall_ns() // 1000)


# Well above what slewing moves a clock by in one interval, well below what matters to a reader.
_TOLERANCE = 500_000_000


class ClockWatch:
    """Compares how far three clocks have moved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = self._read()

    def _read(self) -> tuple[int, int, int]:
        return self._clock.wall_ns(), self._clock.boottime_ns(), self._clock.monotonic_ns()

    def events(self) -> list[EventRow]:
        """What happened to the clocks since the last call."""
        now = self._read()
        wall, boot, monotonic = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        found = []
        if boot - monotonic > _TOLERANCE:
            found.append(EventRow(event_type="resume", amount=boot - monotonic))
        if abs(wall - boot) > _TOLERANCE:
            found.append(EventRow(event_type="clock_step", amount=wall - boot))
        return found


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

    def between(self, due: int, following: int) -> int:
        """How many ticks lie between two that were waited for; a clock that was set moves them by less than one."""
        return max(0, (following - due + self.interval // 4) // self.interval - 1)


class MissedTicks:
    """Ticks at which no sample was taken, for whatever reason; the next sample written reports them."""

    def __init__(self) -> None:
        self.total = 0
        self._pending = 0
        self._since: datetime | None = None

    def add(self, count: int, since: datetime) -> None:
        if count > 0:
            self.total += count
            self._pending += count
            self._since = self._since or since

    def rows(self) -> list[GapRow]:
        """The gap rows for the next sample."""
        if not self._pending:
            return []
        detail = "the recorder was stopped, or the machine too busy or its disk too slow for it"
        return [
            GapRow(
                collector="schedule", reason="missed", detail=detail, since=self._since, lost=self._pending
            )
        ]

    def told(self) -> None:
        self._pending = 0
        self._since = None
