"""The Arrow schema of every table, made from the Structs; units and meanings travel in the metadata."""

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from vmsonar_archive.errors import missing_extra
from vmsonar_archive.fields import Field, element_of, fields_of
from vmsonar_archive.records import FORMAT, KINDS, Stamp, SysInfo

if TYPE_CHECKING:
    import pyarrow as pa

#: One row per sample: the stamps alone, so that coverage is known whatever was collected.
SAMPLES = "samples"
SYSINFO = "sysinfo"
#: Every table, in the order in which people look for them.
TABLES: tuple[str, ...] = (SAMPLES, SYSINFO, *KINDS)
#: What the rows of a series come to in a day; made from the tables.
SERIES_DAY = "series_day"

STAMP_FIELDS = ("run", "boot", "seq", "time", "boottime")
#: Tables whose rows get the series id of their info row, with the columns that name the series within a boot.
JOINED: dict[str, tuple[str, str, str]] = {
    "process": ("process_info", "pid", "start_ticks"),
    "job": ("job_info", "pgid", "start_ticks"),
}

_ARCHIVE = Field(
    "archive", str, "id", "archive that holds the record", fields_of(Stamp)[2].sensitivity, False
)
_SERIES = {
    kind: Field(
        "series_id", str, "id", f"series, joined in from {info}", fields_of(Stamp)[2].sensitivity, True
    )
    for kind, (info, *_) in JOINED.items()
}


def arrow() -> Any:
    """pyarrow, or the error that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise missing_extra("parquet", "reading or writing tables") from None
    return pyarrow


@cache
def columns_of(table: str) -> tuple[Field, ...]:
    """What a table holds: who recorded, when, the series where it is joined in, and the row's own fields."""
    stamps = {field.name: field for field in fields_of(Stamp)}
    head = (_ARCHIVE, *(stamps[name] for name in STAMP_FIELDS))
    if table == SAMPLES:
        return head
    joined = (_SERIES[table],) if table in _SERIES else ()
    return (*head, *joined, *own_fields(table))


@cache
def own_fields(table: str) -> tuple[Field, ...]:
    """The fields of a table's Struct, without the stamp."""
    if table == SAMPLES:
        return ()
    struct = SysInfo if table == SYSINFO else KINDS[table]
    return tuple(field for field in fields_of(struct) if field.name not in STAMP_FIELDS)


@cache
def schema_of(table: str) -> "pa.Schema":
    """The Arrow schema of a table."""
    pa = arrow()
    if table == SERIES_DAY:
        from vmsonar_archive.parquet.series_day import series_day_schema

        fields = list(series_day_schema())
    else:
        fields = [_arrow_field(field) for field in columns_of(table)]
    return pa.schema(fields, metadata={"vmsonar.format": str(FORMAT), "vmsonar.table": table})


def _arrow_field(field: Field) -> "pa.Field":
    metadata = {"unit": field.unit, "meaning": field.meaning, "sensitivity": field.sensitivity.value}
    return arrow().field(field.name, arrow_type(field.type), nullable=True, metadata=metadata)


def arrow_type(kind: Any) -> "pa.DataType":
    """The Arrow type for a field's Python type."""
    pa = arrow()
    simple = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    if kind in simple:
        return simple[kind]
    if kind is datetime:
        return pa.timestamp("us", "UTC")
    element = element_of(kind)
    if element is not None:
        return pa.list_(pa.struct(list(_members(element))))
    if get_origin(kind) is list:
        return pa.list_(arrow_type(get_args(kind)[0]))
    if get_origin(kind) is dict and get_args(kind)[1] is str:
        return pa.map_(pa.string(), pa.string())
    # What has no fixed shape is kept as the JSON it was.
    return pa.string()


def _members(struct: type[msgspec.Struct]) -> Iterator["pa.Field"]:
    return (_arrow_field(field) for field in fields_of(struct))
