"""Are derived tables equal to the records they were derived from? Made anew and compared, row by row.

What a hostile table declares is compared before any of it is read: it cannot be larger than the honest one.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from vmsonar_archive import layout
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.layout import SAMPLE, SegmentName
from vmsonar_archive.parquet.footer import read_footer
from vmsonar_archive.parquet.schema import SAMPLES, SYSINFO
from vmsonar_archive.parquet.spans import SpanSet
from vmsonar_archive.reader import Archive
from vmsonar_archive.records import Stamp
from vmsonar_archive.source import Source

_BATCH = 10_000
_SLACK_BYTES = 1024 * 1024


def compare_tables(source: Source) -> Iterator[Finding]:
    """What differs, for every day whose records are all still there."""
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
        from vmsonar_archive.parquet.days import derive_day

        with tempfile.TemporaryDirectory() as folder:
            derived = derive_day(Path(source.name), day, Path(folder), _held(source, paths)).files
            for path in paths:
                table = path.rpartition("/")[2].removesuffix(".parquet")
                reason = _difference(source, path, derived.get(table))
                if reason is not None:
                    yield Finding.of(Code.CORRUPT, path, reason)
    except VmsonarError as error:
        yield Finding.of(Code.UNCHECKED_TABLES, layout.day_path(day), str(error))


def _held(source: Source, paths: list[str]) -> Callable[[Stamp], bool]:
    """Tells the records that a day's tables say they hold: what came later, by a clock set back, is in JSON only."""
    listed = [path for path in paths if path.endswith((f"/{SAMPLES}.parquet", f"/{SYSINFO}.parquet"))]
    held = SpanSet()
    try:
        for path in listed:
            with source.open(path) as stream:
                held.add(read_footer(stream).spans)
    except VmsonarError:
        listed = []
    return held.__contains__ if listed else lambda _: True


def _difference(source: Source, path: str, derived: Path | None) -> str | None:
    """In words, how a table differs from the one made anew; None when it does not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if derived is None:
        return "is a table that its records do not give"
    try:
        with source.open(path) as stream, pq.ParquetFile(stream) as found, pq.ParquetFile(derived) as honest:
            if found.metadata.num_rows != honest.metadata.num_rows:
                return f"has {found.metadata.num_rows} rows, its records give {honest.metadata.num_rows}"
            if _bytes(found) > 2 * _bytes(honest) + _SLACK_BYTES:
                return "declares far more than its records give"
            if not found.schema_arrow.equals(honest.schema_arrow):
                return "has other columns than its records give"
            return None if _same_rows(found, honest) else "differs from the records it was made from"
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"cannot be read as a table: {str(error).splitlines()[0][:150]}"


def _bytes(file: Any) -> int:
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    return sum(int(group.total_byte_size) for group in groups)


def _same_rows(found: Any, honest: Any) -> bool:
    theirs, ours = found.iter_batches(_BATCH), honest.iter_batches(_BATCH)
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
