"""Derives the tables of some segments (one UTC day, as a rule) within a fixed amount of memory."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from vmsonar_archive.format.lines import BadLine, decode_sysinfo
from vmsonar_archive.parquet.decode import RowCollector, column
from vmsonar_archive.parquet.files import Footer, SourceSegment, TableFile
from vmsonar_archive.parquet.rollup import MEASURES, RESET_TO_ZERO, SeriesDay, group_numbers
from vmsonar_archive.parquet.schema import (
    JOINED,
    SAMPLES,
    SERIES_DAY,
    STAMP_FIELDS,
    SYSINFO,
    TABLES,
    Key,
    arrow,
    own_fields,
    schema_of,
)
from vmsonar_archive.parquet.sort import Runs
from vmsonar_archive.parquet.stamps import Stamps
from vmsonar_archive.records import KINDS, Stamp, SysInfo
from vmsonar_archive.system.errors import NOT_JSON

if TYPE_CHECKING:
    import pyarrow as pa


#: The summary that an archive keeps: of every table that has one.
ALL_IN_ONE: Mapping[str, Collection[str]] = {SERIES_DAY: tuple(MEASURES)}
_NAMED_BY = {table: info for table, (info, *_) in JOINED.items()} | {"container": "container_info"}
# The most that is held of one table's undecoded rows, and of all tables' columns before some are spilled to disk.
_COLLECT_BYTES = 2 * 1024 * 1024
_HELD_BYTES = 16 * 1024 * 1024
# Nanoseconds by which a start may seem too early: a tick is coarser than the boot clock.
_COARSENESS = 20_000_000


class Starts:
    """The starts of series: of jobs and processes by their ticks, of containers by their info rows."""

    def __init__(self, ticks_per_second: float) -> None:
        self._ticks = ticks_per_second
        self._containers: dict[str, set[datetime]] = {}
        self._previous: list[int | None] = []
        self._stamps = Stamps()

    def learn(self, rows: "pa.Table") -> None:
        """Takes in rows of container_info."""
        columns = (rows[name].to_pylist() for name in ("container_id", "started"))
        for container, started in zip(*columns, strict=True):
            if started is not None:
                self._containers.setdefault(container, set()).add(started)

    def place(self, stamps: Stamps) -> None:
        """Sets the samples that starts are compared with."""
        self._stamps = stamps
        self._previous = stamps.previous()

    def previous(self, table: str, numbers: Iterable[int]) -> "dict[str, pa.Array]":
        """A column with the boot clock at the sample before each of these; only for containers, which can restart."""
        if table not in RESET_TO_ZERO:
            return {}
        clocks = [
            None if (before := self._previous[number]) is None else self._stamps.boottime[before]
            for number in numbers
        ]
        return {"previous": arrow().array(clocks, arrow().int64())}

    def of(self, table: str, keys: Sequence[tuple[Key, int]], firsts: Sequence[int]) -> list[float | None]:
        """For each series the boot clock in seconds at which it began to count; None if unknown."""
        return [self._start(table, key, first) for (key, _), first in zip(keys, firsts, strict=True)]

    def _start(self, table: str, key: Key, first: int) -> float | None:
        previous = self._previous[first]
        if previous is None or len(key) < 2:
            return None
        if table == "container":
            return self._of_container(key, first, previous)
        return self._of_numbered(key, previous)

    def _of_numbered(self, key: Key, previous: int) -> float | None:
        if not isinstance(key[-1], int):
            return None
        start = key[-1] / self._ticks
        return start if start * 1e9 >= self._stamps.boottime[previous] - _COARSENESS else None

    def _of_container(self, key: Key, first: int, previous: int) -> float | None:
        known = sorted(self._containers.get(key[1], ()))
        after = bisect_right(known, self._stamps.time(previous))
        if after < len(known) and known[after] <= self._stamps.time(first):
            return float(self._stamps.boottime[previous] / 1e9)
        return None


@dataclass
class Derived:
    """The result: files and rows by table, and the number of records that could not be decoded."""

    files: dict[str, Path] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    bad: int = 0


class Derivation:
    """Takes in lines of segments, then writes one Parquet file per table into a folder."""

    def __init__(
        self,
        archive: str,
        day: str,
        folder: Path,
        tables: Collection[str] = TABLES,
        ticks_per_second: float = 100.0,
        accepts: Callable[[Stamp], bool] | None = None,
        durable: bool = True,
    ) -> None:
        self.archive, self.day, self.folder = archive, day, folder
        self._ticks = ticks_per_second
        self._durable = durable
        self.tables = [table for table in TABLES if table in tables]
        infos = [info for table, info in _NAMED_BY.items() if table in self.tables]
        self._kinds = [kind for kind in KINDS if kind in self.tables or kind in infos]
        self._decode = _line_decoder(self._kinds)
        self._stamps = Stamps(accepts)
        self._infos: list[SysInfo] = []
        self._info_stamps = Stamps(accepts)
        self._boot: str | None = None
        self._series: dict[tuple[Any, ...], str] = {}
        self._starts = Starts(ticks_per_second)
        self._collectors = {kind: RowCollector(kind) for kind in self._kinds}
        self._runs = {kind: Runs(folder) for kind in self._kinds}
        self.result = Derived()

    def add_samples(self, lines: Iterable[bytes]) -> None:
        """Takes in the lines of sample segments; skips records met before."""
        for line in lines:
            try:
                sample = self._decode(line)
            except NOT_JSON:
                self.result.bad += 1
                continue
            if sample.boot != self._boot:
                self._flush_all()
                self._boot = sample.boot
            number = self._stamps.add(sample)
            if number is not None:
                self._take(number, sample)

    def _take(self, number: int, sample: Any) -> None:
        kinds = astuple(sample)[len(STAMP_FIELDS) :]
        for collector, rows in zip(self._collectors.values(), kinds, strict=True):
            if rows:
                collector.add(number, rows)
                if collector.bytes > _COLLECT_BYTES:
                    self._flush(collector.table)

    def add_sysinfos(self, lines: Iterable[bytes]) -> None:
        """Takes in the lines of sysinfo segments."""
        for line in lines:
            try:
                info = decode_sysinfo(line)
            except BadLine:
                self.result.bad += 1
                continue
            if self._info_stamps.add(info) is not None:
                self._infos.append(info)

    def _flush_all(self) -> None:
        for kind in self._kinds:
            self._flush(kind)

    def _flush(self, kind: str) -> None:
        if self._boot is None:
            return
        boot = self._stamps.boot_code(self._boot)
        chunk = self._collectors[kind].flush(boot)
        if chunk is None:
            return
        self._learn(kind, chunk.distinct, boot)
        self._runs[kind].add(chunk)
        if sum(runs.in_memory for runs in self._runs.values()) > _HELD_BYTES:
            max(self._runs.values(), key=lambda runs: runs.in_memory).spill()

    def _learn(self, kind: str, rows: "pa.Table", boot: int) -> None:
        if kind == "container_info":
            self._starts.learn(rows)
        for table, (info, *names) in JOINED.items():
            if info == kind:
                columns = [rows[name].to_pylist() for name in (*names, "series_id")]
                for number, start, series in zip(*columns, strict=True):
                    self._series[table, boot, number, start] = series

    def finish(
        self, sources: list[SourceSegment], summaries: Mapping[str, Collection[str]] = ALL_IN_ONE
    ) -> Derived:
        """Writes the files of all tables, and the summaries by name, each over the series of some tables."""
        self._flush_all()
        self._sources = sources
        stamps = self._stamps.columns()
        self._starts.place(self._stamps)
        boots = self._stamps.boots
        days = {
            name: SeriesDay(self.archive, boots, self._ticks, wanted) for name, wanted in summaries.items()
        }
        try:
            for table in self.tables:
                if table != SAMPLES:
                    self._write_table(table, stamps, list(days.values()))
            for name, day in days.items():
                with self._file(SERIES_DAY, name) as file:
                    file.write(day.table())
            # The last one: where it is, all are.
            if SAMPLES in self.tables:
                self._write_table(SAMPLES, stamps, [])
        finally:
            self.close()
        self.result.bad += sum(collector.bad for collector in self._collectors.values())
        return self.result

    def _write_table(self, table: str, stamps: "dict[str, pa.Array]", days: Sequence[SeriesDay]) -> None:
        if self._is_empty(table):
            self.result.rows[table] = 0
            return
        with self._file(table, table) as file:
            self._write(table, file, stamps, days)

    def _is_empty(self, table: str) -> bool:
        """Whether a table has no rows and so gets no file; the list of samples is always written."""
        if table == SYSINFO:
            return not self._infos
        return table != SAMPLES and not self._runs[table]

    @contextmanager
    def _file(self, table: str, name: str) -> Iterator[TableFile]:
        stamped = self._info_stamps if table == SYSINFO else self._stamps
        footer = Footer(
            table=table, archive=self.archive, day=self.day, sources=self._sources, spans=stamped.spans()
        )
        file = TableFile(self.folder / f"{name}.parquet", footer, durable=self._durable)
        try:
            yield file
            self.result.files[name] = file.finish()
        except BaseException:
            file.abandon()
            raise

    def close(self) -> None:
        for runs in self._runs.values():
            runs.close()

    def _write(
        self, table: str, file: TableFile, stamps: "dict[str, pa.Array]", days: Sequence[SeriesDay]
    ) -> None:
        if table == SAMPLES:
            file.write(self._assemble(table, stamps))
            self.result.rows[table] = len(self._stamps)
        elif table == SYSINFO:
            own = {known.name: column(known, self._infos) for known in own_fields(SYSINFO)}
            file.write(self._assemble(table, self._info_stamps.columns() | own))
            self.result.rows[table] = len(self._infos)
        else:
            self._write_kind(table, file, stamps, days)

    def _write_kind(
        self, table: str, file: TableFile, stamps: "dict[str, pa.Array]", days: Sequence[SeriesDay]
    ) -> None:
        pa = arrow()
        self.result.rows[table] = 0
        for keys, part in self._runs[table].partitions():
            if not self._stamps.ordered:
                part = _in_time(part, keys, stamps["boottime"])
            numbers = part["stamp"].combine_chunks()
            columns = {name: values.take(numbers) for name, values in stamps.items()}
            series = [self._series.get((table, *key)) for key, _ in keys]
            starts = self._starts.of(table, keys, _firsts(keys, numbers))
            stamped = columns | self._starts.previous(
                table, numbers.to_pylist() if table == "container" else ()
            )
            for day in days:
                day.add(table, keys, part, stamped, series, starts)
            if table in JOINED:
                named = pa.array(series, pa.string()).dictionary_encode()
                columns["series_id"] = named.take(group_numbers([count for _, count in keys]))
            columns |= {name: part[name] for name in part.column_names if name != "stamp"}
            file.write(self._assemble(table, columns))
            self.result.rows[table] += len(part)
            pa.default_memory_pool().release_unused()

    def _assemble(self, table: str, columns: dict[str, Any]) -> "pa.Table":
        pa = arrow()
        count = len(next(iter(columns.values())))
        zeros = pa.repeat(pa.scalar(0, pa.int32()), count)
        archive = pa.DictionaryArray.from_arrays(zeros, pa.array([self.archive], pa.string()))
        columns = {"archive": archive, **columns}
        names = schema_of(table).names
        return pa.table([columns[name] for name in names], names=names)


def _firsts(keys: Sequence[tuple[Key, int]], numbers: "pa.Array") -> list[int]:
    """The stamp of the first row of each series."""
    places = [0, *accumulate(count for _, count in keys)][:-1]
    found: list[int] = numbers.take(arrow().array(places, arrow().int64())).to_pylist()
    return found


def _in_time(part: "pa.Table", keys: Sequence[tuple[Key, int]], boottime: "pa.Array") -> "pa.Table":
    """Puts the rows of each series in the order of the boot clock."""
    pa = arrow()
    import pyarrow.compute as pc

    group = group_numbers([count for _, count in keys])
    clock = pa.table({"group": group, "clock": boottime.take(part["stamp"].combine_chunks())})
    return part.take(pc.sort_indices(clock, sort_keys=[("group", "ascending"), ("clock", "ascending")]))


def _line_decoder(kinds: Sequence[str]) -> Callable[[bytes], Any]:
    """Decodes a sample's stamp and leaves the rows of the wanted kinds as they are; skips all others."""
    fields: list[Any] = [(kind, list[msgspec.Raw], []) for kind in kinds]
    return msgspec.json.Decoder(msgspec.defstruct("Line", fields, bases=(Stamp,), kw_only=True)).decode
