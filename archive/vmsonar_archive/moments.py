"""Times as people give them: a date, a time, `today`, `week`, `30d` ago."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from vmsonar_archive.errors import UsageError

_AGO = re.compile(r"([0-9]{1,6})(s|min|h|d|w)(?: ago)?")
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def zone_of(name: str | None) -> tzinfo:
    """The zone in which times are given and shown."""
    if name is None or name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"no such time zone: {name!r}; give a name such as Europe/Berlin or UTC") from None


def moment_in_utc(text: str | None) -> datetime | None:
    """A point in time as an option gives it; without a zone it is UTC."""
    if text is None:
        return None
    try:
        return parse_moment(text, UTC, lambda: datetime.now(UTC)).astimezone(UTC)
    except OverflowError:
        raise UsageError(f"not a time: {text!r} is before the first year there is") from None


def parse_moment(text: str, zone: tzinfo, now: Callable[[], datetime]) -> datetime:
    """A point in time; a date means its first moment in the zone."""
    today = now().astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {
        "now": now(),
        "today": today,
        "yesterday": today - timedelta(days=1),
        "week": today - timedelta(days=today.weekday()),
        "month": today.replace(day=1),
    }
    if text in named:
        return named[text]
    if ago := _AGO.fullmatch(text):
        return _before(now(), int(ago[1]) * _UNITS[ago[2]], text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"not a time: {text!r}; give 2026-11-16, 2026-11-16T08:30, today, week, month, or 30d ago as 30d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _before(now: datetime, seconds: int, text: str) -> datetime:
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        raise UsageError(f"not a time: {text!r} is before the first year there is") from None
