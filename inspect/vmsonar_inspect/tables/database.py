"""Opens archives, bundles, folders of them and lakes as one set of SQL tables (DuckDB)."""

import shutil
import tempfile
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmsonar_archive.parquet.schema import TABLES
from vmsonar_archive.read.findings import Finding
from vmsonar_archive.records.sets import Span
from vmsonar_archive.system.errors import FormatError, UsageError, VmsonarError, missing_extra
from vmsonar_archive.system.progress import Progress

from vmsonar_inspect.tables.cache import Cache, usual_cache
from vmsonar_inspect.tables.derive import derive_in_parallel
from vmsonar_inspect.tables.duckdb import (
    MEMORY_LIMIT,
    Breaker,
    compact,
    connect,
    empty_table,
    lock_down,
    need_engine,
    source,
    times_of,
)
from vmsonar_inspect.tables.plan import Planner, row_filters
from vmsonar_inspect.tables.views import HISTOGRAMS, VIEWS, histogram, read_by, view
from vmsonar_inspect.tables.where import Origin, TimeFrame, find_origins
from vmsonar_inspect.tables.work_units import SUMMARIES, SegmentUnit, TableUnit, WorkUnit

if TYPE_CHECKING:
    import pyarrow as pa

#: The tables that views read.
BASES: tuple[str, ...] = (*TABLES, *SUMMARIES)


