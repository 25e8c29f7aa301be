"""`vmsonar install` and `uninstall`: make it a service of this machine, and take that away again."""

import os
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError
from vmsonar_archive.write.outputs import refuse_archive

from vmsonar.commands.options import JsonOption, flag, option
from vmsonar.commands.output import print_json, say
from vmsonar.lifecycle.install import Choice, Installer


def install_command(
    start: Annotated[bool, flag("--start/--no-start", "Start the units now.")] = True,
    one_shot: Annotated[
        bool, flag("--one-shot", "A sample a minute by a timer instead of a daemon.")
    ] = False,
    process_io: Annotated[
        bool, flag("--process-io", "Show the I/O of every process (two capabilities).")
    ] = False,
    save: Annotated[
        bool, flag("--save", "Bring what was recorded to safety: all along, and at shutdown.")
    ] = False,
    forward: Annotated[bool, flag("--forward", "Send records on as the configuration says.")] = False,
    root: Annotated[Path, option("DIR", "Install into this tree, an image for example.")] = Path("/"),
    json: JsonOption = False,
) -> int:
    """Installs units, user and folders, and starts them; safe to run again. Needs root, and vmsonar in /opt/vmsonar.

    With --root the units are enabled in that tree, whose next boot creates the user and starts them.

    Example: /opt/vmsonar/bin/vmsonar install --save
    """
    if not root.is_dir():
        raise UsageError(f"--root {root} is not a folder: give the top of the tree to install into")
    refuse_archive(root)
    installer = Installer(root)
    installer.check_program()
    choice = Choice(one_shot=one_shot, process_io=process_io, save=save, forward=forward)
    written = installer.install(choice, start=start)
    enabled = installer.enabled(choice)
    if json:
        print_json({"written": written, "enabled": enabled})
    else:
        begin = "" if start and root.resolve() == Path("/") else ", from the next boot on"
        say(f"{len(written)} files written; enabled{begin}: {', '.join(enabled)}")
    return Exit.OK


def uninstall_command(
    purge: Annotated[bool, flag("--purge", "Also delete the archive and the configuration.")] = False,
    root: Annotated[Path, option("DIR", "The tree to clean.")] = Path("/"),
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
