"""`vmsonar sample`: one sample, to look at or for cron."""

import sys

from vmsonar_archive.errors import VmsonarError

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption
from vmsonar.config_file import load_config
from vmsonar.once import append_one, one_line


def command(archive: ArchiveOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Takes one sample and prints it as JSON, or appends it to an archive: for cron.

    Example: * * * * * vmsonar sample --archive /var/lib/vmsonar
    """
    settings = load_config(config)
    if archive is None:
        sys.stdout.buffer.write(one_line(settings))
        return
    if append_one(settings, archive):
        raise VmsonarError(f"the sample could not be written to {archive}: is the disk full or read-only?")
