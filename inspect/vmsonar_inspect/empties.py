"""Tables without rows, so that every column is there whatever the files of a table hold; each is made once."""

import hashlib
import os
from datetime import datetime
from pathlib import Path

from vmsonar_archive.parquet.schema import SERIES_DAY, columns_of, schema_of
from vmsonar_archive.parquet.series_day import COLUMNS

from vmsonar_inspect.parcels import SUMMARIES


def times_of(table: str) -> list[str]:
    """The columns that hold a time."""
    if table in SUMMARIES:
        return [name for name, kind, *_ in COLUMNS if kind == "time"]
    return [field.name for field in columns_of(table) if field.type is datetime]


def empty_table(table: str, folder: Path) -> Path:
    """The file of one empty table, made unless it is there; known by its columns, so that pyarrow is not loaded."""
    columns = COLUMNS if table in SUMMARIES else columns_of(table)
    path = folder / f"{table}-{hashlib.sha256(repr(columns).encode()).hexdigest()[:12]}.parquet"
    if not path.exists():
        import pyarrow.parquet as pq

        temporary = path.with_suffix(f".{os.getpid()}")
        # An empty Arrow table would do as well, but making one imports pandas where that is installed.
        pq.ParquetWriter(temporary, schema_of(SERIES_DAY if table in SUMMARIES else table)).close()
        temporary.rename(path)
    return path
