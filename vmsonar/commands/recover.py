"""`vmsonar recover`: saves what is readable of a damaged archive."""

from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.read.source import open_source
from vmsonar_archive.system.errors import Exit
from vmsonar_archive.system.rights import published, work_as_owner
from vmsonar_archive.verify.recover import recover, refuse_filled
from vmsonar_archive.write.outputs import guard

from vmsonar.commands.output import print_findings, print_json, say


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
    guard(output, [path])
    refuse_filled(output)
    work_as_owner([path], output=True)
    with published(output) as place:
        source = open_source(path)
        try:
            result = recover(source, place)
        finally:
            source.close()
    result.target = str(output)
    code = Exit.OK if result.records else Exit.NO
    if json:
        print_json(result)
        return code
    print_findings(result.findings, str(path), lost=True)
    say(f"{_many(result.records, 'record')} in {_many(result.files, 'file')} saved to {result.target}")
    return code


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
