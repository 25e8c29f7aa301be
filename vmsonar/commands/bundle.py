"""`vmsonar bundle`: one file that can be carried away and trusted."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.bundle.make import Bundled, Options, bundle_to_descriptor, bundle_to_file
from vmsonar_archive.bundle.send import bundle_to_url, read_url
from vmsonar_archive.errors import Exit, UsageError

from vmsonar.commands.output import print_json, progress_bar
from vmsonar.places import archive_to_read


def command(
    archive: Annotated[
        Path | None, typer.Option(help="The archive to bundle; may be recording.", metavar="DIR")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A file, a folder, -, https://… (signed for PUT), s3://bucket/key, @FILE that holds a URL.",
            metavar="OUT",
        ),
    ] = ".",
    sign: Annotated[
        Path | None,
        typer.Option(help="Sign with this ed25519 key, such as the host's SSH key.", metavar="KEY"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> int:
    """Makes one transportable file of an archive; safe while the recorder runs.

    Example: vmsonar bundle -o /tmp
    """
    source = archive_to_read(archive, None)
    options = Options(sign=sign)
    if output == "-":
        if json or sys.stdout.isatty():
            raise UsageError("-o - sends the bundle itself to standard output: redirect it, without --json")
        bundled = bundle_to_descriptor(source, sys.stdout.fileno(), _progress, options)
    elif output.startswith(("https:", "http:", "s3:", "@")):
        bundled = bundle_to_url(source, read_url(output), _progress, options)
    else:
        bundled = bundle_to_file(source, Path(output), _progress, options)
    _tell(bundled, json)
    return Exit.OK if bundled.ok else Exit.NO


def _progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
    return progress_bar("bundling", total)


def _tell(bundled: Bundled, json: bool) -> None:
    if json:
        print_json(bundled)
        return
    for finding in bundled.findings:
        print(
            f"{finding.severity.value}: {finding.code.value}: {finding.path}: {finding.detail}",
            file=sys.stderr,
        )
    if bundled.output:
        print(bundled.output)