class Tables:
    """Every kind as a table and every rollup as a view, of all archives that were opened together.

    Tables are made available when a query first names them, so that a question about jobs never decodes processes.
    """

    def __init__(
        self, origins: Sequence[Origin], scratch: Path, frame: TimeFrame, cache: Cache | None, wait: Progress
    ) -> None:
        self._origins = origins
        self._cache = cache
        self._bad: dict[tuple[str, str, str], str] = {}
        self._scratch = scratch
        self._frame = frame
        self._plan_reading(wait)
        self._empty_tables = (cache or Cache(scratch)).folder("", "empty", [])
        self._ready: set[str] = set()
        self._defined: set[str] = set()
        self._folders = {scratch, self._empty_tables}
        self._connection = connect(scratch)
        self._breaker = Breaker(self._connection)

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        import duckdb

        self.close()
        # Tables that the journal vouches for can be hostile all the same.
        if isinstance(error, duckdb.OutOfMemoryException):
            raise VmsonarError(
                f"this takes more than {MEMORY_LIMIT} of memory: ask for a shorter time, or verify --deep the tables"
            ) from None

    def close(self) -> None:
        self._breaker.close()
        self._connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def connection(self) -> Any:
        """A DuckDB connection with every table and view; `sql` is quicker, because it reads only what it needs."""
        self._define_all()
        self.require(BASES)
        return self._connection

    @property
    def findings(self) -> list[Finding]:
        """Damage found in what was read so far."""
        return [*self._planner.findings, *(finding for unit in self._units for finding in unit.findings)]

    @property
    def archives(self) -> list[str]:
        """The ids of the archives that were opened."""
        return sorted({unit.archive for unit in self._units})

    @property
    def bytes_to_derive(self) -> int:
        """The size of the segments for which there are no tables yet."""
        return sum(unit.size for unit in self._units if isinstance(unit, SegmentUnit))

    def look_briefly(self) -> None:
        """Reads processes of what is not derived yet in brief; to be called before anything is read of them."""
        for unit in self._units:
            if isinstance(unit, SegmentUnit):
                unit.look_briefly()

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Runs a query; fetch from what is returned (`fetchall`, `to_arrow_table`, …)."""
        self._prepare_all(query)
        return self._connection.execute(query, list(parameters))

    def execute(self, query: str, parameters: Any = None) -> Any:
        """The same under the name that database connections use; what the query does not name is not there yet."""
        self._prepare(query)
        return self._connection.execute(query, parameters)

    def executemany(self, query: str, rows: Sequence[Any]) -> Any:
        """Runs a query once per row of parameters."""
        self._prepare(query)
        return self._connection.executemany(query, rows)

    def locked_sql(self, query: str, *, batches: bool = False) -> Any:
        """Runs a query that we did not write: it can read these tables and do nothing else. No other query follows.

        With `batches` the result hands out Arrow, and only a SELECT is allowed.
        """
        self._prepare_all(query)
        lock_down(self._connection, sorted(self._folders))
        if not batches:
            return self._connection.execute(query)
        relation = self._connection.sql(query)
        if relation is None:
            raise UsageError("the query has no answer to write: begin it with SELECT")
        return relation

    @property
    def names(self) -> list[str]:
        """Every table and view."""
        return [*BASES, *VIEWS]

    def arrow(self, what: str) -> "pa.Table":
        """A table, a view or the answer to a query as an Arrow table."""
        query = f"SELECT * FROM {what}" if what in self.names else what  # noqa: S608 - one of our names
        self._prepare_all(query)
        return self._connection.sql(query).to_arrow_table()

    def pandas(self, what: str) -> Any:
        """The same as a pandas frame; missing integers stay integers."""
        _need("pandas")
        import pandas

        return self.arrow(what).to_pandas(types_mapper=pandas.ArrowDtype)

    def polars(self, what: str) -> Any:
        """The same as a Polars frame."""
        _need("polars")
        import polars

        return polars.from_arrow(self.arrow(what))

    def bases_of(self, query: str) -> set[str]:
        """The tables that a query may read, directly or through views: those whose names occur in it."""
        return {name for name in read_by(query) if name in BASES}

    def _define_all(self) -> None:
        """Makes every name known, without reading anything for it."""
        for table in BASES:
            if table not in self._defined:
                self._define(table, [])
        for name in (*HISTOGRAMS, *VIEWS):
            self._define_view(name)

    def _prepare_all(self, query: str) -> None:
        """Makes every name known and reads what the query may need."""
        self._define_all()
        self.require(self.bases_of(query))

    def _prepare(self, query: str) -> None:
        """Makes available what a query names, and nothing else."""
        names = read_by(query)
        self.require(names)
        for name in names:
            if name in HISTOGRAMS or name in VIEWS:
                self._define_view(name)

    def _define_view(self, name: str) -> None:
        if name not in self._defined:
            query = histogram(name, "unnest") if name in HISTOGRAMS else view(name).query
            self._connection.execute(f"CREATE VIEW {name} AS {query}")
            self._defined.add(name)

    def _define(self, table: str, files: Sequence[tuple[WorkUnit, Path]]) -> None:
        """Makes the view of one table over its files; rows that another file holds too are filtered out."""
        whole = list(dict.fromkeys(path for unit, path in files if not unit.without))
        # The empty one comes first, so that every column is there.
        paths = [
            empty_table(table, self._empty_tables),
            *compact(self._connection, table, whole, self._scratch),
        ]
        selects = [self._select(table, paths, ())]
        selects += [self._select(table, [path], unit.without) for unit, path in files if unit.without]
        self._connection.execute(f"CREATE OR REPLACE VIEW {table} AS " + " UNION ALL BY NAME ".join(selects))
        self._defined.add(table)

    def _select(self, table: str, paths: Sequence[Path], without: Sequence[Span]) -> str:
        # Times are UTC throughout; without a zone they need no further package to be fetched.
        plain = ", ".join(f"make_timestamp(epoch_us({name})) AS {name}" for name in times_of(table))
        filters = list(row_filters(table, self._frame, without))
        where = f" WHERE {' AND '.join(filters)}" if filters else ""
        return f"SELECT * REPLACE ({plain}) FROM {source(paths)}{where}"  # noqa: S608 - our own names and paths

    def require(self, tables: Iterable[str], wait: Progress | None = None) -> None:
        """Makes tables available and reports progress."""
        wanted = set(tables) - self._ready
        missing = [table for table in BASES if table in wanted]
        if not missing:
            return
        files = self._files(missing, wait or Progress())
        self._folders |= {path.parent for _, found in files for path in found.values()}
        for table in missing:
            self._define(table, [(unit, found[table]) for unit, found in files if table in found])
        self._ready |= set(missing)

    def _plan_reading(self, wait: Progress) -> None:
        """Plans what to read, without units known to be damaged."""
        planner = Planner(self._scratch, self._cache, self._frame, self._bad, whole_days=False)
        wait.expect(len(self._origins))
        for origin in self._origins:
            planner.add(origin)
            wait.advance()
        self._planner, self._units = planner, planner.plan()
        #: Where each archive was found, and what its machine is called, where that is known.
        self.places, self.hosts, self.errors = planner.places, planner.hosts, planner.errors

    def _files(self, tables: Sequence[str], wait: Progress) -> list[tuple[WorkUnit, dict[str, Path]]]:
        """The files of these tables; a unit that turns out to be damaged is left out and everything planned anew."""
        while True:
            derive_in_parallel(self._units, tables, wait)
            wait.expect(sum(unit.steps for unit in self._units))
            try:
                return [(unit, files_of(unit, tables, wait)) for unit in self._units]
            except DamagedUnit as damage:
                self._bad[damage.key] = damage.detail
                self._ready.clear()
                self._plan_reading(wait)


class DamagedUnit(Exception):
    """A unit that cannot be read after all."""

    def __init__(self, key: tuple[str, str, str], detail: str) -> None:
        self.key = key
        self.detail = detail


def files_of(unit: WorkUnit, tables: Collection[str], wait: Progress) -> dict[str, Path]:
    """The files of a unit; the progress ends at its full number of steps, even if some were not needed."""
    before = wait.done
    unit.advance = wait.advance
    try:
        files = unit.files(tables)
    except FormatError as error:
        if isinstance(unit, TableUnit):
            raise DamagedUnit(unit.key, str(error)) from None
        raise
    wait.advance(max(0, unit.steps - (wait.done - before)))
    return files


def open_tables(
    paths: Sequence[Path | str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    cache: Path | bool | None = True,
    wait: Progress | None = None,
) -> Tables:
    """Opens archives, bundles, folders of bundles, and lakes; damage is listed in `findings`.

    Derived tables are kept in the user's cache folder, in another one, or (False) not at all.
    """
    need_engine("querying")
    kept = usual_cache() if cache is True else Cache(cache) if cache else None
    frame = TimeFrame(since, until)
    scratch = Path(tempfile.mkdtemp(prefix="vmsonar-"))
    try:
        found = find_origins(paths, scratch / "fetched")
        tables = Tables(found, scratch, frame, kept, wait or Progress())
        if kept is not None:
            kept.trim()
        return tables
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise missing_extra(package, f"a frame of {package}")
