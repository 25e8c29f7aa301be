"""The DuckDB connection that every query runs on: in UTC, within a memory limit, and never on the network."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vmsonar_archive.errors import missing_extra

MEMORY_LIMIT = "800MB"


def need_engine(needed_for: str) -> None:
    """Says which extra brings everything at once, before the first missing part is met."""
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
    # Without a script DuckDB thinks that somebody watches, and writes its own bar among the answers.
    connection.execute("SET enable_progress_bar = false")
    # A division by zero is unknown, neither infinite nor an error; not every version knows both settings.
    known = "SELECT name FROM duckdb_settings() WHERE name IN ('ieee_floating_point_ops', 'error_on_division_by_zero')"
    for (name,) in connection.execute(known).fetchall():
        connection.execute(f"SET {name} = false")
    connection.execute("CREATE MACRO unix_micros(moment) AS epoch_us(moment)")
    return connection


def lock_down(connection: Any, folders: Iterable[Path]) -> None:
    """From here on only these folders can be read, nothing written or loaded, and none of this undone."""
    allowed = ", ".join(quoted(f"{folder}/") for folder in folders)
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"
