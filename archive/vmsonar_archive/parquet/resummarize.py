"""Makes `series_day` again from Parquet tables when only some of their records count."""

from collections.abc import Callable, Iterator
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from vmsonar_archive.parquet.files import Footer, read_footer, table_file
from vmsonar_archive.parquet.measures import MEASURES
from vmsonar_archive.parquet.rollup import RULE, SeriesDay
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, STAMP_FIELDS, arrow
from vmsonar_archive.parquet.stamps import Stamps, Starts
from vmsonar_archive.records import SERIES_KEYS, Stamp

if TYPE_CHECKING:
    import pyarrow as pa

Accepts = Callable[[Stamp], bool]


def resummarize_table(
    table: str, files: dict[str, Path], target: Path, accepts: Accepts | None, ticks_per_second: float
) -> None:
    """Writes the summary of the wanted rows of one table; `files` must hold samples and the table itself."""
    footer = read_footer(files[SAMPLES])
    stamps = _stamps(files[SAMPLES], accepts)
    starts = Starts(stamps, ticks_per_second)
    if table == "container" and "container_info" in files:
        for rows in _row_groups(files["container_info"], ["container_id", "started"]):
            starts.learn(rows)
    day = SeriesDay(footer.archive, starts, [table])
    numbers = stamps.numbers()
    boots = {boot: code for code, boot in enumerate(stamps.boots)}
    if table == "job" and table in files:
        for rows in _row_groups(files[table], ["run", "boot", "seq"]):
            starts.with_jobs.update(numbers[one] for one in set(_identities(rows)) if one in numbers)
    for rows in _row_groups(files[table]) if table in files else ():
        _add_group(table, rows, numbers, boots, day)
    told = Footer(table=SERIES_DAY, archive=footer.archive, day=footer.day, spans=stamps.spans(), rule=RULE)
    with table_file(target, told, durable=False) as write:
        write(day.table())


def rewrite(
    files: dict[str, Path], folder: Path, accepts: Accepts | None, ticks_per_second: float
) -> dict[str, Path]:
    """Writes the tables again with only the wanted records, and their summary."""
    import pyarrow.parquet as pq

    made = {table: _filtered(path, folder / f"{table}.parquet", accepts) for table, path in files.items()}
    summary = folder / f"{SERIES_DAY}.parquet"
    footer = replace(read_footer(made[SAMPLES]), table=SERIES_DAY, rule=RULE)
    part = folder / "part"
    parts = []
    for table in MEASURES:
        if table in files:
            resummarize_table(table, made, part, None, ticks_per_second)
            parts.append(pq.read_table(part))
            part.unlink()
    with table_file(summary, footer, durable=False) as write:
        if parts:
            write(arrow().concat_tables(parts))
    return made | {SERIES_DAY: summary}


def _filtered(path: Path, target: Path, accepts: Accepts | None) -> Path:
    stamps = _stamps(path, accepts)
    wanted = stamps.numbers()
    footer = replace(read_footer(path), spans=stamps.spans())
    with table_file(target, footer, durable=False) as write:
        for rows in _row_groups(path):
            write(rows.filter(arrow().array([identity in wanted for identity in _identities(rows)])))
    return target


def _row_groups(path: Path, columns: list[str] | None = None) -> "Iterator[pa.Table]":
    import pyarrow.parquet as pq

    source = pq.ParquetFile(path)
    return (source.read_row_group(group, columns) for group in range(source.num_row_groups))


def _identities(rows: "pa.Table") -> Iterator[tuple[str, str, int]]:
    return zip(*(rows[name].to_pylist() for name in ("run", "boot", "seq")), strict=True)


def _stamps(path: Path, accepts: Accepts | None) -> Stamps:
    """The wanted stamps of a table's rows, each once."""
    stamps = Stamps(accepts)
    for rows in _row_groups(path, list(STAMP_FIELDS)):
        distinct = rows.group_by(list(STAMP_FIELDS), use_threads=False).aggregate([])
        for row in distinct.to_pylist():
            stamps.add(Stamp(**row))
    return stamps


def _add_group(
    table: str,
    rows: "pa.Table",
    numbers: dict[tuple[str, str, int], int],
    boots: dict[str, int],
    day: SeriesDay,
) -> None:
    """Adds one row group, which holds whole series."""
    pa = arrow()
    stamp = pa.array([numbers.get(identity) for identity in _identities(rows)], pa.int32())
    rows = rows.append_column("stamp", stamp).filter(stamp.is_valid())
    columns = [rows[name].to_pylist() for name in ("boot", *SERIES_KEYS[table])]
    series = ((boots[boot], *rest) for boot, *rest in zip(*columns, strict=True))
    keys = [(key, sum(1 for _ in same)) for key, same in groupby(series)]
    names: list[Any] = (
        rows["series_id"].to_pylist() if "series_id" in rows.column_names else [None] * len(rows)
    )
    firsts = [0, *accumulate(count for _, count in keys)][:-1]
    day.add(table, keys, rows, [names[place] for place in firsts])
