"""`vmsonar cloud-init`: prints checked user-data for a site."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from vmsonar_archive.system.errors import Exit

from vmsonar.lifecycle.cloud_init import (
    Choices,
    Site,
    config_for,
    extras_for,
    one_source,
    own_index,
    single_file,
    user_data,
)


def command(
    interval: Annotated[str | None, typer.Option(help="Time between samples.", metavar="10s")] = None,
    wheels: Annotated[
        str | None,
        typer.Option(help="Folder on the image with the wheels of make wheelhouse.", metavar="DIR"),
    ] = None,
    single: Annotated[
        str | None,
        typer.Option(
            "--single-file", help="Path on the image or URL of the file of make single.", metavar="URL"
        ),
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="Its SHA-256; anything else is not installed.", metavar="HEX")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(help="Package index of your own; public ones have no vmsonar.", metavar="URL"),
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(
            help="What may come from it: NAME==VERSION --hash=sha256:HEX in each line.", metavar="FILE"
        ),
    ] = None,
    process_io: Annotated[bool, typer.Option("--process-io", help="Show the I/O of every process.")] = False,
    one_shot: Annotated[
        bool, typer.Option("--one-shot", help="A sample a minute instead of a daemon.")
    ] = False,
    save: Annotated[bool, typer.Option("--save", help="Bundle at shutdown, on the VM's own disk.")] = False,
    upload_url: Annotated[
        str | None,
        typer.Option(
            help="Where bundles go: s3://bucket/prefix/, mint+https://…, https://…{time}… or a folder.",
            metavar="URL",
        ),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(help="File on the VM with the token for mint+https://.", metavar="FILE")
    ] = None,
    notice: Annotated[
        str | None, typer.Option(help="Watch for the end of the VM: aws, gcp or azure.", metavar="CLOUD")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Name of the group of machines.", metavar="NAME")
    ] = None,
    docker: Annotated[
        bool, typer.Option("--docker", help="Also install what asks the container engine.")
    ] = False,
    nvidia: Annotated[
        bool, typer.Option("--nvidia", help="Also install what asks the NVIDIA driver.")
    ] = False,
    kafka: Annotated[
        str | None, typer.Option(help="Forward to these brokers.", metavar="HOST:PORT,…")
    ] = None,
) -> int:
    """Prints a part for cloud-init, to be used alone or merged with other parts.

    One of --wheels, --single-file and --index says where vmsonar comes from.

    Example: vmsonar cloud-init --wheels /opt/vmsonar-wheels --interval 30s > user-data
    """
    one_source(wheels, single, index)
    choices = Choices(interval, upload_url, token_file, notice, cluster, kafka, docker, nvidia)
    chosen = {
        "--process-io": process_io,
        "--one-shot": one_shot,
        "--save": save or upload_url is not None or notice is not None,
        "--forward": kafka is not None,
    }
    options = tuple(name for name, wanted in chosen.items() if wanted)
    site = Site(
        wheels=wheels,
        single=single_file(single, sha256),
        index=own_index(index, requirements),
        extras=extras_for(choices, saves=chosen["--save"]),
        config=config_for(choices),
        options=options,
    )
    sys.stdout.write(user_data(site))
    return Exit.OK
