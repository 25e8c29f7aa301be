"""Summarizes Parquet tables again when only some of their records are wanted."""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vmsonar_archive.parquet.derive import Starts
from vmsonar_archive.parquet.files import Footer, TableFile, read_footer
from vmsonar_archive.parquet.rollup import MEASURES, SeriesDay
from vmsonar_archive.parquet.schema import SERIES_DAY, SERIES_KEYS, Key, arrow
from vmsonar_archive.parquet.stamps import Stamps
from vmsonar_archive.records import Stamp

if TYPE_CHECKING:
    import pyarrow as pa


def resummarize_table(
    table: str,
    files: dict[str, Path],
    target: Path,
    accepts: Callable[[Stamp], bool],
    ticks_per_second: float,
) -> None:
    """Writes the summary of the wanted rows of one table; `files` must hold samples and the table itself."""
    import pyarrow.parquet as pq

    footer = read_footer(files["samples"])
    stamps = _stamps(files["samples"], accepts)
    numbers = {identity: number for number, identity in enumerate(stamps.identities())}
    starts = Starts(ticks_per_second)
    if table == "container" and "container_info" in files:
        starts.learn(pq.read_table(files["container_info"]))
    starts.place(stamps)
    days = SeriesDay(footer.archive, stamps.boots, ticks_per_second, [table])
    if table in files:
        source = pq.ParquetFile(files[table])
        for group in range(source.num_row_groups):
            _add_group(table, source.read_row_group(group), stamps, numbers, starts, days)
    told = Footer(table=SERIES_DAY, archive=footer.archive, day=footer.day, spans=stamps.spans())
    file = TableFile(target, told, durable=False)
    file.write(days.table())
    file.finish()


def rewrite(
    files: dict[str, Path], folder: Path, accepts: Callable[[Stamp], bool], ticks_per_second: float
) -> dict[str, Path]:
    """Writes the tables again with only the wanted records, and their summary."""
    import pyarrow.parquet as pq

    made = {}
    for table, path in files.items():
        made[table] = _filtered(table, path, folder / f"{table}.parquet", accepts)
    parts = []
    for table in set(MEASURES) & set(files):
        part = folder / f"{table}.part"
        resummarize_table(table, made, part, lambda _: True, ticks_per_second)
        parts.append(pq.read_table(part))
        part.unlink()
    footer = read_footer(made["samples"])
    file = TableFile(
        folder / f"{SERIES_DAY}.parquet", msgspec.structs.replace(footer, table=SERIES_DAY), durable=False
    )
    if parts:
        file.write(arrow().concat_tables(parts))
    return made | {SERIES_DAY: file.finish()}


def _filtered(table: str, path: Path, target: Path, accepts: Callable[[Stamp], bool]) -> Path:
    import pyarrow.parquet as pq

    source = pq.ParquetFile(path)
    stamps = Stamps(accepts)
    wanted: set[tuple[str, str, int]] = set()
    for group in range(source.num_row_groups):
        stamped = source.read_row_group(group, columns=["run", "boot", "seq", "time", "boottime"])
        for row in stamped.to_pylist():
            key = (row["run"], row["boot"], row["seq"])
            if key not in wanted and stamps.add(Stamp(**row)) is not None:
                wanted.add(key)
    footer = msgspec.structs.replace(read_footer(path), spans=stamps.spans())
    file = TableFile(target, footer, durable=False)
    for group in range(source.num_row_groups):
        rows = source.read_row_group(group)
        keys = zip(*(rows[name].to_pylist() for name in ("run", "boot", "seq")), strict=True)
        file.write(rows.filter(arrow().array([key in wanted for key in keys])))
    return file.finish()


def _stamps(path: Path, accepts: Callable[[Stamp], bool]) -> Stamps:
    import pyarrow.parquet as pq

    stamps = Stamps(accepts)
    for row in pq.read_table(path).to_pylist():
        row.pop("archive")
        stamps.add(Stamp(**row))
    return stamps


def _add_group(
    table: str, rows: "pa.Table", stamps: Stamps, numbers: dict[Any, int], starts: Starts, days: SeriesDay
) -> None:
    """Adds one row group, which holds whole series."""
    pa = arrow()
    identity = zip(*(rows[name].to_pylist() for name in ("run", "boot", "seq")), strict=True)
    places = [numbers.get(one) for one in identity]
    kept = pa.array([place is not None for place in places])
    rows = rows.filter(kept)
    numbered = [place for place in places if place is not None]
    if not numbered:
        return
    keys = _keys(table, rows, stamps.boots)
    names = rows["series_id"].to_pylist() if "series_id" in rows.column_names else [None] * len(rows)
    offsets = [0, *accumulate(count for _, count in keys)][:-1]
    firsts = [numbered[place] for place in offsets]
    stamped = {name: rows[name].combine_chunks() for name in ("time", "boottime")}
    stamped |= starts.previous(table, numbered)
    days.add(table, keys, rows, stamped, [names[place] for place in offsets], starts.of(table, keys, firsts))


def _keys(table: str, rows: "pa.Table", boots: list[str]) -> list[tuple[Key, int]]:
    codes = {boot: code for code, boot in enumerate(boots)}
    columns = [rows[name].to_pylist() for name in SERIES_KEYS[table]]
    found: list[tuple[Key, int]] = []
    for boot, *rest in zip(rows["boot"].to_pylist(), *columns, strict=True):
        key = (codes[boot], *rest)
        if found and found[-1][0] == key:
            found[-1] = (key, found[-1][1] + 1)
        else:
            found.append((key, 1))
    return found
