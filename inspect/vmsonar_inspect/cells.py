"""Values as text: for CSV that no spreadsheet runs, for JSON, and for people."""

import csv
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import IO, Any

import msgspec

# A spreadsheet takes text that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def plain(value: Any) -> Any:
    """A value that JSON knows; a time in UTC, RFC 3339."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def cell(value: Any) -> Any:
    """A CSV cell: text stays text, whatever it begins with; what has parts is JSON."""
    value = plain(value)
    if isinstance(value, dict | list):
        value = msgspec.json.encode(value).decode()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def shown(value: Any) -> str:
    """A cell of a table on a screen."""
    if value is None:
        return "\u2013"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:.6g}"
    value = plain(value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)


def write_csv(sink: IO[str], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a header and rows (RFC 4180)."""
    writer = csv.writer(sink, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows([cell(value) for value in row] for row in rows)
