"""The command line of `python -m vmsonar.daemon`, by hand: argparse would stay in memory for ever (0.9 MB)."""

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from vmsonar_archive.system.errors import UsageError

import vmsonar.config
from vmsonar.config.quantities import Interval, parse_duration, show_duration
from vmsonar.config.schema import Config, interval
from vmsonar.host.roots import find_config

USAGE = "usage: python -m vmsonar.daemon [--archive DIR] [--config FILE] [--interval 10s] [--for 60s]"

_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--archive": ("archive", Path),
    "--config": ("config", Path),
    "--interval": ("interval", interval),
    "--for": ("duration", parse_duration),
}


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The options of the command line; they override the file, also after a reload."""

    archive: Path | None = None
    config: Path | None = None
    interval: Interval | None = None
    duration: float | None = None

    def over(self, config: Config) -> Config:
        """The configuration with what the command line says instead."""
        return config if self.interval is None else msgspec.structs.replace(config, interval=self.interval)


def parse(arguments: Sequence[str]) -> DaemonOptions:
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
    return DaemonOptions(**found)


def load(options: DaemonOptions) -> Config:
    """The configuration in force; YAML is only imported where there is a file."""
    path = find_config(options.config)
    if path is None:
        return options.over(Config())
    known = frozenset(sys.modules)
    from vmsonar.config.file import read_config

    try:
        return options.over(read_config(path))
    finally:
        del read_config
        _forget(sys.modules.keys() - known)


def _forget(modules: Iterable[str]) -> None:
    """Gives back the memory of YAML's modules (1 MB); a changed configuration loads them again."""
    for name in modules:
        if name == "vmsonar.config.file":
            del sys.modules[name], vmsonar.config.file
        elif name.partition(".")[0] in ("yaml", "base64"):
            del sys.modules[name]
    gc.collect()


def arguments_of(options: DaemonOptions) -> list[str]:
    """The inverse of `parse`: arguments that give another process the same options."""
    given = {name: getattr(options, field) for name, (field, _) in _OPTIONS.items()}
    return [
        f"{name}={show_duration(value) if isinstance(value, float) else value}"
        for name, value in given.items()
        if value is not None
    ]
