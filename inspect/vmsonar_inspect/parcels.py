"""The records of one archive and day, wherever they lie, as Parquet files on request."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.layout import SAMPLE
from vmsonar_archive.parquet.footer import Footer, Source, read_footer
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, SYSINFO, TABLES
from vmsonar_archive.parquet.stamps import Span
from vmsonar_archive.reader import Segment, open_archive
from vmsonar_archive.records import Stamp

from vmsonar_inspect.cache import keep
from vmsonar_inspect.origins import Origin

if TYPE_CHECKING:
    from vmsonar_archive.parquet.derive import Derivation

#: Summaries by series, per table that they are made from.
SUMMARIES: dict[str, str] = {"process_day": "process", "job_day": "job", "container_day": "container"}

Accepts = Callable[[Stamp], bool]
#: The names of the files that are kept, and of those that are not.
Present = tuple[set[str], set[str]]


def nobody_waits(_steps: int) -> None:
    """What is told of steps that are done, unless somebody waits for them."""


def needed_for(summary: str) -> list[str]:
    """The tables that a summary is made from."""
    source = SUMMARIES[summary]
    return [SAMPLES, source, *(["container_info"] if source == "container" else [])]


class Unit(ABC):
    """Some records of one archive and day."""

    def __init__(self, archive: str, day: str) -> None:
        self.archive = archive
        self.day = day
        self.findings: list[Finding] = []
        self.advance: Callable[[int], None] = nobody_waits

    @property
    def steps(self) -> int:
        """How many steps it takes to make its tables."""
        return 1

    @abstractmethod
    def files(self, tables: Collection[str]) -> dict[str, Path]:
        """The Parquet files of these tables; a summary may be in a file with others."""


@dataclass
class Stored:
    """A Parquet file that exists: here, or where it must be copied from first."""

    table: str
    path: Path | None = None
    copy: Callable[[Path], None] | None = None
    #: Whether its footer was found to be one of ours.
    checked: bool = False


class StoredUnit(Unit):
    """Records whose tables exist; those that cannot be read in place are copied once."""

    def __init__(self, archive: str, day: str, stored: dict[str, Stored], folder: Callable[[], Path]) -> None:
        super().__init__(archive, day)
        self._stored = stored
        self._folder = folder
        #: Where it lies, for people; names the unit together with archive and day.
        self.place = ""
        #: Set when only some of the records are wanted; the tag tells such summaries apart.
        self.accepts: Accepts | None = None
        self.tag = ""

    def files(self, tables: Collection[str]) -> dict[str, Path]:
        found = {}
        for table in tables:
            if table in SUMMARIES and SUMMARIES[table] in self._stored:
                found[table] = self._summary(table)
            elif table in self._stored:
                found[table] = self._local(table)
        return found

    @property
    def key(self) -> tuple[str, str, str]:
        return self.archive, self.day, self.place

    @cached_property
    def footer(self) -> Footer:
        return read_footer(self._local(SAMPLES))

    @cached_property
    def spans(self) -> list[Span]:
        """Which records it holds, of both kinds."""
        infos = read_footer(self._local(SYSINFO)).spans if SYSINFO in self._stored else []
        return [*self.footer.spans, *infos]

    def check(self, thoroughly: bool) -> None:
        """Reads the footers now, of the records or of all tables; raises when they are not ours."""
        _ = self.spans
        if thoroughly:
            for table in self._stored:
                self._local(table)

    def _summary(self, name: str) -> Path:
        from vmsonar_archive.parquet.again import summarize_again

        if self.accepts is None and SERIES_DAY in self._stored:
            return self._local(SERIES_DAY)
        target = self._folder() / f"{name}{self.tag}.parquet"
        if not target.exists():
            accepts = self.accepts or (lambda _: True)
            files = self.files(needed_for(name))
            summarize_again(SUMMARIES[name], files, target, accepts, self._ticks())
        return target

    def rewritten(self, folder: Path) -> dict[str, Path]:
        """The tables anew, with only the records that are wanted."""
        from vmsonar_archive.parquet.again import rewrite

        accepts = self.accepts or (lambda _: True)
        files = self.files([table for table in TABLES if table in self._stored])
        return rewrite(files, folder, accepts, self._ticks())

    def _ticks(self) -> float:
        import pyarrow.parquet as pq

        if SYSINFO not in self._stored:
            return 100.0
        told = pq.read_table(self._local(SYSINFO), columns=["ticks_per_second"])["ticks_per_second"]
        return float(next((value for value in told.to_pylist() if value), 100))

    def _local(self, table: str) -> Path:
        stored = self._stored[table]
        if stored.path is None:
            assert stored.copy is not None
            target = self._folder() / f"{table}.parquet"
            if not target.exists():
                partial = target.with_suffix(".partial")
                stored.copy(partial)
                partial.rename(target)
            stored.path = target
        if not stored.checked:
            read_footer(stored.path)
            stored.checked = True
        return stored.path


@dataclass
class JsonUnit(Unit):
    """Records that are in segments only; their tables are derived into a folder."""

    archive: str
    day: str
    parts: list[tuple[Origin, Segment]]
    #: Where tables go that are sure to be what the segments say, and where all others go.
    kept: Path | None
    scratch: Path
    ticks_per_second: float
    accepts: Accepts | None = None
    #: Set when only a part of the day is wanted.
    window: Accepts | None = None
    findings: list[Finding] = field(default_factory=list)
    advance: Callable[[int], None] = nobody_waits

    @property
    def steps(self) -> int:
        return len(self.parts)

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return sum(segment.size for _, segment in self.parts)

    def missing(self, tables: Collection[str]) -> list[str]:
        """What has to be derived for these tables."""
        wanted = {SAMPLES, *tables}
        if self.window is not None:
            wanted = {table for table in wanted if table not in SUMMARIES}
            wanted |= {source for name in tables if name in SUMMARIES for source in needed_for(name)}
        present = self._present()
        empty = {name for names in present for name in names}
        return [
            table for table in wanted if f"{table}.none" not in empty and self._find(table, present) is None
        ]

    def derive(self, tables: Collection[str]) -> None:
        """Derives what is missing of these tables."""
        if missing := self.missing(tables):
            self._derive(missing)

    def files(self, tables: Collection[str]) -> dict[str, Path]:
        self.derive(tables)
        if self.window is not None:
            self._summarize_window([name for name in tables if name in SUMMARIES], self.window)
        present = self._present()
        found = {table: self._find(table, present) for table in tables}
        return {table: path for table, path in found.items() if path is not None}

    def _summarize_window(self, names: list[str], window: Accepts) -> None:
        from vmsonar_archive.parquet.again import summarize_again

        for name in names:
            files = {table: path for table in needed_for(name) if (path := self._find(table)) is not None}
            summarize_again(
                SUMMARIES[name], files, self.scratch / f"{name}.parquet", window, self.ticks_per_second
            )

    def derive_all(self, folder: Path) -> dict[str, Path]:
        """Every table and the summary of all, as an archive keeps them."""
        derivation = self._derivation(folder, TABLES)
        self._read(derivation)
        return derivation.finish(self._sources()).files

    def _derivation(self, folder: Path, tables: Collection[str]) -> "Derivation":
        from vmsonar_archive.parquet.derive import Derivation

        return Derivation(
            self.archive, self.day, folder, tables, self.ticks_per_second, accepts=self.accepts, durable=False
        )

    def _sources(self) -> list[Source]:
        return [Source(path=segment.path, sha256=segment.sha256) for _, segment in self.parts]

    def _find(self, table: str, present: "Present | None" = None) -> Path | None:
        kept, scratch = present or self._present()
        name = f"{table}.parquet"
        if self.kept is not None and name in kept and not (table in SUMMARIES and self.window is not None):
            return self.kept / name
        return self.scratch / name if name in scratch else None

    def _present(self) -> "Present":
        """What lies in the two folders; a file `.none` stands for a table that is known to have no rows."""
        return set() if self.kept is None else set(os.listdir(self.kept)), set(os.listdir(self.scratch))

    def _derive(self, missing: Sequence[str]) -> None:
        work = self.scratch / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        summaries = {name: [SUMMARIES[name]] for name in missing if name in SUMMARIES}
        tables = {table for table in missing if table not in SUMMARIES} | {
            SUMMARIES[name] for name in summaries
        }
        derivation = self._derivation(work, tables)
        damaged = self._read(derivation)
        result = derivation.finish(self._sources(), summaries)
        if result.bad:
            first, segment = self.parts[0]
            place = f"{first.place}/{segment.path}"
            self._note([Finding.of(Code.BAD_RECORD, place, f"{result.bad} rows or records")])
        made = [*result.files.values(), *(work / f"{table}.none" for table in tables - result.files.keys())]
        kept = None if damaged or result.bad else self.kept
        for path in made:
            path.touch()
            if kept is None or not keep(path, kept):
                path.rename(self.scratch / path.name)
        shutil.rmtree(work)

    def _read(self, derivation: "Derivation") -> bool:
        damaged = False
        for origin, segments in _by_origin(self.parts):
            with open_archive(origin.path) as archive:
                for segment in segments:
                    add = derivation.add_samples if segment.name.kind == SAMPLE else derivation.add_sysinfos
                    add(archive.lines(segment))
                    self.advance(1)
                # Many bundles have files of the same names.
                self._note([replace(one, path=f"{origin.place}/{one.path}") for one in archive.findings])
                damaged = damaged or bool(archive.findings)
        return damaged

    def _note(self, findings: Sequence[Finding]) -> None:
        self.findings += [finding for finding in findings if finding not in self.findings]


def _by_origin(parts: list[tuple[Origin, Segment]]) -> list[tuple[Origin, list[Segment]]]:
    grouped: dict[Origin, list[Segment]] = {}
    for origin, segment in parts:
        grouped.setdefault(origin, []).append(segment)
    return [(origin, sorted(segments, key=lambda one: one.name)) for origin, segments in grouped.items()]
