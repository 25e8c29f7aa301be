"""Single values of sysfs(5), where an unreadable one is None."""

from pathlib import Path


def read_text(path: Path) -> str | None:
    """The text without the white space around it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


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
