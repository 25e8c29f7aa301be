"""Durations such as `10s` and sizes such as `2GiB`, as people write them, and the sections that hold them."""

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)")
_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_BYTES = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
# Larger values serve no purpose, and arithmetic with times and sizes begins to overflow.
_MAX_SECONDS = 3650 * 86400
_MAX_BYTES = 2**60


class Section(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A mapping in the file: every key is optional, an unknown one is refused."""


class Duration(float):
    """Seconds."""


class Interval(Duration):
    """Seconds between two samples."""


class ByteSize(int):
    """Bytes."""


Days = Annotated[int, Meta(ge=1, le=36500)]


def parse_duration(text: str) -> Duration:
    """`500ms`, `10s`, `5min`, `2h`, `30d`; a unit is required, because a bare number invites mistakes."""
    seconds = _parse(text, _SECONDS, "a duration such as 500ms, 10s, 5min, 2h or 30d")
    if seconds > _MAX_SECONDS:
        raise ValueError(f"{_short(text)} is longer than ten years")
    return Duration(seconds)


def parse_size(text: str) -> ByteSize:
    """`512MiB`, `2GiB`, `1.5GB`, or plain bytes."""
    size = _parse(text, _BYTES, "a size such as 512MiB, 2GiB or 1.5GB")
    if size > _MAX_BYTES:
        raise ValueError(f"{_short(text)} is more than 1024 PiB, which no disk has")
    return ByteSize(size)


def _parse(text: str, units: Mapping[str, float], wanted: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f"{_short(text)!r} is not {wanted}")
    return float(match[1]) * units[match[2]]


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def show_duration(seconds: float) -> str:
    """The shortest exact way to write it."""
    for unit in ("d", "h", "min", "s"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds * 1000:.15g}ms"  # `g` alone would write 1.0005e+06


def write_size(size: int) -> str:
    """The shortest exact way to write it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _BYTES[unit] and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def show_size(size: float) -> str:
    """For people: `2.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
