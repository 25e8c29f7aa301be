"""Single values of sysfs(5), where an unreadable one is None."""

from pathlib import Path

from vmsonar.collectors.files import read_text


def read_int(path: Path) -> int | None:
    """A decimal number."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def scaled(value: int | None, divisor: int) -> float | None:
    """The value in a larger unit."""
    return None if value is None else value / divisor


def whole(value: int | None, divisor: int) -> int | None:
    """The value in a larger unit, without its fraction."""
    return None if value is None else value // divisor
