"""Puts many small files of a table into a few: an engine takes longer to open such a file than to read it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmsonar_inspect.engine import quoted

# Below this nobody feels it.
_MANY = 64
# Files of this size on average are copied quickly, and a thousand of them fit any disk.
_SMALL_BYTES = 256 * 1024
# So many are open at the same time.
_AT_ONCE = 100


def joined(connection: Any, table: str, paths: Sequence[Path], scratch: Path) -> list[Path]:
    """The files to read instead of these, in a folder that goes with the connection."""
    if len(paths) < _MANY or sum(path.stat().st_size for path in paths) > len(paths) * _SMALL_BYTES:
        return list(paths)
    parts = []
    for first in range(0, len(paths), _AT_ONCE):
        part = scratch / f"joined-{table}-{first}.parquet"
        some = source(paths[first : first + _AT_ONCE])
        connection.execute(f"COPY (SELECT * FROM {some}) TO {quoted(str(part))} (FORMAT parquet)")  # noqa: S608
        parts.append(part)
    return parts


def source(paths: Sequence[Path]) -> str:
    """The rows of some files, as what a query can read from; columns go by their names."""
    listed = ", ".join(quoted(str(path)) for path in paths)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
