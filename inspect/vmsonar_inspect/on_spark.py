"""The same tables and views on Apache Spark, for lakes that one machine cannot hold."""

import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from vmsonar_archive.errors import UsageError, missing_extra
from vmsonar_archive.findings import Finding
from vmsonar_archive.parquet.schema import SERIES_DAY, TABLES, schema_of
from vmsonar_archive.parquet.stamps import Span

from vmsonar_inspect.cuts import conditions
from vmsonar_inspect.origins import find_origins
from vmsonar_inspect.parcels import SUMMARIES
from vmsonar_inspect.plan import Plan, Planner, Window
from vmsonar_inspect.views import HISTOGRAMS, VIEWS, read_by, view

_HISTOGRAM = """
    SELECT archive, boot, number, start_ticks, container_id, measure, entry.bucket, entry.frequency
    FROM (SELECT *, explode(histogram) AS entry FROM {}) AS entries
"""


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
        """Without a session one is started here, with all cores of this machine."""
        self._window = Window(since, until)
        self._scratch = Path(tempfile.mkdtemp(prefix="vmsonar-"))
        self._own = session is None
        self.session = session
        self._ready: set[str] = set()
        try:
            self._plan = self._look(lakes)
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
        return self._plan.findings

    def sql(self, query: str) -> "SparkResult":
        """Runs a query; what comes back can be fetched as from DuckDB."""
        from pyspark.errors import AnalysisException, ParseException

        self.require(read_by(query))
        # It would tell a mistake in the query once more, as JSON.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        try:
            return SparkResult(self.session.sql(query))
        except (AnalysisException, ParseException) as error:
            raise UsageError(_first_line(str(error))) from None

    def _look(self, lakes: Sequence[Path | str]) -> Plan:
        """What answers for which records, as for DuckDB: overlapping lakes count nothing twice."""
        planner = Planner(self._scratch, None, self._window)
        for origin in find_origins(lakes, self._scratch):
            if not origin.is_lake:
                raise UsageError(f"{origin.place} is not a lake: make one with vmsonar export --to parquet")
            planner.look(origin)
        return planner.plan()

    def require(self, names: Iterable[str]) -> None:
        """Makes tables and views available; each must come after those it reads."""
        for name in names:
            if name not in self._ready and name in (*TABLES, *SUMMARIES, *HISTOGRAMS, *VIEWS):
                self._made(name).createOrReplaceTempView(name)
                self._ready.add(name)

    def _made(self, name: str) -> Any:
        if name in HISTOGRAMS:
            return self.session.sql(_HISTOGRAM.format(HISTOGRAMS[name]))
        return self.session.sql(view(name).query) if name in VIEWS else self._frame(name)

    def _frame(self, table: str) -> Any:
        """The rows of a table that count, with every column of today's schema: null where a file is older."""
        import pyarrow.parquet as pq

        empty = self._scratch / f"{table}.parquet"
        pq.write_table(schema_of(SERIES_DAY if table in SUMMARIES else table).empty_table(), empty)
        # Partitions say again what the columns say.
        reader = self.session.read.option("recursiveFileLookup", "true")
        reader = reader.schema(reader.parquet(str(empty)).schema)
        found = [(piece, piece.unit.files([table]).get(table)) for piece in self._plan.pieces]
        files = [(piece, path) for piece, path in found if path is not None]
        whole = dict.fromkeys(str(path) for piece, path in files if not piece.without)
        frame = self._cut(table, reader.parquet(str(empty), *whole), ())
        for piece, path in files:
            if piece.without:
                frame = frame.unionByName(self._cut(table, reader.parquet(str(path)), piece.without))
        return frame

    def _cut(self, table: str, frame: Any, without: Sequence[Span]) -> Any:
        for condition in conditions(table, self._window, without):
            frame = frame.where(condition)
        return frame


def _first_line(text: str) -> str:
    """What an analyser says first; then come the query again and its plan."""
    return text.strip().split("\n", 1)[0].strip()


class SparkResult:
    """A data frame with the manners of a database cursor."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.description = [(name,) for name in frame.columns]
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def fetchmany(self, count: int) -> list[tuple[Any, ...]]:
        if self._rows is None:
            self._rows = self._all()
        return [row for row, _ in zip(self._rows, range(count), strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._all())

    def to_arrow_table(self) -> Any:
        return self.frame.toArrow()

    def to_arrow_reader(self, rows: int) -> Any:
        return self.to_arrow_table().to_reader(rows)

    def _all(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.to_arrow_table().to_batches():
            for row in batch.to_pylist():
                yield tuple(map(_without_zone, row.values()))


def _without_zone(value: Any) -> Any:
    """Times are UTC on both engines; DuckDB tells them without a zone."""
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
