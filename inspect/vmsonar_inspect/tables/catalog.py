"""Every table and view with what its columns mean."""

import msgspec
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, SYSINFO, TABLES, columns_of
from vmsonar_archive.records import KINDS, SysInfo

from vmsonar_inspect.tables.views import VIEWS, view
from vmsonar_inspect.tables.work_units import SUMMARIES


class TableDescription(msgspec.Struct):
    """One table or view."""

    name: str
    summary: str
    columns: dict[str, str]


def catalog() -> list[TableDescription]:
    """Views first: they answer most questions."""
    # The latest info rows have the columns of the info rows.
    views = [
        TableDescription(
            name, view(name).summary, view(name).columns or _columns(name.removeprefix("latest_"))
        )
        for name in VIEWS
    ]
    tables = [TableDescription(table, _summary(table), _columns(table)) for table in TABLES]
    days = [
        TableDescription(day, f"What the rows of every {table} come to in a day.", _columns(SERIES_DAY))
        for day, table in SUMMARIES.items()
    ]
    return [*views, *tables, *days]


def _summary(table: str) -> str:
    """What a table holds, in a sentence."""
    if table == SAMPLES:
        return "One row per sample: when and by whom it was taken."
    struct = SysInfo if table == SYSINFO else KINDS[table]
    return (struct.__doc__ or "").strip().split("\n")[0]


def _columns(table: str) -> dict[str, str]:
    return {field.name: f"{field.meaning} ({field.unit})" for field in columns_of(table)}
