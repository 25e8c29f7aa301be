"""`vmsonar daemon`, `sample` and `sysinfo`: record this machine, or show once what would be recorded."""

import os
import sys
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption, option
from vmsonar.commands.output import print_json
from vmsonar.daemon.options import arguments_of, parse
from vmsonar.host.streams import for_programs

# The recorder's parts are imported by those who sample in this process: the daemon starts sooner without.


def daemon_command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    interval: Annotated[str | None, option("10s", "Time between samples.")] = None,
    duration: Annotated[str | None, option("60s", "Stop after so long.", "--for")] = None,
) -> None:
    """Samples this machine until told to stop (SIGTERM); SIGHUP reads the configuration again.

    Example: vmsonar daemon --archive /tmp/archive --interval 1s --for 60s
    """
    given = {"--archive": archive, "--config": config, "--interval": interval, "--for": duration}
    options = parse([f"{name}={value}" for name, value in given.items() if value is not None])
    sys.stdout.flush()
    # This process becomes another, which carries no command line around.
    line = python("-m", "vmsonar.daemon", *arguments_of(options))
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


def sample_command(
    archive: Annotated[Path | None, option("DIR", "Append to this archive instead.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Takes one sample and prints it as JSON, or appends it to an archive: for cron.

    Example: * * * * * vmsonar sample --archive /var/lib/vmsonar
    """
    from vmsonar.config.file import load_config
    from vmsonar.daemon.once import append_one, one_line

    settings = load_config(config)
    if archive is None:
        for_programs().write(one_line(settings).decode())
        return
    appended = append_one(settings, archive)
    if appended.samples_lost:
        raise VmsonarError(f"the sample could not be written to {archive}: is the disk full or read-only?")
    if json:
        print_json(appended)


def sysinfo_command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Prints one sysinfo record as JSON: hardware, system, cloud, what can be seen, the configuration.

    Example: vmsonar sysinfo | jq '.cpus, .memory_total'
    """
    from vmsonar.config.file import load_config
    from vmsonar.daemon.once import describe_machine

    print_json(describe_machine(load_config(config)))
