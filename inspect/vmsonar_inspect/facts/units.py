"""Numbers for people: every one with its unit, a dash where nothing is known, and many as a sparkline."""

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from vmsonar_archive.system.moments import in_zone

UNKNOWN = "\u2013"
Writer = Callable[[float | None], str]
_HOUR = 3600
_DAY = 86400

T = TypeVar("T")
P = ParamSpec("P")


def _or_unknown(write: Callable[Concatenate[T, P], str]) -> Callable[Concatenate[T | None, P], str]:
    """Writes a dash for None."""

    @wraps(write)
    def written(value: T | None, /, *more: P.args, **named: P.kwargs) -> str:
        return UNKNOWN if value is None else write(value, *more, **named)

    return written


@_or_unknown
def size(value: float) -> str:
    """Bytes: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1023.95:
            return f"{value:.0f} B" if unit == "B" else f"{_three(value)} {unit}"
        value /= 1024
    return f"{_three(value)} TiB"


@_or_unknown
def rate(value: float) -> str:
    """Bytes a second: `12 MiB/s`."""
    return f"{size(value)}/s"


@_or_unknown
def share(value: float) -> str:
    """A fraction as a percentage: `0.5` is `50 %`."""
    percent = value * 100
    return "<1 %" if 0 < percent < 0.95 else f"{percent:.0f} %"


@_or_unknown
def percent(value: float) -> str:
    """A percentage: `50` is `50 %`."""
    return share(value / 100)


@_or_unknown
def cores(value: float) -> str:
    """Busy cores: `3.2`."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 0.95 else f"{value:.2f}"


@_or_unknown
def count(value: float) -> str:
    """A count: `12,345`."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


@_or_unknown
def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 2 * _HOUR:
        return f"{round(whole / 60)} min"
    if whole < 2 * _DAY:
        hours, rest = divmod(round(whole / 60), 60)
        return f"{hours} h {rest:02d} min"
    days, rest = divmod(round(whole / _HOUR), 24)
    return f"{days} d {rest} h"


@_or_unknown
def hours(seconds: float) -> str:
    """CPU or GPU time: `1.5 h`; short times in minutes and seconds."""
    if seconds < 60:
        return f"{_three(seconds)} s"
    return f"{_three(seconds / 60)} min" if seconds < _HOUR else f"{_three(seconds / _HOUR)} h"


@_or_unknown
def energy(joules: float, source: str | None = None) -> str:
    """`850 J`, `1.2 kWh`; an estimate is marked `~`."""
    mark = "~" if source == "estimate" else ""
    if joules < 3600:
        return f"{mark}{_three(joules)} J"
    watt_hours = joules / 3600
    return mark + (f"{_three(watt_hours)} Wh" if watt_hours < 1000 else f"{_three(watt_hours / 1000)} kWh")


@_or_unknown
def grams(value: float) -> str:
    """Mass of CO2 equivalent: `12 g`, `3.4 kg`."""
    return f"{_three(value)} g" if value < 1000 else f"{_three(value / 1000)} kg"


@_or_unknown
def watts(value: float) -> str:
    return f"{_three(value)} W"


@_or_unknown
def degrees(value: float) -> str:
    """Temperature: `64 °C`."""
    return f"{value:.0f} °C"


def lower_bound(text: str, is_lower_bound: bool) -> str:
    """Marks a figure that is only known to be at least that much."""
    return f"≥{text}" if is_lower_bound and text != UNKNOWN else text


def plural(number: float | None, noun: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


@_or_unknown
def clock(moment: datetime, zone: tzinfo) -> str:
    """A time to the second in a zone."""
    return f"{in_zone(moment, zone):%Y-%m-%d %H:%M:%S}"


@_or_unknown
def short_clock(moment: datetime, zone: tzinfo) -> str:
    """A time to the minute in a zone, without the year."""
    return f"{in_zone(moment, zone):%m-%d %H:%M}"


def _three(value: float) -> str:
    """Rounds to two or three digits, but never thousands."""
    if value == 0:
        return "0"
    if abs(value) < 0.0995:
        return f"{value:.2g}"
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
