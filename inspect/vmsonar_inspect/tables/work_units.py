"""The records of one archive and day, wherever they lie, as Parquet files on request."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from vmsonar_archive.format.layout import SAMPLE
from vmsonar_archive.parquet.files import Footer, SourceSegment, read_footer
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, SYSINFO, TABLES
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.reader import Segment, open_archive
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import Span, size
from vmsonar_archive.system.errors import FormatError
from vmsonar_archive.system.files import Refused, open_regular, sha256_at

from vmsonar_inspect.tables.cache import is_whole, keep, kept, make_once
from vmsonar_inspect.tables.stores import Copier
from vmsonar_inspect.tables.where import Origin

if TYPE_CHECKING:
    from vmsonar_archive.parquet.derive import Derived

#: The tables that a first look at a large archive derives in brief, under names of their own.
BRIEF = ("process", "process_day")
#: Summaries by series, per table that they are made from.
SUMMARIES: dict[str, str] = {"process_day": "process", "job_day": "job", "container_day": "container"}

Accepts = Callable[[Stamp], bool]
#: The kept files by name, and the names of those in the scratch folder.
Present = tuple[dict[str, Path], set[str]]


def no_progress(_steps: int) -> None:
    """No-op progress callback."""


def layout_of(table: str) -> str:
    """The table whose columns a table has: all summaries have the same."""
    return SERIES_DAY if table in SUMMARIES else table


def needed_for(summary: str) -> list[str]:
    """The tables that a summary is made from."""
    source = SUMMARIES[summary]
    return [SAMPLES, source, *(["container_info"] if source == "container" else [])]


@dataclass(eq=False)
class WorkUnit(ABC):
    """Some records of one archive and day."""

    archive: str
    day: str
    #: Records in its files that another unit provides.
    without: Sequence[Span] = field(default=(), kw_only=True)
    findings: list[Finding] = field(default_factory=list, kw_only=True)
    advance: Callable[[int], None] = field(default=no_progress, kw_only=True)

    @property
    def steps(self) -> int:
        """Number of progress steps needed to make its tables."""
        return 1

    @abstractmethod
    def files(self, tables: Collection[str]) -> dict[str, Path]:
        """The Parquet files of these tables; several summaries may share a file."""


class ListedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Size and hash of a file according to a journal or a manifest; a line of a lake's manifest."""

    path: str
    bytes: int
    sha256: str
    #: The number of samples, for the file that lists them.
    records: int | None = None


@dataclass
class StoredTable:
    """A Parquet file that exists: here, or elsewhere and copied before it is read."""

    source: Path | Copier
    #: The path or address, for people.
    place: str
    #: The versions that a journal or manifest lists: a file that was rewritten is listed again.
    listed: Sequence[ListedFile] = ()
    #: Whether it was checked already.
    checked: bool = False

    def fetch(self, target: Path) -> None:
        """Copies it; raises if it is damaged."""
        assert not isinstance(self.source, Path)
        self.source(target)
        self.check(target)

    def check(self, path: Path) -> None:
        """Raises unless the file, or a copy of it, matches the list and is a table of ours."""
        if self.checked:
            return
        try:
            with open_regular(path) as file:
                count = os.fstat(file.fileno()).st_size
            versions = [one for one in self.listed if one.bytes == count]
            # A file of another size need not be read, however large it is.
            found = sha256_at(path)[1] if versions else None
        except FileNotFoundError:
            raise FormatError(f"{self.place} is missing") from None
        except OSError as error:
            raise FormatError(f"{self.place} cannot be read: {error.strerror}") from None
        except Refused as error:
            raise FormatError(str(error)) from None
        if self.listed and not versions:
            raise FormatError(
                f"{self.place} was damaged: it has {count} bytes, {self.listed[-1].bytes} were written"
            )
        if self.listed and all(found != one.sha256 for one in versions):
            raise FormatError(f"{self.place} was damaged: its SHA-256 is not that of what was written")
        read_footer(path)
        self.checked = True


