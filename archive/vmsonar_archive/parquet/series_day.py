"""series_day.parquet: per series and day what its rows come to, so that a month is read from thirty small files."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from vmsonar_archive.parquet.chunks import Key
from vmsonar_archive.parquet.keys import SERIES_KEYS
from vmsonar_archive.parquet.measures import MEASURES
from vmsonar_archive.parquet.partials import Series, histogram_type, summarize
from vmsonar_archive.parquet.schema import arrow

if TYPE_CHECKING:
    import pyarrow as pa

#: Name, type, unit and meaning of every column.
COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("archive", "string", "id", "archive that holds the records"),
    ("boot", "string", "id", "boot id of the kernel"),
    ("source_table", "string", "choice", "table that was summed up: process, job or container"),
    ("number", "int64", "id", "pid of a process, pgid of a job"),
    ("start_ticks", "int64", "ticks", "start of a process or job after boot"),
    ("container_id", "string", "id", "id of a container"),
    ("series_id", "string", "id", "series of a process or job"),
    ("measure", "string", "choice", "what was summed up, such as cpu or memory"),
    ("counter", "bool", "flag", "a counter, as opposed to a gauge"),
    ("samples", "int64", "count", "rows that had a value"),
    ("first_time", "time", "time", "wall clock of the first row of the series"),
    ("last_time", "time", "time", "wall clock of the last row of the series"),
    ("first_boottime", "int64", "nanoseconds", "boot clock of the first value"),
    ("last_boottime", "int64", "nanoseconds", "boot clock of the last value"),
    ("first_value", "double", "seconds or as recorded", "first value"),
    ("last_value", "double", "seconds or as recorded", "last value"),
    (
        "total",
        "double",
        "seconds or as recorded",
        "sum of the rises of a counter, sum of the values of a gauge",
    ),
    (
        "seconds",
        "double",
        "seconds",
        "time over which a counter's rises are known; number of values of a gauge",
    ),
    ("minimum", "double", "per second or as recorded", "lowest rate of a counter, lowest value of a gauge"),
    ("maximum", "double", "per second or as recorded", "highest rate of a counter, highest value of a gauge"),
    ("highest_value", "double", "seconds or as recorded", "highest value"),
    ("begins", "bool", "flag", "the first value was counted from zero, since the series had just begun"),
    ("histogram", "histogram", "structure", "rates or values by powers of 1.02; bucket -100000 holds zero"),
)


@cache
def series_day_schema() -> "pa.Schema":
    pa = arrow()
    types = {"time": pa.timestamp("us", "UTC"), "histogram": histogram_type(), "bool": pa.bool_(),
             "double": pa.float64(), "int64": pa.int64(), "string": pa.string()}  # fmt: skip
    return pa.schema(
        [
            pa.field(name, types[kind], metadata={"unit": unit, "meaning": meaning})
            for name, kind, unit, meaning in COLUMNS
        ]
    )


class SeriesDay:
    """Collects the summaries of one archive's tables."""

    def __init__(
        self, archive: str, boots: Sequence[str], ticks_per_second: float, tables: Collection[str]
    ) -> None:
        self._tables = tables
        self._archive = archive
        self._boots = boots
        self._ticks = ticks_per_second
        self._parts: list[pa.Table] = []

    def add(
        self, table: str, keys: Sequence[tuple[Key, int]], rows: "pa.Table", stamped: "dict[str, pa.Array]",
        names: Sequence[str | None], starts: Sequence[float | None],
    ) -> None:  # fmt: skip
        """Takes in whole series, given as their keys with the number of rows of each."""
        if table not in self._tables or table not in MEASURES or not keys:
            return
        pa = arrow()
        import pyarrow.compute as pc

        group = group_numbers([count for _, count in keys])
        series = Series(table, group, stamped["boottime"], rows, self._ticks, starts, stamped.get("previous"))
        summary = summarize(series)
        if summary is None:
            return
        times = pa.table({"group": group, "time": stamped["time"]}).group_by("group", use_threads=False)
        seen = times.aggregate([("time", "min"), ("time", "max")])
        index = summary["group"].combine_chunks()
        named = self._names(table, [key for key, _ in keys], names)
        columns = {name: values.take(index) for name, values in named.items()}
        columns["first_time"] = pc.take(seen["time_min"], index)
        columns["last_time"] = pc.take(seen["time_max"], index)
        columns |= {name: summary[name] for name in summary.column_names if name != "group"}
        schema = series_day_schema()
        self._parts.append(
            pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)
        )

    def _names(self, table: str, keys: Sequence[Key], names: Sequence[str | None]) -> "dict[str, pa.Array]":
        pa = arrow()
        numbered = SERIES_KEYS[table] != ("container_id",)
        nothing: list[Any] = [None] * len(keys)
        return {
            "archive": pa.array([self._archive] * len(keys), pa.string()),
            "boot": pa.array([self._boots[key[0]] for key in keys], pa.string()),
            "source_table": pa.array([table] * len(keys), pa.string()),
            "number": pa.array([key[1] for key in keys] if numbered else nothing, pa.int64()),
            "start_ticks": pa.array([key[2] for key in keys] if numbered else nothing, pa.int64()),
            "container_id": pa.array(nothing if numbered else [key[1] for key in keys], pa.string()),
            "series_id": pa.array(list(names), pa.string()),
        }

    def table(self) -> "pa.Table":
        return arrow().concat_tables(self._parts) if self._parts else series_day_schema().empty_table()


def group_numbers(counts: Sequence[int]) -> "pa.Array":
    """0 as often as the first count says, 1 as often as the second, and so on."""
    pa = arrow()
    return pa.concat_arrays(
        [pa.repeat(pa.scalar(number, pa.int32()), count) for number, count in enumerate(counts)]
    )
