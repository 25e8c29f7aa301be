"""`vmsonar derive`: the Parquet tables of finished days, for the unit that runs after midnight."""

import os
from typing import Annotated, Any

import typer
from vmsonar_archive.system.errors import Exit, UsageError
from vmsonar_archive.system.rights import write_as_owner

from vmsonar.commands.options import ArchiveOption, ConfigOption
from vmsonar.commands.output import print_json
from vmsonar.config.file import archive_in_question
from vmsonar.config.quantities import show_size


def command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> int:
    """Makes the Parquet tables of every finished day that has none; the recorder may go on meanwhile.

    Example: vmsonar derive --archive /var/lib/vmsonar
    """
    from vmsonar_archive.parquet.derive import derive_due
    from vmsonar_archive.parquet.schema import arrow

    root = archive_in_question(archive, config)
    if root.is_file():
        raise UsageError(f"{root} is not the folder of an archive: vmsonar export takes bundles")
    write_as_owner(root)
    os.nice(19)
    # One thread: the machine has other work to do.
    arrow().set_cpu_count(1)
    made: list[dict[str, Any]] = []
    for day, derived in derive_due(root):
        size = sum(path.stat().st_size for path in derived.files.values())
        made.append({"day": day.isoformat(), "rows": derived.rows, "bytes": size, "bad": derived.bad})
        if not json:
            print(f"{day}: {made[-1]['rows']} rows, {show_size(size)}")
    if json:
        print_json(made)
    elif not made:
        print("every finished day has its tables")
    return Exit.OK
