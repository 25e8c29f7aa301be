"""Opens archives, bundles, folders of them and lakes as one set of SQL tables (DuckDB)."""

import shutil
import tempfile
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmsonar_archive.errors import FormatError, UsageError
from vmsonar_archive.findings import Finding
from vmsonar_archive.parquet.schema import SAMPLES, TABLES
from vmsonar_archive.parquet.stamps import Span

from vmsonar_inspect.cache import Cache, usual_cache
from vmsonar_inspect.cuts import conditions
from vmsonar_inspect.empties import empty_table, times_of
from vmsonar_inspect.engine import connect, lock_down, need_engine
from vmsonar_inspect.joining import joined, source
from vmsonar_inspect.origins import Origin, find_origins
from vmsonar_inspect.parcels import SUMMARIES, StoredUnit, Unit
from vmsonar_inspect.plan import Piece, Planner, Window
from vmsonar_inspect.together import derive_together
from vmsonar_inspect.views import HISTOGRAMS, VIEWS, read_by, view
from vmsonar_inspect.waiting import Wait

if TYPE_CHECKING:
    import pyarrow as pa

#: What the views are made of.
BASES: tuple[str, ...] = (*TABLES, *SUMMARIES)

_HISTOGRAM = """
    SELECT archive, boot, number, start_ticks, container_id, measure,
        entry.bucket AS bucket, entry.frequency AS frequency
    FROM (SELECT *, unnest(histogram) AS entry FROM {})
"""


