"""The DuckDB connection that every query runs on: in UTC, within a memory limit, never on the network."""

import hashlib
import os
import signal
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vmsonar_archive.parquet.schema import columns_of, schema_of
from vmsonar_archive.system.errors import missing_extra

from vmsonar_inspect.tables.cache import make_once
from vmsonar_inspect.tables.work_units import layout_of

MEMORY_LIMIT = "800MB"
# Fewer files than this are opened quickly enough as they are.
_MANY = 64
# Files of this size on average are copied quickly, and a thousand of them fit any disk.
_SMALL_BYTES = 256 * 1024
# How many are open at the same time.
_AT_ONCE = 100


def need_engine(needed_for: str) -> None:
    """Raises unless DuckDB and pyarrow are installed; names the extra that brings both."""
    if find_spec("duckdb") is None or find_spec("pyarrow") is None:
        raise missing_extra("inspect", needed_for)


def connect(scratch: Path, memory_limit: str = MEMORY_LIMIT) -> Any:
    """A connection that fetches no extension and spills into a folder of its own."""
    need_engine("querying")
    import duckdb

    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": memory_limit,
            "temp_directory": str(scratch / "spill"),
            "preserve_insertion_order": False,
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    # Without a script DuckDB takes the session for interactive and prints its own progress bar.
    connection.execute("SET enable_progress_bar = false")
    # A division by zero is unknown, neither infinite nor an error; not every version knows both settings.
    known = "SELECT name FROM duckdb_settings() WHERE name IN ('ieee_floating_point_ops', 'error_on_division_by_zero')"
    for (name,) in connection.execute(known).fetchall():
        connection.execute(f"SET {name} = false")
    connection.execute("CREATE MACRO unix_micros(moment) AS epoch_us(moment)")
    return connection


class Breaker:
    """Interrupts the running query when a signal arrives: DuckDB does not return for one (signal.set_wakeup_fd).

    Only in the main thread, and not where something else, such as an event loop, uses the wakeup descriptor.
    """

    def __init__(self, connection: Any) -> None:
        self._writer: int | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)
            return
        self._writer = writer
        threading.Thread(target=_break_at_signals, args=(reader, connection), daemon=True).start()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None or threading.current_thread() is not threading.main_thread():
            return
        signal.set_wakeup_fd(-1)
        os.close(writer)


def _break_at_signals(reader: int, connection: Any) -> None:
    import duckdb

    with os.fdopen(reader, "rb", buffering=0) as stream:
        while numbers := stream.read(64):
            if {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} & set(numbers):
                with suppress(duckdb.Error):  # it may be closed by now
                    connection.interrupt()


def lock_down(connection: Any, folders: Iterable[Path]) -> None:
    """From here on only these folders can be read, nothing written or loaded, and none of this undone."""
    allowed = ", ".join(quoted(f"{folder}/") for folder in folders)
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def times_of(table: str) -> list[str]:
    """The columns that hold a time."""
    return [field.name for field in columns_of(layout_of(table)) if field.type is datetime]


def empty_table(table: str, folder: Path) -> Path:
    """The file of one empty table, made unless it is there; known by its columns, so that pyarrow is not loaded."""
    digest = hashlib.sha256(repr(columns_of(layout_of(table))).encode()).hexdigest()
    name = f"{table}-{digest[:12]}.parquet"

    def make(path: Path) -> None:
        import pyarrow.parquet as pq

        # An empty Arrow table would do as well, but making one imports pandas where that is installed.
        pq.ParquetWriter(path, schema_of(layout_of(table))).close()

    return make_once(name, folder, make)


def compact(connection: Any, table: str, paths: Sequence[Path], scratch: Path) -> list[Path]:
    """The files to read instead of these: very many small ones are first copied into a few larger ones."""
    if len(paths) < _MANY or sum(path.stat().st_size for path in paths) > len(paths) * _SMALL_BYTES:
        return list(paths)
    parts = []
    for first in range(0, len(paths), _AT_ONCE):
        part = scratch / f"compact-{table}-{first}.parquet"
        some = source(paths[first : first + _AT_ONCE])
        connection.execute(f"COPY (SELECT * FROM {some}) TO {quoted(str(part))} (FORMAT parquet)")  # noqa: S608
        parts.append(part)
    return parts


def source(paths: Sequence[Path]) -> str:
    """A FROM clause over some files; columns are matched by name."""
    listed = ", ".join(quoted(str(path)) for path in paths)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
