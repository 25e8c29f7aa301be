"""Waiting longer after each failure, at random within bounds, so that a fleet does not come back in step."""

import random
from collections.abc import Callable


class Backoff:
    """Full jitter: each wait is drawn from zero to a bound that doubles."""

    def __init__(
        self, first: float = 1, longest: float = 120, draw: Callable[[float, float], float] = random.uniform
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
        self._bound = self._first
