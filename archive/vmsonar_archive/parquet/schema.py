"""The Arrow schema of every table, made from the Structs."""

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_origin

from vmsonar_archive.records import FORMAT, KINDS, Stamp, SysInfo
from vmsonar_archive.records.fields import Field, Sensitivity, element_of, fields_of
from vmsonar_archive.system.errors import missing_extra

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

_STAMP = {field.name: field for field in fields_of(Stamp)}
_ARCHIVE = Field("archive", str, "id", "archive that holds the record", Sensitivity.NONE, False)
_SERIES = {
    kind: Field("series_id", str, "id", f"series, joined in from {info}", Sensitivity.NONE, True)
    for kind, (info, *_) in JOINED.items()
}

#: What names a series: the code of its boot, then the values of its SERIES_KEYS.
Key = tuple[Any, ...]

#: Name, type, unit and meaning of every column of a summary.
_SERIES_DAY: tuple[tuple[str, type, str, str], ...] = (
    ("archive", str, "id", "archive that holds the records"),
    ("boot", str, "id", "boot id of the kernel"),
    ("source_table", str, "choice", "table that was summed up: process, job or container"),
    ("number", int, "id", "pid of a process, pgid of a job"),
    ("start_ticks", int, "ticks", "start of a process or job after boot"),
    ("container_id", str, "id", "id of a container"),
    ("series_id", str, "id", "series of a process or job"),
    ("measure", str, "choice", "what was summed up, such as cpu or memory"),
    ("counter", bool, "flag", "a counter, as opposed to a gauge"),
    ("samples", int, "count", "rows that had a value"),
    ("first_time", datetime, "time", "wall clock of the first row of the series"),
    ("last_time", datetime, "time", "wall clock of the last row of the series"),
    ("first_boottime", int, "nanoseconds", "boot clock of the first value"),
    ("last_boottime", int, "nanoseconds", "boot clock of the last value"),
    ("first_value", float, "seconds or as recorded", "first value"),
    ("last_value", float, "seconds or as recorded", "last value"),
    ("total", float, "seconds or as recorded", "sum of the rises of a counter, sum of the values of a gauge"),
    ("seconds", float, "seconds", "time over which a counter's rises are known; number of values of a gauge"),
    ("minimum", float, "per second or as recorded", "lowest rate of a counter, lowest value of a gauge"),
    ("maximum", float, "per second or as recorded", "highest rate of a counter, highest value of a gauge"),
    ("highest_value", float, "seconds or as recorded", "highest value"),
    ("begins", bool, "flag", "the first value was counted from zero, since the series had just begun"),
    ("histogram", list, "structure", "rates or values by powers of 1.02; bucket -100000 holds zero"),
)


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
    if table == SERIES_DAY:
        return tuple(Field(*column, Sensitivity.NONE, True) for column in _SERIES_DAY)
    joined = (_SERIES[table],) if table in _SERIES else ()
    return (_ARCHIVE, *(_STAMP[name] for name in STAMP_FIELDS), *joined, *own_fields(table))


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
    make = _summary_field if table == SERIES_DAY else _arrow_field
    metadata = {"vmsonar.format": str(FORMAT), "vmsonar.table": table}
    return arrow().schema([make(field) for field in columns_of(table)], metadata=metadata)


def _arrow_field(field: Field) -> "pa.Field":
    metadata = {"unit": field.unit, "meaning": field.meaning, "sensitivity": field.sensitivity.value}
    return arrow().field(field.name, arrow_type(field.type), metadata=metadata)


def _summary_field(field: Field) -> "pa.Field":
    kind = histogram_type() if field.name == "histogram" else arrow_type(field.type)
    return arrow().field(field.name, kind, metadata={"unit": field.unit, "meaning": field.meaning})


def histogram_type() -> "pa.DataType":
    pa = arrow()
    return pa.list_(pa.struct([pa.field("bucket", pa.int64()), pa.field("frequency", pa.int64())]))


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
        return pa.list_(pa.struct([_arrow_field(field) for field in fields_of(element)]))
    if get_origin(kind) is list:
        return pa.list_(arrow_type(get_args(kind)[0]))
    if get_origin(kind) is dict and get_args(kind)[1] is str:
        return pa.map_(pa.string(), pa.string())
    # What has no fixed shape is kept as the JSON it was.
    return pa.string()
