"""`vmsonar sample`: one sample, to look at or for cron."""

from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.commands.options import ConfigOption, JsonOption
from vmsonar.commands.output import print_json
from vmsonar.config.file import load_config
from vmsonar.daemon.once import append_one, one_line
from vmsonar.host.streams import for_programs

_TO_ARCHIVE = typer.Option("--archive", metavar="DIR", help="Append to this archive instead.", readable=False)


def command(
    archive: Annotated[Path | None, _TO_ARCHIVE] = None, config: ConfigOption = None, json: JsonOption = False
) -> None:
    """Takes one sample and prints it as JSON, or appends it to an archive: for cron.

    Example: * * * * * vmsonar sample --archive /var/lib/vmsonar
    """
    settings = load_config(config)
    if archive is None:
        for_programs().write(one_line(settings).decode())
        return
    appended = append_one(settings, archive)
    if appended.samples_lost:
        raise VmsonarError(f"the sample could not be written to {archive}: is the disk full or read-only?")
    if json:
        print_json(appended)
