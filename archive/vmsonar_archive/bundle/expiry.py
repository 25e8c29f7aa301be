"""When a signed URL ends, by what it says itself."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

_STAMP = "%Y%m%dT%H%M%SZ"


def expiry(url: str) -> datetime | None:
    """AWS and Google by their own parameters, older ones by Expires, Azure by se; None where nothing is said."""
    query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    readers: tuple[Callable[[dict[str, str]], datetime], ...] = (
        lambda fields: _after(fields["x-amz-date"], fields["x-amz-expires"]),
        lambda fields: _after(fields["x-goog-date"], fields["x-goog-expires"]),
        lambda fields: datetime.fromtimestamp(int(fields["expires"]), UTC),
        lambda fields: datetime.fromisoformat(fields["se"]),
    )
    for read in readers:
        try:
            found = read(query)
        except (KeyError, ValueError, OverflowError, OSError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _after(begin: str, seconds: str) -> datetime:
    return datetime.strptime(begin, _STAMP).replace(tzinfo=UTC) + timedelta(seconds=int(seconds))
