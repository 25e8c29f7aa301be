"""Whole tables as CSV files, one per table."""

import io
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from vmsonar_archive.system.files import beneath
from vmsonar_archive.write.outputs import CSV, guard, whole

from vmsonar_inspect.tables.database import Tables
from vmsonar_inspect.tables.results import names_of, rows_of, write_csv


def export_csv(
    tables: Tables, names: Collection[str], folder: Path, *, force: bool = False
) -> dict[str, int]:
    """Writes the tables or views into a folder, all or none; returns the number of rows of each."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {name: guard(beneath(folder, f"{name}.csv"), (), CSV, force=force) for name in names}
    written = {}
    # All at once: what has to be derived is read once, and not once per table.
    tables.require({base for name in names for base in tables.bases_of(name)})
    with ExitStack() as stack:
        for name, place in places.items():
            (count,) = tables.sql(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 - a name of ours
            if not count:
                continue
            result = tables.sql(f"SELECT * FROM {name}")  # noqa: S608 - a name of ours
            text = io.TextIOWrapper(stack.enter_context(whole(place)), encoding="utf-8", newline="")
            write_csv(text, names_of(result), rows_of(result))
            text.detach()
            written[name] = count
    return written
