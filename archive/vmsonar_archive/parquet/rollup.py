"""Summaries per series and day: reset-aware rises, extremes and log-histograms (series_day.parquet).

The rule for rises: a series that began since the sample before counted from zero; a counter that fell was reset, and
its rise is its new value in tables whose counters restart at zero (RESET_TO_ZERO), unknown in others. Each life of a
container (cgroup_inode) counts from zero. An interval lasts from the row before, or from the start, to the row or to
the death of its last member. A job's row that finds nobody is an end: its counters count, its gauges do not. The views
of vmsonar_inspect follow this rule in SQL (tables/views.py).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from vmsonar_archive.parquet.measures import MEASURES, RESET_TO_ZERO, Measure
from vmsonar_archive.parquet.schema import SERIES_DAY, Key, arrow, histogram_type, schema_of
from vmsonar_archive.parquet.stamps import Starts
from vmsonar_archive.records import SERIES_KEYS

if TYPE_CHECKING:
    import pyarrow as pa

#: Neighbouring buckets differ by 2 %, so that a bucket's middle is within 1 % of what is in it.
BASE = 1.02
#: The bucket of values that are not above zero.
ZERO_BUCKET = -100_000
# The least seconds that a rate of a first or last interval is taken over: ticks are too coarse for less.
_SHORTEST = 1.0
#: The version of this rule, which the footer of a summary names.
RULE = 2
# That of a container's life: its group counts what the runtime does before the program starts.
_SHORTEST_LIFE = 0.1


#: The columns of a summary: what is aggregated over the rows of a series, and how.
_AGGREGATES: dict[str, tuple[str, str]] = {
    "samples": ("value", "count"),
    "first_boottime": ("boottime", "first"),
    "last_boottime": ("boottime", "last"),
    "first_value": ("value", "first"),
    "last_value": ("value", "last"),
    "total": ("amount", "sum"),
    "seconds": ("seconds", "sum"),
    "minimum": ("judged", "min"),
    "maximum": ("judged", "max"),
    "highest_value": ("value", "max"),
    "begins": ("begins", "first"),
}


@dataclass(frozen=True, slots=True)
class Series:
    """The rows of some series, one after the other."""

    table: str
    rows: "pa.Table"
    ticks_per_second: float
    #: For each series the boot clock in seconds at its start, if that was after the sample before.
    starts: Sequence[float | None]
    #: The number of the series each row belongs to, rising from 0.
    group: "pa.Array"
    boottime: "pa.Array"
    #: The boot clock up to which each row speaks: that of its sample, or the death of the last member before it.
    until: "pa.Array"
    #: The boot clock at the sample before each row's, where a series may have been away in between.
    previous: "pa.Array | None" = None
    #: Of containers: which life each row is of (0 where unknown), the boot clock at its start if that was recorded,
    #: and when the row was read.
    life: "pa.Array | None" = None
    born: "pa.Array | None" = None
    read: "pa.Array | None" = None


_ROW_COLUMNS = ("group", "boottime", "until", "previous", "life", "born", "read")


def _measured(series: Series, measure: Measure) -> "pa.Table | None":
    """One row per series that has a value; None if none has."""
    import pyarrow.compute as pc

    values = _values(series, measure)
    if values.null_count == len(values):
        return None
    if values.null_count and measure.sparse:
        values = pc.fill_null(values, 0.0)
    elif values.null_count:
        known = pc.is_valid(values)
        columns = {name: getattr(series, name) for name in _ROW_COLUMNS}
        kept = {name: column.filter(known) for name, column in columns.items() if column is not None}
        series, values = replace(series, **kept), values.filter(known)
    if measure.counter:
        found = _grouped(series, measure, values, *_rises(series, values))
    else:
        found = _grouped(series, measure, values, values, None, None, arrow().repeat(False, len(values)))
    return found.filter(pc.greater(found["highest_value"], 0.0)) if measure.sparse else found


def _values(series: Series, measure: Measure) -> "pa.Array":
    import pyarrow.compute as pc

    total = reduce(pc.add, (_column(series, name, measure.words) for name in measure.fields))
    if measure.less:
        taken = reduce(pc.add, (_column(series, name) for name in measure.less))
        # The two were read one after the other: of something that grows fast the part can exceed the whole.
        rest = pc.subtract(total, taken if measure.sparse else pc.fill_null(taken, 0.0))
        total = pc.max_element_wise(rest, 0.0, skip_nulls=False)
    if measure.alive is not None:
        gone = pc.fill_null(pc.equal(_column(series, "processes"), 0.0), False)
        total = pc.if_else(gone, None, total) if measure.alive else pc.if_else(gone, total, None)
    divisor = measure.divisor or series.ticks_per_second
    return total if divisor == 1.0 else pc.divide(total, divisor)


def _column(series: Series, name: str, words: Sequence[str] = ()) -> Any:
    """A column as numbers; null in tables that are older than the field."""
    pa = arrow()
    import pyarrow.compute as pc

    if name not in series.rows.column_names:
        return pa.nulls(len(series.rows), pa.float64())
    column = series.rows[name].combine_chunks()
    if words:
        column = pc.index_in(column, value_set=pa.array(words, pa.string()))
    return column.cast(pa.float64(), safe=False)


def _integers(rows: "pa.Table", name: str) -> "pa.Array":
    """A column of the rows; nulls where an older version did not know it."""
    if name not in rows.column_names:
        return arrow().nulls(len(rows), arrow().int64())
    return rows[name].combine_chunks()


def _rises(series: Series, values: Any) -> tuple[Any, Any, Any, Any]:
    """For each row how far a counter rose, in how many seconds, over how many its rate counts, and whether it began."""
    import pyarrow.compute as pc

    def seconds_since(earlier: Any) -> Any:
        seconds = pc.divide(pc.subtract(until, earlier).cast("double", safe=False), 1e9)
        return pc.max_element_wise(seconds, 0.0, skip_nulls=False)

    until = series.until if series.read is None else series.read
    clock = series.boottime if series.read is None else series.read
    same = pc.equal(series.group, _shift(series.group))
    rise = pc.if_else(same, pc.subtract(values, _shift(values)), None)
    seconds = pc.if_else(same, seconds_since(_shift(clock)), None)
    fell = pc.fill_null(pc.less(rise, 0.0), False)
    if series.previous is not None:
        # It restarted after the sample before at the earliest; the time until then is not its own.
        own = pc.min_element_wise(seconds, seconds_since(series.previous))
        seconds = pc.if_else(fell, own, seconds)
    rise = pc.if_else(fell, values if series.table in RESET_TO_ZERO else None, rise)
    begin = _begins(series, same)
    if series.life is not None:
        own = pc.max_element_wise(seconds_since(series.born), _SHORTEST_LIFE, skip_nulls=False)
        is_other = pc.or_kleene(pc.invert(pc.fill_null(same, False)), _other_life(series.life))
        begin = pc.if_else(is_other, pc.coalesce(own, begin), None)
    begins = pc.is_valid(begin)
    rise = pc.if_else(begins, values, rise)
    seconds = pc.if_else(begins, begin, seconds)
    # Two rows of one moment have a rise but no rate.
    timed = pc.and_(pc.is_valid(rise), pc.greater(seconds, 0.0))
    seconds = pc.if_else(timed, seconds, None)
    short = pc.or_(begins, pc.less(series.until, series.boottime))
    if series.table in RESET_TO_ZERO:
        return rise, seconds, seconds, begins
    paced = pc.if_else(short, pc.max_element_wise(seconds, _SHORTEST, skip_nulls=False), seconds)
    return rise, seconds, paced, begins


def _other_life(life: Any) -> Any:
    """Whether a row is of another life than the one before it, as far as both are known."""
    import pyarrow.compute as pc

    known = pc.and_(pc.not_equal(life, 0), pc.not_equal(pc.fill_null(_shift(life), 0), 0))
    return pc.and_(known, pc.not_equal(life, pc.fill_null(_shift(life), 0)))


def _shift(column: "pa.Array") -> "pa.Array":
    pa = arrow()
    return pa.concat_arrays([pa.nulls(1, column.type), column.slice(0, len(column) - 1)])


def _begins(series: Series, same: Any) -> "pa.Array":
    """For the first row of each series the seconds since its start, if it began in that interval."""
    pa = arrow()
    import pyarrow.compute as pc

    found: list[float | None] = [None] * len(same)
    for place in pc.indices_nonzero(pc.invert(pc.fill_null(same, False))).to_pylist():
        start = series.starts[series.group[place].as_py()]
        if start is not None:
            found[place] = max(series.until[place].as_py() / 1e9 - start, 0.0)
    return pa.array(found, pa.float64())


def _grouped(
    series: Series, measure: Measure, values: Any, amounts: Any, seconds: Any, paced: Any, begins: Any
) -> "pa.Table":
    """One row per series: `amounts` are summed; their extremes are taken as they are or per second of `paced`."""
    pa = arrow()
    import pyarrow.compute as pc

    judged = amounts if paced is None else pc.divide(amounts, paced)
    whole = pa.repeat(1.0, len(values)) if seconds is None else seconds
    frame = pa.table(
        {"group": series.group, "boottime": series.boottime, "value": values, "amount": amounts,
         "judged": judged, "seconds": whole, "begins": begins}
    )  # fmt: skip
    rolled = frame.group_by("group", use_threads=False).aggregate(list(_AGGREGATES.values()))
    count = len(rolled)
    if measure.histogram:
        histograms = _histograms(series.group, judged, rolled["group"].to_pylist())
    else:
        histograms = pa.nulls(count, histogram_type())
    return pa.table(
        {
            "group": rolled["group"],
            "measure": pa.repeat(measure.name, count),
            "counter": pa.repeat(measure.counter, count),
            **{name: rolled["_".join(aggregate)] for name, aggregate in _AGGREGATES.items()},
            "histogram": histograms,
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
    counted = counted.sort_by([("group", "ascending"), ("bucket", "ascending")])
    of, buckets, frequencies = (counted[name].combine_chunks() for name in ("group", "bucket", "count_all"))
    sizes = dict(zip(*(part.to_pylist() for part in of.value_counts().flatten()), strict=True))
    offsets = [0, *accumulate(sizes.get(one, 0) for one in groups)]
    entries = pa.StructArray.from_arrays([buckets, frequencies.cast("int64")], ["bucket", "frequency"])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries).cast(histogram_type())


class SeriesDay:
    """Collects the summaries of one archive's tables."""

    def __init__(self, archive: str, starts: Starts, tables: Collection[str]) -> None:
        self._archive = archive
        self._starts = starts
        self._tables = tables
        self._parts: list[pa.Table] = []

    def add(
        self, table: str, keys: Sequence[tuple[Key, int]], rows: "pa.Table", names: Sequence[str | None]
    ) -> None:
        """Takes in whole series, given as their keys with the number of rows of each.

        The column `stamp` of the rows holds the numbers of their stamps.
        """
        if table not in self._tables or table not in MEASURES or not keys:
            return
        pa = arrow()
        group = group_numbers(keys)
        numbers = rows["stamp"].combine_chunks()
        time, boottime = (self._starts.stamps.columns[name].take(numbers) for name in ("time", "boottime"))
        firsts = numbers.take(pa.array([0, *accumulate(count for _, count in keys)][:-1], pa.int64()))
        starts = [
            self._starts.of(table, key, first)
            for (key, _), first in zip(keys, firsts.to_pylist(), strict=True)
        ]
        until = _until(rows, boottime)
        series = Series(table, rows, self._starts.ticks_per_second, starts, group, boottime, until)
        if table in RESET_TO_ZERO:
            series = self._by_life(series, numbers)
        found = [part for measure in MEASURES[table] if (part := _measured(series, measure)) is not None]
        if not found:
            return
        summary = pa.concat_tables(found)
        times = pa.table({"group": group, "time": time}).group_by("group", use_threads=False)
        seen = times.aggregate([("time", "min"), ("time", "max")])
        named = self._names(table, [key for key, _ in keys], names)
        named |= {"first_time": seen["time_min"], "last_time": seen["time_max"]}
        index = summary["group"].combine_chunks()
        columns = {name: values.take(index) for name, values in named.items()}
        schema = schema_of(SERIES_DAY)
        every = [columns[name] if name in columns else summary[name] for name in schema.names]
        self._parts.append(pa.table(every, names=schema.names).cast(schema))

    def _by_life(self, series: Series, numbers: "pa.Array") -> Series:
        """The same rows, those of each life together: the end of one may be told after the next has begun."""
        pa = arrow()
        import pyarrow.compute as pc

        inode, start, end = (
            _integers(series.rows, name) for name in ("cgroup_inode", "start_boottime", "end_boottime")
        )
        life = pc.coalesce(inode, pc.negate(start), 0)
        order = pc.sort_indices(
            pa.table({"group": series.group, "life": life, "number": numbers, "place": range_of(len(life))}),
            sort_keys=[(name, "ascending") for name in ("group", "life", "number", "place")],
        )
        first = self._starts.first_clocks(numbers.to_pylist())
        columns = {
            "boottime": series.boottime,
            "until": series.until,
            "previous": self._starts.clocks_before(numbers.to_pylist()),
            "life": life,
            "born": pc.if_else(pc.greater_equal(start, first), start, None),
            "read": pc.coalesce(end, series.boottime),
        }
        taken = {name: column.take(order) for name, column in columns.items()}
        return replace(series, rows=series.rows.take(order), **taken)

    def _names(self, table: str, keys: Sequence[Key], names: Sequence[str | None]) -> "dict[str, pa.Array]":
        pa = arrow()
        numbered = SERIES_KEYS[table] != ("container_id",)
        nothing: list[Any] = [None] * len(keys)
        boots = self._starts.stamps.boots
        return {
            "archive": pa.array([self._archive] * len(keys), pa.string()),
            "boot": pa.array([boots[key[0]] for key in keys], pa.string()),
            "source_table": pa.array([table] * len(keys), pa.string()),
            "number": pa.array([key[1] for key in keys] if numbered else nothing, pa.int64()),
            "start_ticks": pa.array([key[2] for key in keys] if numbered else nothing, pa.int64()),
            "container_id": pa.array(nothing if numbered else [key[1] for key in keys], pa.string()),
            "series_id": pa.array(list(names), pa.string()),
        }

    def table(self) -> "pa.Table":
        return arrow().concat_tables(self._parts) if self._parts else schema_of(SERIES_DAY).empty_table()


def _until(rows: "pa.Table", boottime: "pa.Array") -> "pa.Array":
    """The boot clock of each row, or the death that it tells of."""
    import pyarrow.compute as pc

    if "end_boottime" not in rows.column_names:
        return boottime
    return pc.min_element_wise(rows["end_boottime"].combine_chunks(), boottime)


def range_of(count: int) -> "pa.Array":
    return arrow().array(range(count), arrow().int64())


def group_numbers(keys: Sequence[tuple[Key, int]]) -> "pa.Array":
    """The number of the series for each row, given the series with the number of rows of each."""
    pa = arrow()
    return pa.concat_arrays(
        [pa.repeat(pa.scalar(number, pa.int32()), count) for number, (_, count) in enumerate(keys)]
    )
