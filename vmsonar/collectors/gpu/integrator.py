"""Energy where a device tells only its power: the trapezoid between two readings, summed."""

# A longer pause, such as a suspend, says nothing about what was drawn in it.
_LONGEST = 900 * 1_000_000_000


class Integrator:
    """Sums power over CLOCK_BOOTTIME; begins at 0 with the first reading."""

    __slots__ = ("_before", "_joules")

    def __init__(self) -> None:
        self._joules = 0.0
        self._before: tuple[int, float] | None = None

    def add(self, boottime: int, watts: float | None) -> int | None:
        """Microjoules since the first reading, or None while there is none to go by."""
        if watts is None:
            self._before = None
            return None
        if self._before is not None and 0 < boottime - self._before[0] <= _LONGEST:
            elapsed = (boottime - self._before[0]) / 1e9
            self._joules += elapsed * (watts + self._before[1]) / 2
        self._before = (boottime, watts)
        return round(self._joules * 1e6)
