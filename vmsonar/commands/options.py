"""Options that several commands share, and the short form in which commands declare theirs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from vmsonar_archive.system.errors import UsageError

from vmsonar.config.quantities import parse_duration


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """An option with a value, which is called like its parameter unless names are given."""
    # readable=False: we tell ourselves that a file may not be read, with exit code 3
    return typer.Option(*names, metavar=metavar, help=text, readable=False, **more)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=text, readable=False, show_default=False, **more)


ArchiveOption = Annotated[Path | None, option("DIR", "The archive. [env: VMSONAR_ARCHIVE]", "--archive")]
ConfigOption = Annotated[Path | None, option("FILE", "The configuration. [env: VMSONAR_CONFIG]", "--config")]
SinceOption = Annotated[
    str | None, option("TIME", "From then on: 2026-11-16T08:00Z, today, 2h (ago).", "--from", "--since")
]
UntilOption = Annotated[str | None, option("TIME", "Up to then, exclusive.", "--to", "--until")]
ForceOption = Annotated[bool, flag("--force", "Replace an existing file although vmsonar did not write it.")]
JsonOption = Annotated[bool, flag("--json", "Answer in JSON.")]


def seconds_of(text: str, name: str) -> float:
    """The seconds in a duration; an error names the option."""
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
