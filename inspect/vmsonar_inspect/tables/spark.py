"""The same tables and views on Apache Spark, for lakes that one machine cannot hold."""

import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from vmsonar_archive.parquet.schema import TABLES, schema_of
from vmsonar_archive.read.findings import Finding
from vmsonar_archive.records.sets import Span
from vmsonar_archive.system.errors import UsageError, missing_extra
from vmsonar_archive.system.progress import Progress

from vmsonar_inspect.tables.database import DamagedUnit, files_of
from vmsonar_inspect.tables.plan import Planner, row_filters
from vmsonar_inspect.tables.views import HISTOGRAMS, VIEWS, histogram, read_by, view
from vmsonar_inspect.tables.where import TimeFrame, find_origins
from vmsonar_inspect.tables.work_units import SUMMARIES, layout_of


class SparkTables:
    """Every kind and every rollup of some lakes as temporary views of a Spark session."""

    def __init__(
        self,
        lakes: Sequence[Path | str],
        session: Any = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        """Starts a session on all cores of this machine unless one is given."""
        self._frame = TimeFrame(since, until)
        self._scratch = Path(tempfile.mkdtemp(prefix="vmsonar-"))
        self._own = session is None
        self.session = session
        self._ready: set[str] = set()
        self._bad: dict[tuple[str, str, str], str] = {}
        try:
            self._origins = find_origins(lakes, self._scratch)
            self._plan_reading()
            self.session = session or _session()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "SparkTables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._own and self.session is not None:
            self.session.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def findings(self) -> list[Finding]:
        """What was damaged or could not be read."""
        return self._planner.findings

    def sql(self, query: str) -> "SparkResult":
        """Runs a query; fetch from the result as from DuckDB's."""
        from pyspark.errors import AnalysisException, ParseException

        self.require(read_by(query))
        # It would report a mistake in the query once more, as JSON.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        try:
            return SparkResult(self.session.sql(query))
        except (AnalysisException, ParseException) as error:
            # The lines that follow repeat the query and its plan.
            raise UsageError(str(error).strip().split("\n", 1)[0].strip()) from None

    def _plan_reading(self) -> None:
        """Plans what to read, as for DuckDB: overlapping lakes count nothing twice."""
        planner = Planner(self._scratch, None, self._frame, self._bad)
        for origin in self._origins:
            if not origin.is_lake:
                raise UsageError(f"{origin.place} is not a lake: make one with vmsonar export --to parquet")
            planner.add(origin)
        self._planner, self._units = planner, planner.plan()

    def require(self, names: Iterable[str]) -> None:
        """Makes tables and views available, each after those it reads; damaged units are left out."""
        names = list(names)
        while True:
            try:
                self._make(names)
                return
            except DamagedUnit as damage:
                self._bad[damage.key] = damage.detail
                self._plan_reading()
                self._ready.clear()

    def _make(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._ready or name not in (*TABLES, *SUMMARIES, *HISTOGRAMS, *VIEWS):
                continue
            if name in HISTOGRAMS:
                made = self.session.sql(histogram(name, "explode"))
            else:
                made = self.session.sql(view(name).query) if name in VIEWS else self._rows(name)
            made.createOrReplaceTempView(name)
            self._ready.add(name)

    def _rows(self, table: str) -> Any:
        """The wanted rows of a table with every column of today's schema: null where a file is older."""
        import pyarrow.parquet as pq

        empty = self._scratch / f"{table}.parquet"
        pq.write_table(schema_of(layout_of(table)).empty_table(), empty)
        # The partitions repeat columns of the files.
        reader = self.session.read.option("recursiveFileLookup", "true")
        reader = reader.schema(reader.parquet(str(empty)).schema)
        found = [(unit, files_of(unit, [table], Progress()).get(table)) for unit in self._units]
        files = [(unit, path) for unit, path in found if path is not None]
        whole = dict.fromkeys(str(path) for unit, path in files if not unit.without)
        frame = self._filter(table, reader.parquet(str(empty), *whole), ())
        for unit, path in files:
            if unit.without:
                frame = frame.unionByName(self._filter(table, reader.parquet(str(path)), unit.without))
        return frame

    def _filter(self, table: str, frame: Any, without: Sequence[Span]) -> Any:
        for condition in row_filters(table, self._frame, without):
            frame = frame.where(condition)
        return frame


class SparkResult:
    """A data frame with the interface of a database cursor."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.description = [(name,) for name in frame.columns]
        self._rows = self._all()

    def fetchmany(self, count: int) -> list[tuple[Any, ...]]:
        return list(islice(self._rows, count))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def to_arrow_table(self) -> Any:
        return self.frame.toArrow()

    def to_arrow_reader(self, rows: int) -> Any:
        return self.to_arrow_table().to_reader(rows)

    def _all(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.to_arrow_table().to_batches():
            for row in batch.to_pylist():
                yield tuple(map(_without_zone, row.values()))


def _without_zone(value: Any) -> Any:
    """Times are UTC on both engines; DuckDB returns them without a zone."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise missing_extra("spark", "--engine spark") from None
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # As in DuckDB, a division by zero is unknown and not an error.
        "spark.sql.ansi.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.appName("vmsonar")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
