"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer
from vmsonar_archive.system.errors import UsageError

from vmsonar.config.quantities import parse_duration


def _path_option(name: str, metavar: str, text: str) -> Any:
    # readable=False, here and elsewhere: we tell ourselves that a file may not be read, with exit code 3
    return typer.Option(name, metavar=metavar, help=text, show_default=False, readable=False)


ArchiveOption = Annotated[
    Path | None, _path_option("--archive", "DIR", "The archive. [env: VMSONAR_ARCHIVE]")
]
ConfigOption = Annotated[
    Path | None, _path_option("--config", "FILE", "The configuration. [env: VMSONAR_CONFIG]")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--from", "--since", metavar="TIME", help="From then on: 2026-11-16T08:00Z, today, 2h (ago)."
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--to", "--until", metavar="TIME", help="Up to then, exclusive.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace an existing file although vmsonar did not write it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def seconds_of(text: str, option: str) -> float:
    """The seconds in a duration; an error names the option."""
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
