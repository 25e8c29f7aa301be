"""`vmsonar daemon`: becomes `python -m vmsonar.daemon`, which carries no command line around."""

import os
import sys
from typing import Annotated

import typer
from vmsonar_archive.system.children import python

from vmsonar.commands.options import ArchiveOption, ConfigOption
from vmsonar.daemon.options import arguments_of, parse


def command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        str | None, typer.Option(metavar="10s", help="Time between samples.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="60s", help="Stop after so long.", show_default=False)
    ] = None,
) -> None:
    """Samples this machine until told to stop (SIGTERM); SIGHUP reads the configuration again.

    Example: vmsonar daemon --archive /tmp/archive --interval 1s --for 60s
    """
    given = {"--archive": archive, "--config": config, "--interval": interval, "--for": duration}
    options = parse([f"{name}={value}" for name, value in given.items() if value is not None])
    sys.stdout.flush()
    line = python("-m", "vmsonar.daemon", *arguments_of(options))
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted
