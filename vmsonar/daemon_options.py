"""The command line of `python -m vmsonar.daemon`, by hand: argparse would stay in memory for ever (0.9 MB)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vmsonar_archive.errors import UsageError

from vmsonar.config import interval
from vmsonar.quantities import parse_duration
from vmsonar.session import Options

USAGE = "usage: python -m vmsonar.daemon [--archive DIR] [--config FILE] [--interval 10s] [--for 60s]"

_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--archive": ("archive", Path),
    "--config": ("config", Path),
    "--interval": ("interval", interval),
    "--for": ("duration", parse_duration),
}


def parse(arguments: Sequence[str]) -> Options:
    """The options, each as `--name value` or `--name=value`."""
    left = list(arguments)
    found: dict[str, Any] = {}
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name not in _OPTIONS:
            raise UsageError(f"no such option: {name} ({USAGE})")
        if not equals:
            if not left:
                raise UsageError(f"{name} needs a value ({USAGE})")
            value = left.pop(0)
        field, convert = _OPTIONS[name]
        try:
            found[field] = convert(value)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None
    return Options(**found)


def arguments_of(options: Options) -> list[str]:
    """The opposite: what makes another process take the same options."""
    given = {
        "--archive": options.archive,
        "--config": options.config,
        "--interval": None if options.interval is None else f"{options.interval * 1000:g}ms",
        "--for": None if options.duration is None else f"{options.duration * 1000:g}ms",
    }
    return [f"{name}={value}" for name, value in given.items() if value is not None]
