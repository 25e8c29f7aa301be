"""The units of a lake: Hive partitions kind=/date=/archive=, one file per kind of every export."""

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path

from vmsonar_archive.parquet.schema import SAMPLES

from vmsonar_inspect.export.target import Target
from vmsonar_inspect.parcels import Stored, StoredUnit

#: Makes the folder for what is copied or derived from a unit.
Folder = Callable[[str, str, list[str]], Path]


def lake_units(lake: Target, touches: Callable[[date], bool], folder: Folder) -> Iterator[StoredUnit]:
    """Files of one archive and day that were exported together bear the same name; without samples they are none."""
    grouped: dict[tuple[str, str, str], dict[str, Stored]] = {}
    for name in lake.names():
        parts = name.split("/")
        if len(parts) == 4:
            kind, day, archive = (part.split("=", 1)[1] for part in parts[:3])
            stored = Stored(kind, lake.local(name), lake.copier(name))
            grouped.setdefault((archive, day, parts[3]), {})[kind] = stored
    for (archive, day, name), stored_by_kind in grouped.items():
        if SAMPLES in stored_by_kind and touches(date.fromisoformat(day)):
            unit = StoredUnit(archive, day, stored_by_kind, partial(folder, archive, day, ["lake", name]))
            unit.place = f"{lake.place} {name.removesuffix('.parquet')}"
            yield unit
