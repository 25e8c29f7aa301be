"""Sparklines: one block per value."""

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
NOT_SEEN = "·"


def sparkline(values: Sequence[float | None], top: float | None = None, width: int | None = None) -> str:
    """One character per value, from 0 to top (by default the largest value)."""
    if width is not None and width < len(values):
        values = squeeze(values, width)
    known = [value for value in values if value is not None]
    ceiling = top if top is not None else max(known, default=0.0)
    return "".join(_block(value, ceiling) for value in values)


def squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
    """The mean of what is known in each of `width` equal parts."""
    parts = []
    for number in range(width):
        begin = number * len(values) // width
        end = max(begin + 1, (number + 1) * len(values) // width)
        known = [value for value in values[begin:end] if value is not None]
        parts.append(sum(known) / len(known) if known else None)
    return parts


def _block(value: float | None, ceiling: float) -> str:
    if value is None:
        return NOT_SEEN
    if ceiling <= 0 or value <= 0:
        return BLOCKS[0]
    step = int(value / ceiling * len(BLOCKS))
    return BLOCKS[min(step, len(BLOCKS) - 1)]
