"""The answer to an SQL query, in the format that was asked for."""

from collections.abc import Iterator
from typing import IO, Any

import msgspec

from vmsonar_inspect.cells import plain, write_csv

_ROWS = 10_000


def names_of(result: Any) -> list[str]:
    return [column[0] for column in result.description or ()]


def rows_of(result: Any) -> Iterator[tuple[Any, ...]]:
    """The rows, a bounded number at a time."""
    while rows := result.fetchmany(_ROWS):
        yield from rows


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

    # The older name is that of DuckDB 1.
    hand_out = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
    reader = hand_out(_ROWS)
    with pq.ParquetWriter(sink, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
