"""Counters that wrap, begin again, or are missing."""

import pytest
from vmsonar_archive.counters import rise


@pytest.mark.parametrize(
    ("before", "after", "wrap", "expected"),
    [
        (10, 25, None, 15),
        (10, 10, 100, 0),
        (0, 0, None, 0),
        # wrapped once: 5 up to the end and 3 after it
        (95, 3, 100, 8),
        (100, 0, 100, 0),
        # began again at 0
        (95, 3, None, 3),
        # was never below its range: another counter, so it began again
        (120, 3, 100, 3),
        (None, 3, 100, None),
        (3, None, 100, None),
        (None, None, None, None),
    ],
)
def test_rise(before: int | None, after: int | None, wrap: int | None, expected: int | None) -> None:
    assert rise(before, after, wrap) == expected
