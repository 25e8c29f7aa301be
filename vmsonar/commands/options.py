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
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
