"""The same tables and views on Apache Spark, for lakes that one machine cannot hold."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from vmsonar_archive.errors import UsageError, missing_extra
from vmsonar_archive.parquet.schema import SERIES_DAY, TABLES, schema_of

from vmsonar_inspect.export.target import target_at
from vmsonar_inspect.lakes import lake_units
from vmsonar_inspect.origins import find_origins
from vmsonar_inspect.parcels import SUMMARIES, StoredUnit
from vmsonar_inspect.views import HISTOGRAMS, VIEWS, view

_HISTOGRAM = """
    SELECT archive, boot, number, start_ticks, container_id, measure, entry.bucket, entry.frequency
    FROM (SELECT *, explode(histogram) AS entry FROM {}) AS entries
"""


class SparkTables:
    """Every kind and every rollup of some lakes as temporary views of a Spark session."""

    def __init__(self, lakes: Sequence[Path | str], session: Any = None) -> None:
        """Without a session one is started here, with all cores of this machine."""
        self._own = session is None
        self.session = session or _session()
        self._scratch = Path(tempfile.mkdtemp(prefix="vmsonar-"))
        try:
            self._define(list(_units(lakes, self._scratch)))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "SparkTables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._own:
            self.session.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def sql(self, query: str) -> "SparkResult":
        """Runs a query; what comes back can be fetched as from DuckDB."""
        return SparkResult(self.session.sql(query))

    def _define(self, units: list[StoredUnit]) -> None:
        for table in (*TABLES, SERIES_DAY):
            paths = [str(path) for unit in units for path in unit.files([table]).values()]
            self._frame(table, paths).createOrReplaceTempView(table)
        for name, source in SUMMARIES.items():
            rows = self.session.table(SERIES_DAY)
            rows.where(rows.source_table == source).createOrReplaceTempView(name)
        for name, summary in HISTOGRAMS.items():
            self.session.sql(_HISTOGRAM.format(summary)).createOrReplaceTempView(name)
        for name in VIEWS:
            self.session.sql(view(name).query).createOrReplaceTempView(name)

    def _frame(self, table: str, paths: list[str]) -> Any:
        """The files of a table with every column of today's schema, null where a file is older."""
        import pyarrow.parquet as pq

        empty = self._scratch / f"{table}.parquet"
        pq.write_table(schema_of(table).empty_table(), empty)
        # Partitions say again what the columns say.
        reader = self.session.read.option("recursiveFileLookup", "true")
        schema = reader.parquet(str(empty)).schema
        return reader.schema(schema).parquet(*paths, str(empty))


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


def _units(lakes: Sequence[Path | str], scratch: Path) -> Iterator[StoredUnit]:
    folder = scratch / "copied"
    folder.mkdir()
    for origin in find_origins(lakes, scratch):
        if not origin.is_lake:
            raise UsageError(f"{origin.place} is not a lake: make one with vmsonar export --to parquet")
        yield from lake_units(target_at(origin.place), lambda _: True, lambda *_: folder)


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
