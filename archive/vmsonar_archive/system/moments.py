"""Times as people give them: a date, a time, `today`, `week`, `30d` ago."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from vmsonar_archive.system.errors import UsageError

_CLOCK = re.compile(r"[0-2]?[0-9]:[0-5][0-9](:[0-5][0-9])?")
_AGO = re.compile(r"([0-9]{1,6})(s|min|h|d|w)(?: ago)?")
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
#: The times of the first and the last record, where there are any.
Covered = Callable[[], tuple[datetime | None, datetime | None]]


def zone_of(name: str | None) -> tzinfo:
    """The zone in which times are given and shown."""
    if name is None or name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"no such time zone: {name!r}; give a name such as Europe/Berlin or UTC") from None


def moment_in_utc(text: str | None, covered: Covered | None = None) -> datetime | None:
    """A point in time as an option gives it; without a zone it is UTC, without a date on the recording's day."""
    if text is None:
        return None
    text = on_the_day(text, UTC, covered) if covered is not None else text
    with _within_the_calendar(text):
        return parse_moment(text, UTC, lambda: datetime.now(UTC)).astimezone(UTC)


def on_the_day(text: str, zone: tzinfo, covered: Covered) -> str:
    """A time of day (`11:20`) on the recording's day: the last one on which the recording holds it, else its last."""
    if not _CLOCK.fullmatch(text):
        return text
    first, last = covered()
    if first is None or last is None:
        raise UsageError(f"not a time: {text!r} needs a date, because nothing was recorded")
    hour, minute, second = map(int, f"{text}:0".split(":")[:3])
    if hour > 23:
        raise UsageError(f"not a time: {text!r}; a day ends at 23:59:59")
    begin, end = in_zone(first, zone), in_zone(last, zone)
    days = [end - timedelta(days=back) for back in range((end.date() - begin.date()).days + 1)]
    found = [day.replace(hour=hour, minute=minute, second=second, microsecond=0) for day in days]
    return next((moment for moment in found if begin <= moment <= end), found[0]).isoformat()


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
        with _within_the_calendar(text):
            return now() - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"not a time: {text!r}; give 2026-11-16, 2026-11-16T08:30, 08:30, today, week, month, or 30d ago as 30d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


@contextmanager
def _within_the_calendar(text: str) -> Iterator[None]:
    try:
        yield
    except OverflowError:
        raise UsageError(f"not a time: {text!r} is before the first year there is") from None


def in_zone(time: datetime, zone: tzinfo) -> datetime:
    """The time in a zone; at either end of the calendar, where the zone has no such time, as it is."""
    try:
        return time.astimezone(zone)
    except OverflowError:
        return time


def span_words(since: datetime | None, until: datetime | None) -> str:
    """The time that was asked for, in words; nothing where all of it was."""
    if since is not None and until is not None:
        return f"between {_moment(since)} and {_moment(until)}"
    if since is not None:
        return f"from {_moment(since)} on"
    return "" if until is None else f"before {_moment(until)}"


def covered_words(first: datetime | None, last: datetime | None) -> str:
    """What an archive holds, in words."""
    if first is None or last is None:
        return "the archive holds no samples at all"
    return f"the archive covers {_moment(first)} to {_moment(last)}"


def _moment(time: datetime) -> str:
    # What has no zone is in UTC; a year has four digits, whatever strftime(3) thinks.
    whole = time if time.tzinfo is None else time.astimezone(UTC)
    return f"{whole.replace(tzinfo=None).isoformat(sep=' ', timespec='seconds')} UTC"
