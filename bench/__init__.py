"""The figures we promise, measured: `python -m bench [NAME…]`, a module per area, listed in __main__.py.

A module has `run() -> list[Figure]`. Figures are CPU time, bytes or ratios against a peer in the same run, since
wall time on shared machines says little. A figure without a bound is there to be known.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was measured, and what it must not exceed (or, with at_least, fall below)."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound
