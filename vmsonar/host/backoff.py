"""Pauses between retries that double up to a limit, jittered so that a fleet does not retry in step."""

from collections.abc import Callable


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
