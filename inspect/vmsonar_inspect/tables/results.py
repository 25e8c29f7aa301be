"""The values of answers as CSV that no spreadsheet runs, as JSON, as Parquet, and as text for people."""

import csv
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import IO, Any

import msgspec
from vmsonar_archive.system.text import printable
from vmsonar_archive.write.outputs import PARQUET_MARK

# A spreadsheet takes text that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_ROWS = 10_000


def plain(value: Any) -> Any:
    """A value that JSON knows; a time in UTC, RFC 3339."""
    if isinstance(value, datetime):
        # DuckDB's times are UTC without a zone.
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def shown(value: Any) -> str:
    """A cell of a table on a screen."""
    if value is None:
        return "\u2013"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:.6g}"
    value = plain(value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)


def write_csv(sink: IO[str], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a header and rows (RFC 4180); on a terminal a cell cannot be obeyed, nor look like several lines."""
    writer = csv.writer(sink, lineterminator="\r\n")
    write = _shown_cell if sink.isatty() else _cell
    writer.writerow([write(name) for name in names])
    writer.writerows([write(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    """A CSV cell: text stays text, whatever it begins with; flags, lists and structures are JSON."""
    value = plain(value)
    if isinstance(value, bool | dict | list):
        value = msgspec.json.encode(value).decode()
    if isinstance(value, str):
        value = value.replace("\0", "")
        return f"'{value}" if value.startswith(_FORMULA) else value
    return value


def _shown_cell(value: Any) -> Any:
    value = _cell(value)
    return printable(value) if isinstance(value, str) else value


def names_of(result: Any) -> list[str]:
    return [column[0] for column in result.description or ()]


def rows_of(result: Any) -> Iterator[tuple[Any, ...]]:
    """The rows, a bounded number at a time."""
    if any("WITH TIME ZONE" in str(column[1]) for column in result.description or () if len(column) > 1):
        yield from _by_arrow(result)
        return
    while rows := result.fetchmany(_ROWS):
        yield from rows


def _by_arrow(result: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a query that makes times with a zone, such as now(): DuckDB itself needs pytz for these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = batches_of(result)
    for batch in reader:
        yield from (tuple(map(_with_maps, row.values())) for row in batch.to_pylist())


def _with_maps(value: Any) -> Any:
    """Arrow hands out a map as pairs."""
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def batches_of(result: Any) -> Any:
    """The rows as batches of Arrow; the older name of the method is that of DuckDB 1."""
    return (getattr(result, "to_arrow_reader", None) or result.fetch_record_batch)(_ROWS)


def answer_csv(result: Any, sink: IO[str]) -> None:
    write_csv(sink, names_of(result), rows_of(result))


def answer_json(result: Any, sink: IO[str]) -> None:
    """One JSON array of objects, a line each."""
    names = names_of(result)
    between = "[\n"
    for row in rows_of(result):
        record = {name: plain(value) for name, value in zip(names, row, strict=True)}
        sink.write(between + msgspec.json.encode(record).decode())
        between = ",\n"
    sink.write("[]\n" if between == "[\n" else "\n]\n")


def answer_parquet(result: Any, sink: IO[bytes]) -> None:
    """One Parquet file, written batch by batch."""
    import pyarrow.parquet as pq

    reader = batches_of(result)
    schema = reader.schema.with_metadata({**(reader.schema.metadata or {}), PARQUET_MARK: b"1"})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