class Tables:
    """Every kind as a table and every rollup as a view, of all archives that were opened together.

    Tables are made available when a query first names them, so that a question about jobs never decodes processes.
    """

    def __init__(
        self, origins: Sequence[Origin], scratch: Path, window: Window, cache: Cache | None, wait: Wait
    ) -> None:
        self._origins = origins
        self._cache = cache
        self._bad: dict[tuple[str, str, str], str] = {}
        self._scratch = scratch
        self._window = window
        self._look(wait)
        self._empties = (cache or Cache(scratch)).folder("", "empty", [])
        self._ready: set[str] = set()
        self._defined: set[str] = set()
        self._folders = {scratch, self._empties}
        self._connection = connect(scratch)

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
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
        """What was damaged or could not be read, as far as it was looked at."""
        units = [piece.unit for piece in self._plan.pieces]
        return [*self._plan.findings, *(finding for unit in units for finding in unit.findings)]

    @property
    def archives(self) -> list[str]:
        """The ids of the archives that were opened."""
        return sorted({piece.unit.archive for piece in self._plan.pieces})

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Runs a query; fetch from what is returned (`fetchall`, `to_arrow_table`, …)."""
        self._define_all()
        self.require(self.bases_of(query))
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
        """Runs a query that was not written by us: it reads these tables, and can do nothing else. No other follows.

        With `batches` what is returned hands out Arrow, and only a SELECT is allowed.
        """
        self._define_all()
        self.require(self.bases_of(query))
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
        return [*TABLES, *SUMMARIES, *VIEWS]

    def arrow(self, what: str) -> "pa.Table":
        """A table, a view or the answer to a query as an Arrow table."""
        query = f"SELECT * FROM {what}" if what in self.names else what  # noqa: S608 - one of our names
        self._define_all()
        self.require(self.bases_of(query))
        return self._connection.sql(query).to_arrow_table()

    def pandas(self, what: str) -> Any:
        """The same as a pandas frame; missing integers stay integers."""
        return self.arrow(what).to_pandas(types_mapper=_pandas_type)

    def polars(self, what: str) -> Any:
        """The same as a Polars frame."""
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

    def _prepare(self, query: str) -> None:
        """Makes available what a query names, and nothing else."""
        names = read_by(query)
        self.require(names)
        for name in names:
            if name in HISTOGRAMS or name in VIEWS:
                self._define_view(name)

    def _define_view(self, name: str) -> None:
        if name not in self._defined:
            query = _HISTOGRAM.format(HISTOGRAMS[name]) if name in HISTOGRAMS else view(name).query
            self._connection.execute(f"CREATE VIEW {name} AS {query}")
            self._defined.add(name)

    def _define(self, table: str, pieces: Sequence[tuple[Piece, Path]]) -> None:
        whole = list(dict.fromkeys(path for piece, path in pieces if not piece.without))
        # The empty one comes first, so that every column is there.
        files = [
            empty_table(table, self._empties),
            *joined(self._connection, table, whole, self._scratch),
        ]
        cut = [(piece, path) for piece, path in pieces if piece.without]
        self._connection.execute(_definition(table, files, cut, self._window))
        self._defined.add(table)

    def require(self, tables: Iterable[str], wait: Wait | None = None) -> None:
        """Makes tables available; tells who waits how far it is."""
        wanted = set(tables) - self._ready
        missing = [table for table in BASES if table in wanted]
        if not missing:
            return
        files = self._files(missing, wait or Wait(""))
        self._folders |= {path.parent for _, found in files for path in found.values()}
        for table in missing:
            pieces = [(piece, found[table]) for piece, found in files if table in found]
            self._define(table, pieces)
        self._ready |= set(missing)

    def _look(self, wait: Wait) -> None:
        """Plans what is read, without what is known to be damaged."""
        planner = Planner(self._scratch, self._cache, self._window, self._bad, whole_days=False)
        wait.expect(len(self._origins))
        for origin in self._origins:
            planner.look(origin)
            wait.advance()
        self._plan = planner.plan()
        #: Where each archive was found, and what its machine is called, where that is known.
        self.places, self.hosts, self.errors = planner.places, planner.hosts, planner.errors

    def _files(self, tables: Sequence[str], wait: Wait) -> list[tuple[Piece, dict[str, Path]]]:
        """The files of these tables; damage that only shows now is passed over, as far as others hold the same."""
        while True:
            derive_together([piece.unit for piece in self._plan.pieces], tables, wait)
            wait.expect(sum(piece.unit.steps for piece in self._plan.pieces))
            try:
                return [(piece, _files_of(piece.unit, tables, wait)) for piece in self._plan.pieces]
            except _Damaged as damage:
                self._bad[damage.key] = damage.detail
                self._ready.clear()
                self._look(wait)


class _Damaged(Exception):
    """A unit that cannot be read after all."""

    def __init__(self, key: tuple[str, str, str], detail: str) -> None:
        self.key = key
        self.detail = detail


def _files_of(unit: Unit, tables: Collection[str], wait: Wait) -> dict[str, Path]:
    """What a unit makes, with its steps told: those that it took, and at its end those that it could leave out."""
    before = wait.done
    unit.advance = wait.advance
    try:
        files = unit.files(tables)
    except FormatError as error:
        if isinstance(unit, StoredUnit):
            raise _Damaged(unit.key, str(error)) from None
        raise
    wait.advance(max(0, unit.steps - (wait.done - before)))
    return files


def open_tables(
    paths: Sequence[Path | str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    cache: Path | bool | None = True,
    wait: Wait | None = None,
) -> Tables:
    """Opens archives, bundles, folders of bundles, and lakes; what is damaged is told in `findings`.

    Tables that must be derived are kept in the user's cache folder, in another one, or (False) not at all.
    """
    need_engine("querying")
    kept = usual_cache() if cache is True else Cache(cache) if cache else None
    window = Window(since, until)
    scratch = Path(tempfile.mkdtemp(prefix="vmsonar-"))
    try:
        found = find_origins(paths, scratch / "fetched")
        tables = Tables(found, scratch, window, kept, wait or Wait(""))
        if kept is not None:
            kept.trim()
        return tables
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _pandas_type(kind: "pa.DataType") -> Any:
    import pandas

    return pandas.ArrowDtype(kind)


def _definition(table: str, whole: Sequence[Path], cut: Sequence[tuple[Piece, Path]], window: Window) -> str:
    """The view of one table over its files, of which some hold what others hold as well."""
    selects = [_select(table, whole, window, ())]
    selects += [_select(table, [path], window, piece.without) for piece, path in cut]
    return f"CREATE OR REPLACE VIEW {table} AS " + " UNION ALL BY NAME ".join(selects)


def _select(table: str, paths: Sequence[Path], window: Window, without: Sequence[Span]) -> str:
    # Times are UTC throughout; without a zone they need no further package to be fetched.
    plain = ", ".join(f"make_timestamp(epoch_us({name})) AS {name}" for name in times_of(table))
    counted = list(conditions(table, window, without))
    where = f" WHERE {' AND '.join(counted)}" if counted else ""
    return f"SELECT * REPLACE ({plain}) FROM {source(paths)}{where}"  # noqa: S608 - our own names and paths


__all__ = ["BASES", "SAMPLES", "Tables", "open_tables"]
