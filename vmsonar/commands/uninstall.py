"""`vmsonar uninstall`: takes the service away again."""

import os
from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError

from vmsonar.commands.options import JsonOption
from vmsonar.commands.output import print_json
from vmsonar.lifecycle.install import Installer


def command(
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the archive and the configuration.")
    ] = False,
    root: Annotated[Path, typer.Option(help="The tree to clean.", metavar="DIR")] = Path("/"),
    json: JsonOption = False,
) -> int:
    """Stops and removes the units; the archive stays unless --purge. Then remove /opt/vmsonar.

    Example: vmsonar uninstall && rm -r /opt/vmsonar /usr/local/bin/vmsonar
    """
    if not root.is_dir():
        raise UsageError(f"--root {root} is not a folder: give the top of the tree to clean")
    if root.resolve() == Path("/") and os.geteuid() != 0:
        raise VmsonarError("the units belong to root: run vmsonar uninstall as root")
    removed = Installer(root).uninstall(purge=purge)
    if json:
        print_json({"removed": removed})
    else:
        print("\n".join(removed) or "nothing was installed")
    return Exit.OK
