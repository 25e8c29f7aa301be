"""Turns records into Arrow tables: rows of Structs to columns, stamped and joined with their series."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from vmsonar_archive.fields import Field, element_of
from vmsonar_archive.parquet.schema import (
    JOINED,
    SAMPLES,
    STAMP_FIELDS,
    SYSINFO,
    arrow,
    own_fields,
    schema_of,
)
from vmsonar_archive.records import KINDS, Sample, Stamp, SysInfo

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES_AND_IDS = frozenset({"run", "boot"})


class SeriesNames:
    """The series ids that the info rows of one archive gave, by boot and the two numbers that name a series."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, int, int], str]] = {kind: {} for kind in JOINED}

    def learn(self, samples: Iterable[Sample]) -> None:
        """Takes in the info rows of samples, to be called before their rows are named."""
        for sample in samples:
            for kind, (info, number, start) in JOINED.items():
                known = self._known[kind]
                for row in getattr(sample, info):
                    known[sample.boot, getattr(row, number), getattr(row, start)] = row.series_id

    def names(self, kind: str, samples: Sequence[Sample]) -> list[str | None]:
        """The series id of every row of a kind, None where no info row told it."""
        known = self._known[kind]
        number, start = map(attrgetter, JOINED[kind][1:])
        return [
            known.get((sample.boot, number(row), start(row)))
            for sample in samples
            for row in getattr(sample, kind)
        ]


def sample_tables(
    archive: str, samples: Sequence[Sample], series: SeriesNames, tables: Iterable[str] = (SAMPLES, *KINDS)
) -> "dict[str, pa.Table]":
    """The rows of some samples as one table per kind, in the order in which they were taken."""
    series.learn(samples)
    return {table: _sample_table(table, archive, samples, series) for table in tables}


def _sample_table(table: str, archive: str, samples: Sequence[Sample], series: SeriesNames) -> "pa.Table":
    if table == SAMPLES:
        return _assemble(table, _stamps(archive, samples, [1] * len(samples)))
    lists = [getattr(sample, table) for sample in samples]
    arrays = _stamps(archive, samples, [len(rows) for rows in lists])
    if table in JOINED:
        arrays.append(arrow().array(series.names(table, samples), arrow().string()))
    rows = list(chain.from_iterable(lists))
    arrays += [_column(field, rows) for field in own_fields(table)]
    return _assemble(table, arrays)


def sysinfo_table(archive: str, records: Sequence[SysInfo]) -> "pa.Table":
    """Descriptions of the machine as a table."""
    arrays = _stamps(archive, records, [1] * len(records))
    return _assemble(SYSINFO, arrays + [_column(field, records) for field in own_fields(SYSINFO)])


def _assemble(table: str, arrays: list[Any]) -> "pa.Table":
    return arrow().Table.from_arrays(arrays, schema=schema_of(table))


def _stamps(archive: str, records: Sequence[Stamp], counts: Sequence[int]) -> list[Any]:
    """The columns that say who recorded and when, each value repeated for the rows of its record."""
    pa = arrow()
    types = {"seq": pa.int64(), "boottime": pa.int64(), "time": pa.timestamp("us", "UTC")}
    index = pa.array(list(chain.from_iterable(map(repeat, range(len(counts)), counts))), pa.int64())
    arrays = [pa.repeat(pa.scalar(archive, pa.string()), len(index))]
    for name in STAMP_FIELDS:
        once = pa.array(list(map(attrgetter(name), records)), types.get(name, pa.string()))
        arrays.append(once.take(index))
    return arrays


def _column(field: Field, rows: Sequence[msgspec.Struct]) -> Any:
    kind = schema_type(field)
    values = list(map(attrgetter(field.name), rows))
    plain = _plain(field)
    if plain is not None:
        values = [None if value is None else plain(value) for value in values]
    return arrow().array(values, kind)


def schema_type(field: Field) -> "pa.DataType":
    from vmsonar_archive.parquet.schema import arrow_type

    return arrow_type(field.type)


def _plain(field: Field) -> Callable[[Any], Any] | None:
    """How a value that Arrow does not know becomes one that it does; None for the simple ones."""
    if element_of(field.type) is not None:
        return lambda rows: [msgspec.structs.asdict(row) for row in rows]
    if get_origin(field.type) is dict:
        if get_args(field.type)[1] is str:
            return lambda labels: list(labels.items())
        return lambda value: msgspec.json.encode(value).decode()
    return None
