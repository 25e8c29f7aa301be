"""`vmsonar install`: makes it a service of this machine."""

from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.system.errors import Exit, UsageError
from vmsonar_archive.write.outputs import refuse_archive

from vmsonar.commands.options import JsonOption
from vmsonar.commands.output import print_json, say
from vmsonar.lifecycle.install import Choice, Installer


def command(
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start the units now.")] = True,
    one_shot: Annotated[
        bool, typer.Option("--one-shot", help="A sample a minute by a timer instead of a daemon.")
    ] = False,
    process_io: Annotated[
        bool, typer.Option("--process-io", help="Show the I/O of every process (two capabilities).")
    ] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Bring what was recorded to safety: all along, and at shutdown.")
    ] = False,
    forward: Annotated[
        bool, typer.Option("--forward", help="Send records on as the configuration says.")
    ] = False,
    root: Annotated[
        Path, typer.Option(help="Install into this tree, an image for example.", metavar="DIR")
    ] = Path("/"),
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
