"""Waiting with a bound."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float, what: str, every: float = 0.1) -> None:
    """Returns once the condition holds; raises TimeoutError that says what did not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
