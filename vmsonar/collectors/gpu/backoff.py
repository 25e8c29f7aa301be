"""When to try again what has failed: soon at first, then more and more rarely."""

_SECOND = 1_000_000_000


class Backoff:
    """Doubles the pause after each failure, in nanoseconds of CLOCK_BOOTTIME."""

    def __init__(self, first: float = 10.0, longest: float = 600.0) -> None:
        self._first = int(first * _SECOND)
        self._longest = int(longest * _SECOND)
        self._pause = self._first
        self._next = 0

    def due(self, boottime: int) -> bool:
        return boottime >= self._next

    def failed(self, boottime: int) -> None:
        self._next = boottime + self._pause
        self._pause = min(self._pause * 2, self._longest)

    def succeeded(self) -> None:
        self._pause = self._first
        self._next = 0
