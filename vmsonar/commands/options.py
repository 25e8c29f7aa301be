"""Options that several commands have, said once."""

from pathlib import Path
from typing import Annotated

import typer

ArchiveOption = Annotated[
    Path | None,
    # readable=False, here and elsewhere: that a file may not be read is for us to tell, with exit code 3
    typer.Option(
        "--archive",
        metavar="DIR",
        help="The archive. [env: VMSONAR_ARCHIVE]",
        show_default=False,
        readable=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration. [env: VMSONAR_CONFIG]",
        show_default=False,
        readable=False,
    ),
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
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
