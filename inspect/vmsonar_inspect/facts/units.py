"""Numbers for people: every one with its unit, a dash where nothing is known, and many as a sparkline."""

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from vmsonar_archive.system.moments import in_zone

UNKNOWN = "\u2013"
Writer = Callable[[float | None], str]
_HOUR = 3600
_DAY = 86400


def size(value: float | None, like: float | None = None) -> str:
    """Bytes: `1.5 GiB`; in the unit of a second figure, where one is given."""
    if value is None:
        return UNKNOWN
    scale = value if like is None else like
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(scale) < 1023.95:
            return f"{value:.0f} B" if unit == "B" else f"{_three(value)} {unit}"
        value, scale = value / 1024, scale / 1024
    return f"{_three(value)} TiB"


def rate(value: float | None) -> str:
    """Bytes a second: `12 MiB/s`."""
    return UNKNOWN if value is None else f"{size(value)}/s"


def share(value: float | None) -> str:
    """A fraction as a percentage: `0.5` is `50 %`."""
    if value is None:
        return UNKNOWN
    percent = value * 100
    return "<1 %" if 0 < percent < 0.95 else f"{percent:.0f} %"


def percent(value: float | None) -> str:
    """A percentage: `50` is `50 %`."""
    return UNKNOWN if value is None else share(value / 100)


def cores(value: float | None) -> str:
    """Busy cores: `3.2`."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 0.95 else f"{value:.2f}"


def count(value: float | None) -> str:
    """A count: `12,345`."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def quantity(value: float | None) -> str:
    """A number of something whose unit is said beside it: two digits, and no power of ten."""
    return (
        UNKNOWN
        if value is None
        else f"{value:,.0f}"
        if value >= 10
        else f"{value:.2g}"
        if value >= 0.001
        else "0"
    )


def duration(seconds: float | None, like: float | None = None) -> str:
    """`45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`; in the units of a second figure, where one is given."""
    if seconds is None:
        return UNKNOWN
    whole, scale = round(seconds), round(seconds if like is None else like)
    if scale < 120:
        return f"{whole} s"
    if scale < 2 * _HOUR:
        return f"{round(whole / 60)} min"
    if scale < 2 * _DAY:
        hours, rest = divmod(round(whole / 60), 60)
        return f"{hours} h {rest:02d} min"
    days, rest = divmod(round(whole / _HOUR), 24)
    return f"{days} d {rest} h"


def latency(seconds: float | None) -> str:
    """How long one of many takes: `0.2 ms`, `35 ms`, `1.5 s`, `45 s`."""
    if seconds is None or seconds >= 60:
        return duration(seconds)
    return f"{_three(seconds * 1000)} ms" if seconds < 1 else f"{_three(seconds)} s"


def elapsed(seconds: float | None) -> str:
    """How long something took, if it was short to the hundredth of a second: `0.52 s`, `2.9 ms`."""
    if seconds is not None and seconds < 0.01:
        return latency(seconds)
    return f"{seconds:.2f} s" if seconds is not None and seconds < 120 else duration(seconds)


def hours(seconds: float | None, like: float | None = None) -> str:
    """CPU or GPU time: `1.5 h`; short times in minutes and seconds; in the unit of `like`, where it is given."""
    if seconds is None:
        return UNKNOWN
    scale = seconds if like is None else like
    if scale < 60:
        return f"{_three(seconds)} s"
    return f"{_three(seconds / 60)} min" if scale < _HOUR else f"{_three(seconds / _HOUR)} h"


def energy(joules: float | None, source: str | None = None, like: float | None = None) -> str:
    """`0.24 Wh`, `1.2 kWh`; an estimate is marked `~`; in the unit of a second figure, where one is given."""
    if joules is None:
        return UNKNOWN
    mark = "~" if source == "estimate" else ""
    watt_hours, scale = joules / _HOUR, joules if like is None else like
    words = f"{_three(watt_hours)} Wh" if scale < 1000 * _HOUR else f"{_three(watt_hours / 1000)} kWh"
    return words if words.startswith("<") else mark + words


def grams(value: float | None) -> str:
    """Mass of CO2 equivalent: `9 mg`, `12 g`, `3.4 kg`."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.95:
        return f"{_three(value * 1000)} mg" if value >= 0.001 else "<1 mg"
    return f"{_three(value)} g" if value < 1000 else f"{_three(value / 1000)} kg"


def watts(value: float | None) -> str:
    return UNKNOWN if value is None else f"{_three(value)} W"


def degrees(value: float | None) -> str:
    """Temperature: `64 °C`."""
    return UNKNOWN if value is None else f"{value:.0f} °C"


#: What the marks before a figure mean.
MARKS = {"≥": "at least", "≤": "at most", "~": "estimated"}


def mark(
    write: Writer,
    value: float,
    low: float | None,
    high: float | None,
    at_least: bool = False,
    guess: bool = False,
) -> str:
    """What stands before a figure: nothing where its bounds are written as it is.

    `at_least` says that it is a lower bound where there is no upper one.
    """
    below, above = (bound is not None and write(bound) != write(value) for bound in (low, high))
    if guess or (below and (above or at_least)):
        return "~"
    if above or (at_least and high is None):
        return "≥"
    return "≤" if below else ""


def plural(number: float | None, noun: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def clock(moment: datetime | None, zone: tzinfo) -> str:
    """A time to the second in a zone."""
    return UNKNOWN if moment is None else f"{in_zone(moment, zone):%Y-%m-%d %H:%M:%S}"


def short_clock(moment: datetime | None, zone: tzinfo) -> str:
    """A time to the minute in a zone, without the year."""
    return UNKNOWN if moment is None else f"{in_zone(moment, zone):%m-%d %H:%M}"


def _three(value: float) -> str:
    """Rounds to two or three digits, but never thousands."""
    if value == 0:
        return "0"
    if abs(value) < 0.0995:
        return f"{value:.2g}" if abs(value) >= 0.001 else "<0.001"
    if abs(value) < 9.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_SEEN = "·"


def sparkline(values: Sequence[float | None], top: float | None = None, width: int | None = None) -> str:
    """One character per value, from 0 to top (by default the largest value)."""
    if width is not None and width < len(values):
        values = _squeeze(values, width)
    known = [value for value in values if value is not None]
    ceiling = top if top is not None else max(known, default=0.0)
    return "".join(_block(value, ceiling) for value in values)


def _squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
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
        return _NOT_SEEN
    if ceiling <= 0 or value <= 0:
        return _BLOCKS[0]
    step = int(value / ceiling * len(_BLOCKS))
    return _BLOCKS[min(step, len(_BLOCKS) - 1)]
