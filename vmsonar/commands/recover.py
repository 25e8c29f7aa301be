"""`vmsonar recover`: saves what is readable of a damaged archive."""

from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.errors import Exit
from vmsonar_archive.opening import open_source
from vmsonar_archive.recover import recover

from vmsonar.commands.output import print_findings, print_json


def command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A damaged archive folder or bundle.", show_default=False, readable=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Where the new archive goes; must be empty.",
            metavar="DIR",
            readable=False,
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print what was saved and what not as JSON.")] = False,
) -> int:
    """Writes a new, valid archive with every record that can still be read.

    Example: vmsonar recover /var/lib/vmsonar -o /tmp/saved
    """
    source = open_source(path)
    try:
        result = recover(source, output)
    finally:
        source.close()
    if json:
        print_json(result)
        return Exit.OK
    print_findings(result.findings, str(path), lost=True)
    print(f"{_many(result.records, 'record')} in {_many(result.files, 'file')} saved to {result.target}")
    return Exit.OK


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