@dataclass(eq=False)
class TableUnit(WorkUnit):
    """Records whose tables exist; those that cannot be read in place are copied once."""

    stored: dict[str, StoredTable]
    #: Makes the folder for what is copied or derived.
    folder: Callable[[], Path]
    #: Where it lies, for people; names the unit together with archive and day.
    place: str
    #: Set when only some of the records are wanted; the tag tells such summaries apart.
    accepts: Accepts | None = None
    tag: str = ""
    #: Files of its folder that were found to be whole.
    _whole: dict[str, Path] = field(default_factory=dict)

    def files(self, tables: Collection[str]) -> dict[str, Path]:
        found = {}
        for table in tables:
            if table in SUMMARIES and SUMMARIES[table] in self.stored:
                found[table] = self._summary(table)
            elif table in self.stored:
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
        """The records it holds: samples and sysinfo."""
        infos = read_footer(self._local(SYSINFO)).spans if SYSINFO in self.stored else []
        return [*self.footer.spans, *infos]

    def check(self, thoroughly: bool) -> None:
        """Reads the footers of the record lists, or of all tables; raises if they are not ours."""
        _ = self.spans
        if left_out := self.footer.left_out:
            said = f"{left_out} rows or records that no table can hold"
            self.findings.append(Finding.of(Code.BAD_RECORD, self.stored[SAMPLES].place, said))
        if thoroughly:
            for table in self.stored:
                self._local(table)

    def _summary(self, name: str) -> Path:
        from vmsonar_archive.parquet.resummarize import resummarize_table

        if self.accepts is None and SERIES_DAY in self.stored:
            return self._local(SERIES_DAY)

        def make(target: Path) -> None:
            files = self.files(needed_for(name))
            resummarize_table(SUMMARIES[name], files, target, self.accepts, self._ticks())

        return self._made(f"{name}{self.tag}.parquet", make)

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """A file in the unit's folder, made unless it is there and intact."""
        if name not in self._whole:
            self._whole[name] = make_once(name, self.folder(), make)
        return self._whole[name]

    def rewritten(self, folder: Path) -> dict[str, Path]:
        """Writes the tables again with only the wanted records."""
        from vmsonar_archive.parquet.resummarize import rewrite

        return rewrite(self.files(TABLES), folder, self.accepts, self._ticks())

    def _ticks(self) -> float:
        import pyarrow.parquet as pq

        if SYSINFO not in self.stored:
            return 100.0
        told = pq.read_table(self._local(SYSINFO), columns=["ticks_per_second"])["ticks_per_second"]
        return float(next((value for value in told.to_pylist() if value), 100))

    def _local(self, table: str) -> Path:
        stored = self.stored[table]
        if isinstance(stored.source, Path):
            path = stored.source
        else:
            version = f"-{stored.listed[-1].sha256[:16]}" if stored.listed else ""
            path = self._made(f"{table}{version}.parquet", stored.fetch)
        stored.check(path)
        return path

    def as_listed(self) -> Iterator[ListedFile]:
        """The manifest lines of its files as they are now."""
        for table, stored in self.stored.items():
            records = size(self.footer.spans) if table == SAMPLES else None
            count, digest = sha256_at(self._local(table))
            yield ListedFile(path=stored.place, bytes=count, sha256=digest, records=records)


