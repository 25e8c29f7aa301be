"""One CSV file per table that has rows."""

from collections.abc import Collection
from pathlib import Path

from vmsonar_inspect.answers_sql import names_of, rows_of
from vmsonar_inspect.cells import write_csv
from vmsonar_inspect.tables import Tables


def export_csv(tables: Tables, names: Collection[str], folder: Path) -> dict[str, int]:
    """Writes the tables or views into a folder; returns the number of rows of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name in names:
        (count,) = tables.sql(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 - a name of ours
        if not count:
            continue
        result = tables.sql(f"SELECT * FROM {name}")  # noqa: S608 - a name of ours
        partial = folder / f".{name}.csv.tmp"
        with partial.open("w", encoding="utf-8", newline="") as sink:
            write_csv(sink, names_of(result), rows_of(result))
        partial.rename(folder / f"{name}.csv")
        written[name] = count
    return written
