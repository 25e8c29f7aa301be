"""`vmsonar install`, `uninstall` and `cloud-init`: how it becomes a service of this machine, or of a new VM."""

import os
import sys
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError
from vmsonar_archive.write.outputs import refuse_archive

from vmsonar.commands.options import JsonOption, flag, option
from vmsonar.commands.output import print_json, say
from vmsonar.lifecycle.cloud_init import (
    Choices,
    Site,
    config_for,
    extras_for,
    own_index,
    single_file,
    user_data,
)
from vmsonar.lifecycle.install import Choice, Installer


def install_command(
    start: Annotated[bool, flag("--start/--no-start", "Start the units now.")] = True,
    one_shot: Annotated[
        bool, flag("--one-shot", "A sample a minute by a timer instead of a daemon.")
    ] = False,
    process_io: Annotated[
        bool, flag("--process-io", "Show the I/O of every process (two capabilities).")
    ] = False,
    accounts: Annotated[
        bool, flag("--accounts", "Exact accounts of every process that ends (CAP_NET_ADMIN, own unit).")
    ] = False,
    save: Annotated[
        bool, flag("--save", "Bring what was recorded to safety: all along, and at shutdown.")
    ] = False,
    forward: Annotated[bool, flag("--forward", "Send records on as the configuration says.")] = False,
    metrics: Annotated[bool, flag("--metrics", "Answer Prometheus on 127.0.0.1:9798.")] = False,
    serve: Annotated[bool, flag("--serve", "Serve a fleet on 127.0.0.1:8060, and keep it in order.")] = False,
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
    if accounts and one_shot:
        raise UsageError("--accounts needs a recorder that stays: leave --one-shot out")
    choice = Choice(
        one_shot=one_shot,
        process_io=process_io,
        save=save,
        forward=forward,
        accounts=accounts,
        metrics=metrics,
        serve=serve,
    )
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


def cloud_init_command(
    interval: Annotated[str | None, option("10s", "Time between samples.")] = None,
    wheels: Annotated[
        str | None, option("DIR", "Folder on the image with the wheels of make wheelhouse.")
    ] = None,
    single: Annotated[
        str | None, option("URL", "Path on the image or URL of the file of make single.", "--single-file")
    ] = None,
    sha256: Annotated[str | None, option("HEX", "Its SHA-256; anything else is not installed.")] = None,
    index: Annotated[
        str | None, option("URL", "Package index of your own; public ones have no vmsonar.")
    ] = None,
    requirements: Annotated[
        Path | None, option("FILE", "What may come from it: NAME==VERSION --hash=sha256:HEX in each line.")
    ] = None,
    process_io: Annotated[bool, flag("--process-io", "Show the I/O of every process.")] = False,
    accounts: Annotated[bool, flag("--accounts", "Exact accounts of every process that ends.")] = False,
    one_shot: Annotated[bool, flag("--one-shot", "A sample a minute instead of a daemon.")] = False,
    save: Annotated[bool, flag("--save", "Bundle at shutdown, on the VM's own disk.")] = False,
    upload_url: Annotated[
        str | None,
        option("URL", "Where bundles go: s3://bucket/prefix/, mint+https://…, https://…{time}… or a folder."),
    ] = None,
    token_file: Annotated[
        str | None, option("FILE", "File on the VM with the token for mint+https://.")
    ] = None,
    notice: Annotated[str | None, option("CLOUD", "Watch for the end of the VM: aws, gcp or azure.")] = None,
    cluster: Annotated[str | None, option("NAME", "Name of the group of machines.")] = None,
    docker: Annotated[bool, flag("--docker", "Also install what asks the container engine.")] = False,
    nvidia: Annotated[bool, flag("--nvidia", "Also install what asks the NVIDIA driver.")] = False,
    kafka: Annotated[str | None, option("HOST:PORT,…", "Forward to these brokers.")] = None,
    serve: Annotated[bool, flag("--serve", "Serve a fleet: make the server of this VM.")] = False,
    access: Annotated[
        Path | None, option("FILE", "Who may ask it, as for vmsonar serve; holds hashes of tokens only.")
    ] = None,
    serve_url: Annotated[
        str | None, option("URL", "https://NAME:PORT that it is called by; certificate in /etc/vmsonar/tls.")
    ] = None,
) -> int:
    """Prints a part for cloud-init, to be used alone or merged with other parts.

    One of --wheels, --single-file and --index says where vmsonar comes from.

    Example: vmsonar cloud-init --wheels /opt/vmsonar-wheels --interval 30s > user-data
    """
    if sum(one is not None for one in (wheels, single, index)) > 1:
        raise UsageError("--wheels, --single-file and --index exclude each other: give one of them")
    if serve_url is not None and not serve:
        raise UsageError("--serve-url is for a server: give --serve too")
    choices = Choices(interval, upload_url, token_file, notice, cluster, kafka, docker, nvidia, serve)
    chosen = {
        "--process-io": process_io,
        "--accounts": accounts,
        "--one-shot": one_shot,
        "--save": save or upload_url is not None or notice is not None,
        "--forward": kafka is not None,
        "--serve": serve,
    }
    options = tuple(name for name, wanted in chosen.items() if wanted)
    site = Site(
        wheels=wheels,
        single=single_file(single, sha256),
        index=own_index(index, requirements),
        extras=extras_for(choices, saves=chosen["--save"]),
        config=config_for(choices),
        options=options,
        access=_access_file(access, serve=serve),
        serve_url=serve_url,
    )
    sys.stdout.write(user_data(site))
    return Exit.OK


def _access_file(path: Path | None, *, serve: bool) -> str | None:
    """The text of a file of tokens; refuses one that the server would refuse."""
    if path is None:
        return None
    if not serve:
        raise UsageError("--access is for a server: give --serve too")
    # Here, because nobody else needs it.
    from vmsonar.fleet.serve.access import read_access

    read_access(path)
    return path.read_text(encoding="utf-8")
