"""Sums up one table per series: reset-aware rises, extremes and log-histograms, with pyarrow alone.

Rises are taken within one series and one boot. The first row of a series counts from zero if the series began after
the sample before; otherwise it is only remembered, so that the rise from the day before can be added by the reader.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vmsonar_archive.parquet.measures import MEASURES, RESET_TO_ZERO, Measure
from vmsonar_archive.parquet.schema import arrow

if TYPE_CHECKING:
    import pyarrow as pa

#: Neighbouring buckets differ by 2 %, so that a bucket's middle is within 1 % of what is in it.
BASE = 1.02
#: The bucket of values that are not above zero.
ZERO_BUCKET = -100_000
# A series that began just before a sample is reckoned over at least a second: ticks are too coarse for less.
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
    """One row per series and measure; None when nothing was measured at all."""
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
    summary = _counted if measure.counter else _gauged
    return summary(series, measure, group, boottime, values)


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


def _gauged(series: Series, measure: Measure, group: Any, boottime: Any, values: Any) -> "pa.Table":
    begins = arrow().repeat(False, len(values))
    return _grouped(measure, group, boottime, values, values, None, begins)


def _counted(series: Series, measure: Measure, group: Any, boottime: Any, values: Any) -> "pa.Table":
    import pyarrow.compute as pc

    same = pc.equal(group, _shift(group))
    rise = pc.if_else(same, pc.subtract(values, _shift(values)), None)
    seconds = pc.if_else(
        same, pc.divide(pc.subtract(boottime, _shift(boottime)).cast("double", safe=False), 1e9), None
    )
    fell = pc.fill_null(pc.less(rise, 0.0), False)
    if series.previous is not None:
        # It was started again, at the earliest after the sample before: it did not stand idle until then.
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
    """For the first row of each series the seconds since its start, where it began in that interval."""
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
    """One row per series: `amounts` are what is summed, judged as they are or per second."""
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


def histogram_type() -> "pa.DataType":
    pa = arrow()
    return pa.list_(pa.struct([pa.field("bucket", pa.int64()), pa.field("frequency", pa.int64())]))


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
