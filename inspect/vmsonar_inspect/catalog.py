"""Every table and view with what its columns mean, from the records and the comments of the queries."""

import msgspec
from vmsonar_archive.parquet.schema import SAMPLES, SYSINFO, TABLES, columns_of
from vmsonar_archive.parquet.series_day import COLUMNS
from vmsonar_archive.records import KINDS, SysInfo

from vmsonar_inspect.views import VIEWS, view


class Explained(msgspec.Struct):
    """One table or view."""

    name: str
    summary: str
    columns: dict[str, str]


def catalog() -> list[Explained]:
    """Views first: they answer most questions."""
    views = [Explained(name, view(name).summary, view_columns(name)) for name in VIEWS]
    tables = [Explained(table, table_summary(table), _columns(table)) for table in TABLES]
    days = {name: f"{meaning} ({unit})" for name, _, unit, meaning in COLUMNS}
    made = [
        Explained(f"{table}_day", f"What the rows of every {table} come to in a day.", days)
        for table in ("process", "job", "container")
    ]
    return [*views, *tables, *made]


def view_columns(name: str) -> dict[str, str]:
    """The columns of a view; the latest info rows have those of the info rows."""
    if name.startswith("latest_"):
        return _columns(name.removeprefix("latest_"))
    return view(name).columns


def table_summary(table: str) -> str:
    """What a table holds, in a sentence."""
    if table == SAMPLES:
        return "One row per sample: when and by whom it was taken."
    struct = SysInfo if table == SYSINFO else KINDS[table]
    return (struct.__doc__ or "").strip().split("\n")[0]


def _columns(table: str) -> dict[str, str]:
    return {field.name: f"{field.meaning} ({field.unit})" for field in columns_of(table)}
