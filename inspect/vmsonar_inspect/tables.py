"""Opens archives, bundles and folders of them as one set of SQL tables (DuckDB)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vmsonar_archive.errors import VmsonarError, missing_extra
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.parquet.columns import SeriesNames, sample_tables, sysinfo_table
from vmsonar_archive.parquet.schema import SAMPLES, SYSINFO, TABLES, arrow, schema_of
from vmsonar_archive.reader import Archive, open_archive
from vmsonar_archive.records import KINDS, Sample

from vmsonar_inspect.views import VIEWS, view

# So many samples become one batch of columns.
_BATCH = 360


class Tables:
    """Every kind as a table and every rollup as a view, of all archives that were opened together."""

    def __init__(self, connection: Any, findings: list[Finding]) -> None:
        #: A DuckDB connection that knows every table and view.
        self.connection = connection
        #: What was damaged or could not be read.
        self.findings = findings

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Runs a query; fetch from what is returned (`fetchall`, `to_arrow_table`, …)."""
        return self.connection.execute(query, list(parameters))


def open_tables(paths: Sequence[Path | str]) -> Tables:
    """Opens archives, bundles and folders of them; what is damaged is told in `findings`."""
    findings: list[Finding] = []
    collected = _Collected()
    for path in _expand(paths):
        try:
            archive = open_archive(path)
        except VmsonarError as error:
            findings.append(Finding.of(Code.CORRUPT, str(path), str(error)))
            continue
        with archive:
            collected.add(archive)
            findings += archive.findings
    connection = connect()
    for table in TABLES:
        _make_table(connection, table, collected.tables(table))
    make_views(connection)
    return Tables(connection, findings)


def connect() -> Any:
    """A DuckDB connection that never fetches an extension and reckons in UTC."""
    try:
        import duckdb
    except ImportError:
        raise missing_extra("inspect", "querying") from None
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE MACRO unix_micros(moment) AS epoch_us(moment)")
    return connection


def make_views(connection: Any) -> None:
    """Defines every view; the tables must be there."""
    for name in VIEWS:
        connection.execute(f"CREATE VIEW {name} AS {view(name).query}")


def _expand(paths: Sequence[Path | str]) -> Iterator[Path]:
    """The archives and bundles that are meant: a folder that is not an archive stands for what is in it."""
    for path in map(Path, paths):
        if path.is_dir() and not (path / "archive.json").exists():
            yield from sorted(
                entry
                for entry in path.iterdir()
                if entry.suffix == ".tar" or (entry / "archive.json").exists()
            )
        else:
            yield path


class _Collected:
    """The rows of several archives, each record once."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {table: [] for table in TABLES}
        self._seen: set[tuple[str, str, str, int]] = set()

    def add(self, archive: Archive) -> None:
        name = archive.identity.archive
        series = SeriesNames()
        for batch in _batches(sample for sample in archive.samples() if self._is_new(name, sample)):
            for table, rows in sample_tables(name, batch, series, (SAMPLES, *KINDS)).items():
                self._parts[table].append(rows)
        infos = [info for info in archive.sysinfos() if self._is_new(name, info)]
        self._parts[SYSINFO].append(sysinfo_table(name, infos))

    def _is_new(self, archive: str, record: Any) -> bool:
        key = (archive, record.run, record.boot, record.seq)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def tables(self, table: str) -> Any:
        parts = self._parts.pop(table)
        return arrow().concat_tables(parts) if parts else schema_of(table).empty_table()


def _batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _make_table(connection: Any, table: str, rows: Any) -> None:
    connection.register("incoming", rows)
    # Times are UTC throughout; without a zone they need no further package to be fetched.
    zoned = [field.name for field in rows.schema if str(field.type).startswith("timestamp")]
    plain = ", ".join(f"make_timestamp(epoch_us({name})) AS {name}" for name in zoned)
    connection.execute(f"CREATE TABLE {table} AS SELECT * REPLACE ({plain}) FROM incoming")  # noqa: S608 - our names
    connection.unregister("incoming")