@dataclass(eq=False)
class SegmentUnit(WorkUnit):
    """Records that exist only in segments; their tables are derived into a folder."""

    parts: list[tuple[Origin, Segment]]
    #: Where tables of undamaged, sealed segments go, and where all others go.
    kept: Path | None
    scratch: Path
    ticks_per_second: float
    accepts: Accepts | None = None
    #: Set when only a part of the day is wanted.
    window: Accepts | None = None
    #: Kept files that were found to be whole.
    whole: set[str] = field(default_factory=set)
    #: Whether processes are taken from some samples only.
    is_brief: bool = False

    @property
    def steps(self) -> int:
        return len(self.parts)

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return sum(segment.size for _, segment in self.parts)

    def missing(self, tables: Collection[str]) -> list[str]:
        """The tables that must be derived before these can be read."""
        wanted = {SAMPLES, *tables}
        if self.window is not None:
            sources = [needed_for(name) if name in SUMMARIES else [name] for name in wanted]
            wanted = {table for needed in sources for table in needed}
        present = self._present()
        return [
            table
            for table in wanted
            if self._find(table, present) is None and self._find(table, present, ".none") is None
        ]

    def files(self, tables: Collection[str]) -> dict[str, Path]:
        self.derive(tables)
        if self.window is not None:
            self._summarize_window(SUMMARIES.keys() & set(tables), self.window)
        present = self._present()
        found = {table: self._find(table, present) for table in tables}
        return {table: path for table, path in found.items() if path is not None}

    def _summarize_window(self, names: Iterable[str], window: Accepts) -> None:
        from vmsonar_archive.parquet.resummarize import resummarize_table

        for name in names:
            files = {table: path for table in needed_for(name) if (path := self._find(table)) is not None}
            target = self.scratch / f"{self._called(name)}.parquet"
            resummarize_table(SUMMARIES[name], files, target, window, self.ticks_per_second)

    def derive_all(self, folder: Path) -> dict[str, Path]:
        """Every table and the summary, as an archive keeps them."""
        return self._derived(folder, TABLES, {SERIES_DAY: list(SUMMARIES.values())})[0].files

    def _derived(
        self, folder: Path, tables: Collection[str], summaries: dict[str, list[str]]
    ) -> tuple["Derived", bool]:
        """Derives tables into a folder; also tells whether a segment was damaged."""
        from vmsonar_archive.parquet.derive import Derivation

        derivation = Derivation(
            self.archive, self.day, folder, tables, self.ticks_per_second, accepts=self.accepts, durable=False,
            brief=self.is_brief,
        )  # fmt: skip
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
        sources = [SourceSegment(path=segment.path, sha256=segment.sha256) for _, segment in self.parts]
        result = derivation.finish(sources, summaries)
        if result.bad:
            first, segment = self.parts[0]
            place = f"{first.place}/{segment.path}"
            self._note([Finding.of(Code.BAD_RECORD, place, f"{result.bad} rows or records")])
        return result, damaged

    def _find(self, table: str, present: "Present | None" = None, suffix: str = ".parquet") -> Path | None:
        """The file of a table; one that ends in `.none` marks a table without rows."""
        files, scratch = present or self._present()
        name = self._called(table) + suffix
        if name in files and not (table in SUMMARIES and self.window is not None):
            if name not in self.whole and is_whole(files[name]):
                self.whole.add(name)
            if name in self.whole:
                return files[name]
        return self.scratch / name if name in scratch else None

    def _called(self, table: str) -> str:
        return f"brief_{table}" if self.is_brief and table in BRIEF else table

    def look_briefly(self) -> None:
        """From now on processes are read in brief, unless their whole tables are there."""
        self.is_brief = bool(self.missing(BRIEF))

    def _present(self) -> "Present":
        """The contents of both folders."""
        return {} if self.kept is None else kept(self.kept), set(os.listdir(self.scratch))

    def derive(self, tables: Collection[str]) -> None:
        """Derives those of these tables that are missing."""
        missing = self.missing(tables)
        if not missing:
            return
        work = self.scratch / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        summaries = {name: [SUMMARIES[name]] for name in missing if name in SUMMARIES}
        needed = {SUMMARIES.get(name, name) for name in missing}
        result, damaged = self._derived(work, needed, summaries)
        files = [*result.files.values(), *(work / f"{table}.none" for table in needed - result.files.keys())]
        folder = None if damaged or result.bad else self.kept
        for file in files:
            path = file.with_name(self._called(file.stem) + file.suffix)
            file.touch()
            file.rename(path)
            if folder is not None and keep(path, folder):
                self.whole.add(path.name)
            else:
                path.rename(self.scratch / path.name)
        shutil.rmtree(work)

    def _note(self, findings: Sequence[Finding]) -> None:
        self.findings += [finding for finding in findings if finding not in self.findings]


def _by_origin(parts: list[tuple[Origin, Segment]]) -> list[tuple[Origin, list[Segment]]]:
    grouped: dict[Origin, list[Segment]] = {}
    for origin, segment in parts:
        grouped.setdefault(origin, []).append(segment)
    return [(origin, sorted(segments, key=lambda one: one.name)) for origin, segments in grouped.items()]
