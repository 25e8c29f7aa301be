"""Derives the tables of some segments (one UTC day, as a rule) within a fixed amount of memory.

The tables of an archive's finished days are derived beside the writer, without disturbing it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import Journal
from vmsonar_archive.format.lines import BadLine, decode_sysinfo
from vmsonar_archive.parquet.decode import RowCollector, column
from vmsonar_archive.parquet.files import Footer, SourceSegment, table_file
from vmsonar_archive.parquet.measures import MEASURES
from vmsonar_archive.parquet.rollup import RULE, SeriesDay, group_numbers
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
from vmsonar_archive.parquet.stamps import Stamps, Starts
from vmsonar_archive.read.reader import Archive, open_archive
from vmsonar_archive.records import KINDS, Stamp, SysInfo
from vmsonar_archive.system.errors import NOT_JSON, Locked
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.upkeep import adopt_tables

if TYPE_CHECKING:
    import pyarrow as pa


#: The summary that an archive keeps: of every table that has one.
ALL_IN_ONE: Mapping[str, Collection[str]] = {SERIES_DAY: tuple(MEASURES)}
_NAMED_BY = {table: info for table, (info, *_) in JOINED.items()} | {"container": "container_info"}
# The most that is held of one table's undecoded rows, and of all tables' columns before some are spilled to disk.
_COLLECT_BYTES = 2 * 1024 * 1024
_HELD_BYTES = 16 * 1024 * 1024
# Of processes in brief: the first samples whole, then one in so many nanoseconds.
_WHOLE_SAMPLES = 120
_BRIEF_STEP = 120_000_000_000


@dataclass
class Derived:
    """The result: the files by table, the number of rows in them, and of records that could not be decoded."""

    files: dict[str, Path] = field(default_factory=dict)
    #: Without those of the summaries.
    rows: int = 0
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
        brief: bool = False,
    ) -> None:
        """In brief, processes are taken from the first samples, the last, those that introduce one, one in two minutes.

        Their counters rise in between all the same, so what a process used is known but for its last two minutes.
        """
        self._archive, self._day, self._folder = archive, day, folder
        self._durable = durable
        self._tables = [table for table in TABLES if table in tables]
        infos = [info for table, info in _NAMED_BY.items() if table in tables]
        self._kinds = [kind for kind in KINDS if kind in tables or kind in infos]
        self._decode = _line_decoder(self._kinds, brief)
        self._stamps = Stamps(accepts)
        self._starts = Starts(self._stamps, ticks_per_second)
        self._infos: list[SysInfo] = []
        self._info_stamps = Stamps(accepts)
        self._boot: str | None = None
        self._brief = brief
        self._processes_at = 0
        self._left_out: tuple[int, Any] | None = None
        self._series: dict[tuple[Any, ...], str] = {}
        self._collectors = {kind: RowCollector(kind) for kind in self._kinds}
        self._runs = {kind: Runs(folder) for kind in self._kinds}
        self._sources: list[SourceSegment] = []
        self._result = Derived()

    def add_samples(self, lines: Iterable[bytes]) -> None:
        """Takes in the lines of sample segments; skips records met before."""
        for line in lines:
            try:
                sample = self._decode(line)
            except NOT_JSON:
                self._result.bad += 1
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
            if self._brief and collector.table == "process":
                rows = self._processes_of(number, sample)
            if rows:
                if collector.table == "job":
                    self._starts.with_jobs.add(number)
                collector.add(number, rows)
                if collector.bytes > _COLLECT_BYTES:
                    self._flush(collector.table)

    def _processes_of(self, number: int, sample: Any) -> Sequence[msgspec.Raw]:
        """The rows of processes that are taken from a sample in brief; of the others the last are kept for the end."""
        is_due = number < _WHOLE_SAMPLES or sample.boottime >= self._processes_at + _BRIEF_STEP
        if not is_due and not sample.process_info:
            self._left_out = (number, sample.process)
            return ()
        self._processes_at, self._left_out = sample.boottime, None
        return _rows_in(sample.process)

    def add_sysinfos(self, lines: Iterable[bytes]) -> None:
        """Takes in the lines of sysinfo segments."""
        for line in lines:
            try:
                info = decode_sysinfo(line)
            except BadLine:
                self._result.bad += 1
                continue
            if self._info_stamps.add(info) is not None:
                self._infos.append(info)

    def _flush_all(self) -> None:
        if self._left_out is not None:
            number, rows = self._left_out
            self._collectors["process"].add(number, _rows_in(rows))
        self._processes_at, self._left_out = 0, None
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
        days = {name: SeriesDay(self._archive, self._starts, wanted) for name, wanted in summaries.items()}
        try:
            # A table without rows gets no file.
            if SYSINFO in self._tables and self._infos:
                own = {known.name: column(known, self._infos) for known in own_fields(SYSINFO)}
                self._write(SYSINFO, SYSINFO, [self._assembled(SYSINFO, self._info_stamps.columns | own)])
            for kind in self._kinds:
                if kind in self._tables and self._runs[kind]:
                    self._write(kind, kind, self._partitions(kind, days.values()))
            for name, day in days.items():
                self._write(SERIES_DAY, name, [day.table()])
            self._result.bad += sum(collector.bad for collector in self._collectors.values())
            # The last one: where it is, all are.
            if SAMPLES in self._tables:
                self._write(SAMPLES, SAMPLES, [self._assembled(SAMPLES, self._stamps.columns)])
        finally:
            for runs in self._runs.values():
                runs.close()
        return self._result

    def _write(self, table: str, name: str, parts: "Iterable[pa.Table]") -> None:
        stamps = self._info_stamps if table == SYSINFO else self._stamps
        footer = Footer(
            table=table,
            archive=self._archive,
            day=self._day,
            sources=self._sources,
            spans=stamps.spans(),
            left_out=self._result.bad if table == SAMPLES else 0,
            rule=RULE if table == SERIES_DAY else 1,
        )
        path = self._folder / f"{name}.parquet"
        with table_file(path, footer, durable=self._durable) as write:
            for part in parts:
                write(part)
                self._result.rows += len(part) if table != SERIES_DAY else 0
        self._result.files[name] = path

    def _partitions(self, table: str, days: Iterable[SeriesDay]) -> "Iterator[pa.Table]":
        """The rows of a kind, whole series at a time, each of which is summed up as well."""
        pa = arrow()
        stamps = self._stamps.columns
        for keys, part in self._runs[table].partitions():
            if not self._stamps.ordered:
                part = _in_time(part, keys, stamps["boottime"])
            series = [self._series.get((table, *key)) for key, _ in keys]
            for day in days:
                day.add(table, keys, part, series)
            numbers = part["stamp"].combine_chunks()
            columns = {name: values.take(numbers) for name, values in stamps.items()}
            if table in JOINED:
                named = pa.array(series, pa.string()).dictionary_encode()
                columns["series_id"] = named.take(group_numbers(keys))
            columns |= {name: part[name] for name in part.column_names if name != "stamp"}
            yield self._assembled(table, columns)
            pa.default_memory_pool().release_unused()

    def _assembled(self, table: str, columns: "dict[str, pa.Array]") -> "pa.Table":
        pa = arrow()
        zeros = pa.repeat(pa.scalar(0, pa.int32()), len(columns["seq"]))
        archive = pa.DictionaryArray.from_arrays(zeros, pa.array([self._archive], pa.string()))
        names = schema_of(table).names
        return pa.table([archive if name == "archive" else columns[name] for name in names], names=names)


def _in_time(part: "pa.Table", keys: Sequence[tuple[Key, int]], boottime: "pa.Array") -> "pa.Table":
    """Puts the rows of each series in the order of the boot clock."""
    pa = arrow()
    import pyarrow.compute as pc

    clock = pa.table({"group": group_numbers(keys), "clock": boottime.take(part["stamp"].combine_chunks())})
    return part.take(pc.sort_indices(clock, sort_keys=[("group", "ascending"), ("clock", "ascending")]))


_rows_in = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _line_decoder(kinds: Sequence[str], brief: bool) -> Callable[[bytes], Any]:
    """Decodes a sample's stamp and leaves the rows of the wanted kinds as they are; skips all others.

    In brief the rows of processes, of which few are wanted, are not told apart yet.
    """
    fields: list[Any] = [
        (kind, msgspec.Raw, msgspec.Raw(b"[]"))
        if brief and kind == "process"
        else (kind, list[msgspec.Raw], [])
        for kind in kinds
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Line", fields, bases=(Stamp,), kw_only=True)).decode


def due_days(archive: Archive, today: date) -> list[date]:
    """Days that are over, whose segments are all sealed, and that have no tables yet."""
    samples = archive.segments(layout.SAMPLE)
    unsealed = {
        segment.day for segment in [*samples, *archive.segments(layout.SYSINFO)] if not segment.sealed
    }
    present = archive.source.sizes()
    return sorted(
        day
        for day in {segment.day for segment in samples} - unsealed
        if day < today and f"{layout.day_path(day)}/{layout.LAST_TABLE}" not in present
    )


def derive_day(
    root: Path, day: date, folder: Path | None = None, accepts: Callable[[Stamp], bool] | None = None
) -> Derived:
    """Writes the tables of one day, or of some of its records, into its folder or another one."""
    with open_archive(root) as archive:
        first = next(archive.sysinfos(), None)
        ticks = float(first.ticks_per_second or 100) if first else 100.0
        derivation = Derivation(
            archive.identity.archive,
            day.isoformat(),
            folder or root / layout.day_path(day),
            ticks_per_second=ticks,
            accepts=accepts,
        )
        sources = []
        for kind, add in (
            (layout.SAMPLE, derivation.add_samples),
            (layout.SYSINFO, derivation.add_sysinfos),
        ):
            for segment in archive.segments(kind):
                if segment.day == day:
                    add(archive.lines(segment))
                    sources.append(SourceSegment(path=segment.path, sha256=segment.sha256))
        return derivation.finish(sources)


def derive_due(root: Path, now: datetime | None = None) -> Iterator[tuple[date, Derived]]:
    """Derives every day that is due, the oldest first."""
    moment = now or datetime.now(UTC)
    with open_archive(root) as archive:
        days = due_days(archive, moment.date())
    for day in days:
        yield day, derive_day(root, day)
    if days:
        journal_tables(root, moment)


def journal_tables(root: Path, now: datetime) -> bool:
    """Journals new tables if no writer holds the archive; a writer does it by itself."""
    try:
        lock = WriterLock(root)
    except Locked:
        return False
    with closing(lock), closing(Journal(root, lambda _: None)) as journal:
        adopt_tables(root, journal, now)
    return True
