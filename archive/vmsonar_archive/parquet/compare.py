"""Compares derived tables with their records, by deriving them again and comparing row by row.

A hostile table is opened only by a helper with little memory and time: what it declares may be far from what it holds,
and both may be huge.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from functools import partial
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.format.layout import SAMPLE, SegmentName
from vmsonar_archive.parquet.derive import derive_day
from vmsonar_archive.parquet.files import footer_of, read_footer, refuse_huge_footer
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, SYSINFO, arrow
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.reader import Archive
from vmsonar_archive.read.source import Source, open_source
from vmsonar_archive.records.sets import RecordSet
from vmsonar_archive.system.children import HelperEnded, call_limited
from vmsonar_archive.system.errors import VmsonarError

T = TypeVar("T")

_BATCH = 10_000
_SLACK_BYTES = 1024 * 1024
_BUFFER = 1024 * 1024
# For the helper that opens tables: what Python and pyarrow take by themselves, and two batches of rows.
_MEMORY = 128 * 1024 * 1024
_SECONDS = 30
# On top of that a second for each of these.
_BYTES_PER_SECOND = 256 * 1024
_OLDER = "was summed up by the rule of an earlier version, and not compared"


def compare_tables(source: Source) -> Iterator[Finding]:
    """Differences, for every day whose records still exist."""
    archive = Archive(source)
    tables: dict[date, list[str]] = defaultdict(list)
    for path in source.sizes():
        if layout.is_parquet(path) and path in archive.ledger.current:
            day = layout.day_of(path.rpartition("/")[0])
            assert day is not None
            tables[day].append(path)
    dropped = {name.day for entry in archive.ledger.dropped if (name := SegmentName.parse(entry.path))}
    recorded = {segment.day for segment in archive.segments(SAMPLE)} - dropped
    for day in sorted(tables.keys() & recorded):
        yield from _compare_day(source, day, tables[day])


def _compare_day(source: Source, day: date, paths: list[str]) -> Iterator[Finding]:
    try:
        arrow()
        with tempfile.TemporaryDirectory() as folder:
            held = _limited(source, paths, _spans)
            accepts = None if held is None else held.__contains__
            derived = derive_day(Path(source.name), day, Path(folder), accepts).files
            yield from _limited(source, paths, _differences, derived)
    except _TooMuch as error:
        yield Finding.of(Code.REFUSED, layout.day_path(day), str(error))
    except VmsonarError as error:
        yield Finding.of(Code.UNCHECKED_TABLES, layout.day_path(day), str(error))


class _TooMuch(VmsonarError):
    """A table takes more to read than any honest one does."""


def _limited(source: Source, paths: list[str], function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function with the name of the source, the paths of some tables in it, and what else it takes."""
    sizes = source.sizes()
    seconds = _SECONDS + sum(sizes[path] for path in paths) // _BYTES_PER_SECOND
    try:
        return call_limited(function, (source.name, paths, *arguments), _MEMORY, seconds)
    except (HelperEnded, MemoryError):
        limits = f"{_MEMORY // 2**20} MiB of memory or {seconds} s"
        raise _TooMuch(f"a table of this day takes more than {limits} to read") from None


def _spans(name: str, paths: list[str]) -> RecordSet | None:
    """The records that a day's tables claim to hold; those added after a clock step are in JSON only."""
    listed = [path for path in paths if path.endswith((f"/{SAMPLES}.parquet", f"/{SYSINFO}.parquet"))]
    held = RecordSet()
    with closing(open_source(Path(name))) as source:
        try:
            for path in listed:
                with source.open(path) as stream:
                    held.update(read_footer(stream).spans)
        except VmsonarError:
            return None
    return held if listed else None


def _differences(name: str, paths: list[str], derived: dict[str, Path]) -> list[Finding]:
    """How each table differs from the one derived again."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    with closing(open_source(Path(name))) as source:
        found = ((path, _difference(source, path, derived.get(PurePath(path).stem))) for path in paths)
        return [Finding.of(_code(reason), path, reason) for path, reason in found if reason is not None]


def _code(reason: str) -> Code:
    return Code.UNCHECKED_TABLES if reason == _OLDER else Code.CORRUPT


def _difference(source: Source, path: str, derived: Path | None) -> str | None:
    """How a table differs from the one derived again; None if it does not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if derived is None:
        return "is a table that its records do not give"
    opened = partial(pq.ParquetFile, buffer_size=_BUFFER)
    try:
        with source.open(path) as stream:
            refuse_huge_footer(stream)
            with opened(stream) as found, opened(derived) as honest:
                if _is_of_older_rule(found, honest):
                    return _OLDER
                if found.metadata.num_rows != honest.metadata.num_rows:
                    return f"has {found.metadata.num_rows} rows, its records give {honest.metadata.num_rows}"
                if _bytes(found) > 2 * _bytes(honest) + _SLACK_BYTES:
                    return "declares far more than its records give"
                known = set(found.schema_arrow.names)
                columns = [name for name in honest.schema_arrow.names if name in known]
                if not found.schema_arrow.equals(_only(honest.schema_arrow, columns)):
                    return "has other columns than its records give"
                if _has_values(honest, [name for name in honest.schema_arrow.names if name not in known]):
                    return "lacks columns that its records have"
                return (
                    None
                    if _same_rows(found, honest, columns)
                    else "differs from the records it was made from"
                )
    except (pa.ArrowException, OSError, ValueError, MemoryError, VmsonarError) as error:
        # Only the text tells it where the Thrift library ran out of memory.
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            return f"takes more than {_MEMORY // 2**20} MiB of memory to read"
        return f"cannot be read as a table: {str(error).splitlines()[0][:150]}"


def _bytes(file: Any) -> int:
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    return sum(int(group.total_byte_size) for group in groups)


def _is_of_older_rule(found: Any, honest: Any) -> bool:
    """Whether a summary was made by an earlier version, which summed up otherwise."""
    ours = footer_of(honest.metadata)
    if ours.table != SERIES_DAY:
        return False
    try:
        theirs = footer_of(found.metadata)
    except (KeyError, msgspec.MsgspecError):
        return False  # not a table of ours, which is told as such
    return theirs.table == SERIES_DAY and theirs.rule < ours.rule


def _only(schema: Any, columns: list[str]) -> Any:
    return arrow().schema([schema.field(name) for name in columns], schema.metadata)


def _has_values(file: Any, columns: list[str]) -> bool:
    """Whether any of these columns, which an earlier version did not know, holds anything."""
    return bool(columns) and any(
        column.null_count < len(column)
        for batch in file.iter_batches(_BATCH, columns=columns)
        for column in batch.columns
    )


def _same_rows(found: Any, honest: Any, columns: list[str]) -> bool:
    theirs, ours = found.iter_batches(_BATCH), honest.iter_batches(_BATCH, columns=columns)
    left = right = None
    while True:
        left = left if left is not None and left.num_rows else next(theirs, None)
        right = right if right is not None and right.num_rows else next(ours, None)
        if left is None or right is None:
            return left is None and right is None
        rows = min(left.num_rows, right.num_rows)
        if not left.slice(0, rows).equals(right.slice(0, rows)):
            return False
        left, right = left.slice(rows), right.slice(rows)
