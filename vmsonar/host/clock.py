"""Clocks (clock_gettime(2)), when ticks are due, whether time stepped or slept, and pauses between retries."""

import time
import zlib
from collections.abc import Callable
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
        row = GapRow(
            collector="schedule", reason="missed", detail=detail, since=self._since, lost=self._pending
        )
        return [row]

    def told(self) -> None:
        self._pending = 0
        self._since = None


def jitter(low: float, high: float) -> float:
    """A random number between both; `random` is imported late because the daemon never needs it."""
    from random import uniform

    return uniform(low, high)  # noqa: S311 - no secret


class Backoff:
    """Seconds to wait after each failure: drawn between a quarter of a bound that doubles and the bound itself.

    Pass `draw=max` for pauses without jitter.
    """

    def __init__(
        self, first: float = 1, longest: float = 120, draw: Callable[[float, float], float] = jitter
    ) -> None:
        self._first = first
        self._longest = longest
        self._draw = draw
        self._bound = first

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        wait = self._draw(self._bound / 4, self._bound)
        self._bound = min(self._longest, self._bound * 2)
        return wait

    def reset(self) -> None:
        """Starts over from the first pause, after a success."""
        self._bound = self._first
