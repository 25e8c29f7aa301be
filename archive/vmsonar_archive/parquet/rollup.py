"""Summaries per series and day: reset-aware rises, extremes and log-histograms (series_day.parquet).

The rule for rises: a series that began since the sample before counted from zero; a counter that fell was reset, and
its rise is its new value in tables whose counters restart at zero (RESET_TO_ZERO), unknown in others. The views of
vmsonar_inspect compute rises by the same rule in SQL (tables/views.py).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vmsonar_archive.parquet.schema import SERIES_KEYS, Key, arrow, histogram_type, series_day_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Measure:
    """One quantity of a series: a counter, of which rises and rates are summarized, or a gauge."""

    name: str
    #: Fields that are added up; null when all of them are.
    fields: tuple[str, ...]
    counter: bool = False
    #: Whether the distribution is kept as well.
    histogram: bool = False
    #: The values are divided by this; None stands for ticks per second.
    divisor: float | None = 1.0
    #: A field that is taken off.
    less: str | None = None


def _counter(name: str, *fields: str, divisor: float | None = 1.0, histogram: bool = False) -> Measure:
    return Measure(name, fields or (name,), counter=True, histogram=histogram, divisor=divisor)


def _gauge(name: str, *fields: str, histogram: bool = False, less: str | None = None) -> Measure:
    return Measure(name, fields or (name,), histogram=histogram, less=less)


MEASURES: dict[str, tuple[Measure, ...]] = {
    "process": (
        _counter("cpu", "user_ticks", "system_ticks", divisor=None, histogram=True),
        _counter("read_bytes"),
        _counter("write_bytes"),
        _gauge("memory", "resident", less="shared", histogram=True),
    ),
    "job": (
        _counter("cpu", "user_ticks", "system_ticks", divisor=None, histogram=True),
        _counter("cpu_user", "user_ticks", divisor=None),
        _counter("cpu_system", "system_ticks", divisor=None),
        _counter("read_bytes", histogram=True),
        _counter("write_bytes", histogram=True),
        _counter("major_faults"),
        _gauge("memory", histogram=True),
        _gauge("processes"),
        _gauge("processes_seen"),
        _gauge("threads", histogram=True),
        _gauge("unattributed"),
        _gauge("io_partial"),
    ),
    "container": (
        _counter("cpu", "cpu_time", divisor=1e9, histogram=True),
        _counter("cpu_user", "cpu_user_time", divisor=1e9),
        _counter("cpu_system", "cpu_system_time", divisor=1e9),
        _counter("throttled", "throttled_time", divisor=1e9),
        _counter("oom_kills"),
        _counter("read_bytes"),
        _counter("write_bytes"),
        _counter("received_bytes"),
        _counter("sent_bytes"),
        _gauge("memory", "memory_used", less="memory_inactive_file", histogram=True),
        _gauge("memory_limit"),
        _gauge("cpu_quota"),
        _gauge("cpu_period"),
        _gauge("processes"),
        _gauge("network_shared"),
    ),
}

#: Tables whose counters begin at zero when they are reset, so that the value itself is the rise.
RESET_TO_ZERO = frozenset({"container"})


#: Neighbouring buckets differ by 2 %, so that a bucket's middle is within 1 % of what is in it.
BASE = 1.02
#: The bucket of values that are not above zero.
ZERO_BUCKET = -100_000
# The shortest first interval, in seconds: ticks are too coarse for less.
_SHORTEST = 1.0


@dataclass(frozen=True, slots=True)
class Series:
    """The rows of some series, one after the other."""

    table: str
    #: The number of the series each row belongs to, rising from 0.
    group: "pa.Array"
    boottime: "pa.Array"
    rows: "pa.Table"
    ticks_per_second: float
    #: For each series the boot clock in seconds at its start, if that was after the sample before.
    starts: Sequence[float | None]
    #: The boot clock at the sample before each row's, where a series may have been away in between.
    previous: "pa.Array | None" = None


def summarize(series: Series) -> "pa.Table | None":
    """One row per series and measure; None if nothing was measured."""
    pa = arrow()
    parts = [_measured(series, measure) for measure in MEASURES[series.table]]
    known = [part for part in parts if part is not None]
    return pa.concat_tables(known) if known else None


def _measured(series: Series, measure: Measure) -> "pa.Table | None":
    import pyarrow.compute as pc

    values = _values(series, measure)
    known = pc.is_valid(values)
    if values.null_count:
        if values.null_count == len(values):
            return None
        group, boottime, values = (column.filter(known) for column in (series.group, series.boottime, values))
        if series.previous is not None:
            series = replace(series, previous=series.previous.filter(known))
    else:
        group, boottime = series.group, series.boottime
    if measure.counter:
        return _counted(series, measure, group, boottime, values)
    return _grouped(measure, group, boottime, values, values, None, arrow().repeat(False, len(values)))


def _values(series: Series, measure: Measure) -> "pa.Array":
    pa = arrow()
    import pyarrow.compute as pc

    total = None
    for name in measure.fields:
        value = series.rows[name].combine_chunks().cast(pa.float64(), safe=False)
        total = value if total is None else pc.add(total, value)
    if measure.less is not None:
        taken = series.rows[measure.less].combine_chunks().cast(pa.float64(), safe=False)
        # The two were read one after the other: of something that grows fast the part can exceed the whole.
        total = pc.max_element_wise(pc.subtract(total, pc.fill_null(taken, 0.0)), 0.0, skip_nulls=False)
    divisor = measure.divisor or series.ticks_per_second
    return total if divisor == 1.0 else pc.divide(total, divisor)


def _counted(series: Series, measure: Measure, group: Any, boottime: Any, values: Any) -> "pa.Table":
    import pyarrow.compute as pc

    same = pc.equal(group, _shift(group))
    rise = pc.if_else(same, pc.subtract(values, _shift(values)), None)
    seconds = pc.if_else(
        same, pc.divide(pc.subtract(boottime, _shift(boottime)).cast("double", safe=False), 1e9), None
    )
    fell = pc.fill_null(pc.less(rise, 0.0), False)
    if series.previous is not None:
        # It restarted after the sample before at the earliest; the time until then is not its own.
        own = pc.divide(pc.subtract(boottime, series.previous).cast("double", safe=False), 1e9)
        seconds = pc.if_else(fell, pc.min_element_wise(seconds, own), seconds)
    rise = pc.if_else(fell, values if series.table in RESET_TO_ZERO else None, rise)
    begin = _begins(series, group, boottime, same)
    begins = pc.is_valid(begin)
    rise = pc.if_else(begins, values, rise)
    seconds = pc.if_else(begins, begin, seconds)
    # Two rows of one moment have a rise but no rate.
    timed = pc.and_(pc.is_valid(rise), pc.greater(seconds, 0.0))
    seconds = pc.if_else(timed, seconds, None)
    return _grouped(measure, group, boottime, values, rise, seconds, begins)


def _shift(column: "pa.Array") -> "pa.Array":
    pa = arrow()
    return pa.concat_arrays([pa.nulls(1, column.type), column.slice(0, len(column) - 1)])


def _begins(series: Series, group: Any, boottime: Any, same: Any) -> "pa.Array":
    """For the first row of each series the seconds since its start, if it began in that interval."""
    pa = arrow()
    import pyarrow.compute as pc

    firsts = pc.indices_nonzero(pc.invert(pc.fill_null(same, False))).to_pylist()
    found: list[float | None] = [None] * len(group)
    for place in firsts:
        start = series.starts[group[place].as_py()]
        if start is not None:
            found[place] = max(boottime[place].as_py() / 1e9 - start, _SHORTEST)
    return pa.array(found, pa.float64())


def _grouped(
    measure: Measure, group: Any, boottime: Any, values: Any, amounts: Any, seconds: Any, begins: Any
) -> "pa.Table":
    """One row per series: `amounts` are summed; their extremes are taken as they are or per second."""
    pa = arrow()
    import pyarrow.compute as pc

    judged = amounts if seconds is None else pc.divide(amounts, seconds)
    whole = pa.repeat(1.0, len(values)) if seconds is None else seconds
    frame = pa.table(
        {"group": group, "boottime": boottime, "value": values, "amount": amounts, "judged": judged,
         "seconds": whole, "begins": begins}
    )  # fmt: skip
    rolled = frame.group_by("group", use_threads=False).aggregate(
        [("value", "count"), ("boottime", "first"), ("boottime", "last"), ("value", "first"), ("value", "last"),
         ("amount", "sum"), ("seconds", "sum"), ("judged", "min"), ("judged", "max"), ("value", "max"),
         ("begins", "first")]
    )  # fmt: skip
    buckets = _histograms(group, judged, rolled["group"].to_pylist()) if measure.histogram else None
    empty = pa.nulls(len(rolled), histogram_type())
    return pa.table(
        {
            "group": rolled["group"],
            "measure": pa.repeat(measure.name, len(rolled)),
            "counter": pa.repeat(measure.counter, len(rolled)),
            "samples": rolled["value_count"],
            "first_boottime": rolled["boottime_first"],
            "last_boottime": rolled["boottime_last"],
            "first_value": rolled["value_first"],
            "last_value": rolled["value_last"],
            "total": rolled["amount_sum"],
            "seconds": rolled["seconds_sum"],
            "minimum": rolled["judged_min"],
            "maximum": rolled["judged_max"],
            "highest_value": rolled["value_max"],
            "begins": rolled["begins_first"],
            "histogram": empty if buckets is None else buckets,
        }
    )


def _histograms(group: Any, judged: Any, groups: list[int]) -> "pa.Array":
    """The histogram of each series, as a list of buckets with their frequencies."""
    pa = arrow()
    import pyarrow.compute as pc

    positive = pc.greater(judged, 0.0)
    logs = pc.floor(pc.divide(pc.ln(pc.if_else(positive, judged, 1.0)), math.log(BASE)))
    bucket = pc.if_else(positive, logs.cast("int64"), ZERO_BUCKET)
    frame = pa.table({"group": group, "bucket": bucket}).filter(pc.is_valid(judged))
    counted = frame.group_by(["group", "bucket"], use_threads=False).aggregate([([], "count_all")])
    counted = counted.sort_by([("group", "ascending"), ("bucket", "ascending")]).combine_chunks()
    sizes = dict(zip(*(part.to_pylist() for part in _counts(counted)), strict=True))
    offsets = [0]
    for one in groups:
        offsets.append(offsets[-1] + sizes.get(one, 0))
    entries = pa.StructArray.from_arrays(
        [_column(counted, "bucket"), _column(counted, "count_all").cast("int64")], ["bucket", "frequency"]
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries).cast(histogram_type())


def _column(table: "pa.Table", name: str) -> "pa.Array":
    column = table[name]
    return column.chunk(0) if column.num_chunks else arrow().array([], column.type)


def _counts(table: "pa.Table") -> tuple[Any, Any]:
    return tuple(_column(table, "group").value_counts().flatten())


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
    """The number of the group for each row, given the sizes of the groups."""
    pa = arrow()
    return pa.concat_arrays(
        [pa.repeat(pa.scalar(number, pa.int32()), count) for number, count in enumerate(counts)]
    )
