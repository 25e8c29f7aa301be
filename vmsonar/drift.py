"""Notices between two ticks that the wall clock was stepped or that the machine slept (clock_gettime(2))."""

from vmsonar_archive.records import EventRow

from vmsonar.clock import Clock

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
