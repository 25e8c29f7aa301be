"""`vmsonar cloud-init`: prints checked user-data for a site."""

import sys
from typing import Annotated, Any

import typer
from vmsonar_archive.errors import Exit

from vmsonar.lifecycle.user_data import Site, user_data


def command(
    interval: Annotated[str | None, typer.Option(help="Time between samples.", metavar="10s")] = None,
    wheels: Annotated[
        str | None,
        typer.Option(help="Folder on the image with the wheels of make wheelhouse.", metavar="DIR"),
    ] = None,
    package: Annotated[str, typer.Option(help="What pip installs otherwise.", metavar="SPEC")] = "vmsonar",
    process_io: Annotated[bool, typer.Option("--process-io", help="Show the I/O of every process.")] = False,
    one_shot: Annotated[
        bool, typer.Option("--one-shot", help="A sample a minute instead of a daemon.")
    ] = False,
) -> int:
    """Prints a part for cloud-init, to be used alone or merged with other parts.

    Example: vmsonar cloud-init --interval 30s > user-data
    """
    config: dict[str, Any] = {}
    if interval is not None:
        config["interval"] = interval
    chosen = {"--process-io": process_io, "--one-shot": one_shot}
    options = tuple(name for name, wanted in chosen.items() if wanted)
    sys.stdout.write(user_data(Site(package=package, wheels=wheels, config=config, options=options)))
    return Exit.OK
