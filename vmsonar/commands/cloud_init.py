"""`vmsonar cloud-init`: prints checked user-data for a site."""

import sys
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import Exit

from vmsonar.commands.options import flag, option
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
