"""A lake on disk: Hive partitions kind=/date=/archive=, one file per kind of every export."""

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path

from vmsonar_inspect.parcels import Stored, StoredUnit

#: Makes the folder for what is derived from a unit.
Folder = Callable[[str, str, list[str]], Path]


def lake_units(root: Path, touches: Callable[[date], bool], folder: Folder) -> Iterator[StoredUnit]:
    """The units of a lake: files of one archive and day that were exported together bear the same name."""
    grouped: dict[tuple[str, str, str], dict[str, Stored]] = {}
    for path in sorted(root.glob("kind=*/date=*/archive=*/*.parquet")):
        kind, day, archive = (part.split("=", 1)[1] for part in path.parts[-4:-1])
        grouped.setdefault((archive, day, path.name), {})[kind] = Stored(kind, path)
    for (archive, day, name), stored in grouped.items():
        if touches(date.fromisoformat(day)):
            yield StoredUnit(archive, day, stored, partial(folder, archive, day, [str(root), name]))
