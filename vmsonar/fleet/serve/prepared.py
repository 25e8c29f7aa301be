"""What was found out of each archive and day, as rows of one SQLite file; whom a row concerns is a column of it.

A question never reads the table: it reads the view `visible`, which holds what its asker may see, and SQLite itself
refuses it everything else (sqlite3_set_authorizer).
"""

import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

#: Raised when rows of an earlier version would say something else; the file is then made anew.
VERSION = 4
#: Columns of what was lost, in hours, and the figures of verdicts that say so.
LOST = {
    "lost_cores": ("held_core_hours", "core_hours"),
    "lost_gib": ("held_gib_hours",),
    "lost_gpus": ("idle_gpu_hours",),
}
#: The day of the row that says what all days of a thing come to.
WHOLE = ""


class Row(msgspec.Struct, kw_only=True):
    """One thing of one archive and day, with the figures that lists are sorted and summed by."""

    kind: str
    id: str = ""
    #: The only user, beside those who see the whole machine, whom it concerns.
    user: str | None = None
    name: str | None = None
    first: float | None = None
    last: float | None = None
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    runtime: float | None = None
    read: float | None = None
    write: float | None = None
    energy: float | None = None
    #: What verdicts say that it cost, weighed: this ranks.
    cost: float | None = None
    #: What it had and made no use of, in hours.
    lost_cores: float | None = None
    lost_gib: float | None = None
    lost_gpus: float | None = None
    #: Of a machine: core, byte and GPU seconds that were there and not used.
    idle_cpu: float | None = None
    idle_memory: float | None = None
    idle_gpu: float | None = None
    #: How many jobs a sum is of, and whether one of its figures is a lower bound.
    jobs: int | None = None
    doubt: bool = False
    #: Of a machine: how it ended, where nothing followed.
    end: str | None = None
    #: Of a machine: the share of its time that was seen, and whether all of that could be read.
    share: float | None = None
    damaged: bool = False
    doc: Any = None


_FIGURES = tuple(name for name in Row.__struct_fields__ if name != "doc")
COLUMNS = ("archive", "day", *_FIGURES, "doc")
#: What lists are sorted by; each has an index that answers without looking at documents.
SORTS = ("cpu", "memory", "gpu", "runtime", "read", "write", "energy", "cost", "first")
_BY = "".join(
    f"CREATE INDEX by_{name} ON answer (kind, {name} DESC, id, archive, day, last, user, name"
    f"{'' if name == 'first' else ', first'}) WHERE day = '';"
    for name in SORTS
)
_SCHEMA = f"""
    CREATE TABLE answer ({", ".join(COLUMNS)}, PRIMARY KEY (kind, archive, day, id));
    {_BY}
    CREATE INDEX by_day ON answer (kind, day, cpu, idle_cpu, idle_memory, idle_gpu, archive);
    CREATE INDEX by_use ON answer (day, user, name, archive, jobs, cpu, gpu, runtime, memory, read, write, energy, cost,
        lost_cores, lost_gib, lost_gpus, doubt) WHERE kind = 'use';
    CREATE INDEX by_user ON answer (user, kind, day, cpu DESC, id, first, last, archive);
    CREATE INDEX by_thing ON answer (kind, id, archive, day);
    CREATE INDEX by_archive ON answer (archive, day);
    CREATE INDEX by_time ON answer (kind, first, archive, id) WHERE day != '';
    CREATE TABLE unit (archive, day, stamp, prepared, problem, PRIMARY KEY (archive, day)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Scope:
    """Whom an answer is for: everybody's rows or one user's, of all machines or of those whose names match."""

    user: str | None = None
    machines: tuple[str, ...] = ("*",)

    def has(self, archive: str, hostname: str | None) -> bool:
        return any(fnmatchcase(name, form) for form in self.machines for name in (archive, hostname or ""))

    def kind(self, kind: str) -> str:
        """Of machines and their parts a user has rows of their own, which say nothing of others."""
        return f"own_{kind}" if self.user is not None and kind in ("machine", "gpu", "gap") else kind


EVERYTHING = Scope()
#: Steps of SQLite's machine, about a millisecond, after which it asks whether to go on.
_STEPS = 100_000


class TooLong(Exception):
    """A question that would keep others waiting."""


class Prepared:
    """The file: written by one process at a time, read by many."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Makes an empty file unless there is one of this version."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        # By itself SQLite lets everybody read it; the files beside it take over these rights.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
                return
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for table in ("answer", "unit"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection

    def replace(
        self,
        archive: str,
        day: str,
        rows: Iterable[Row],
        unit: tuple[str, float, str | None] | None,
        combined: Callable[[list[Row]], Row],
    ) -> None:
        """Puts in what is known of a day, and says anew what the days of each thing come to.

        `unit` is the stamp of what was read, when, and what was wrong with it; None where the day is gone.
        """
        with self.writing() as connection:
            before = _things(connection, archive, day)
            connection.execute("DELETE FROM answer WHERE archive = ? AND day = ?", (archive, day))
            _insert(connection, archive, day, rows)
            for kind, name in before | _things(connection, archive, day):
                _say_whole(connection, archive, kind, name, combined)
            if unit is None:
                connection.execute("DELETE FROM unit WHERE archive = ? AND day = ?", (archive, day))
            else:
                connection.execute("REPLACE INTO unit VALUES (?, ?, ?, ?, ?)", (archive, day, *unit))

    def forget(self, archive: str) -> None:
        """Takes out an archive that is gone."""
        with self.writing() as connection:
            for table in ("answer", "unit"):
                connection.execute(f"DELETE FROM {table} WHERE archive = ?", (archive,))  # noqa: S608

    def units(self) -> dict[tuple[str, str], tuple[str, float, str | None]]:
        """What was prepared, by archive and day: from what, when, and what was wrong."""
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            return {(row[0], row[1]): row[2:] for row in connection.execute("SELECT * FROM unit")}

    def generation(self) -> tuple[int, ...]:
        """Something else whenever the file has changed."""
        found = []
        for name in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with suppress(FileNotFoundError):
                status = name.stat()
                found += [status.st_mtime_ns, status.st_size]
        return tuple(found)

    @contextmanager
    def seen_by(self, scope: Scope, seconds: float = 20.0) -> Iterator["Seen"]:
        """What one asker may see, as it is at this moment; raises TooLong where a question takes longer than that."""
        connection = sqlite3.connect(
            f"file:{self.path}?mode=ro", uri=True, timeout=60, check_same_thread=False, isolation_level=None
        )
        with closing(connection):
            # All questions of one answer see the same state of things.
            connection.execute("BEGIN")
            _limit(connection, scope)
            end = time.monotonic() + seconds
            connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            try:
                yield Seen(connection, scope)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise TooLong from None
                raise


#: Kinds whose days come to something; of the others each day stands for itself.
ADDED = ("machine", "own_machine", "job", "container", "gpu", "own_gpu")


def _things(connection: sqlite3.Connection, archive: str, day: str) -> set[tuple[str, str]]:
    marks = ", ".join("?" * len(ADDED))
    sql = f"SELECT kind, id FROM answer WHERE archive = ? AND day = ? AND kind IN ({marks})"  # noqa: S608
    return set(connection.execute(sql, (archive, day, *ADDED)).fetchall())


def _insert(connection: sqlite3.Connection, archive: str, day: str, rows: Iterable[Row]) -> None:
    values = [
        (
            archive,
            day,
            *(getattr(row, name) for name in _FIGURES),
            None if row.doc is None else packed(row.doc),
        )
        for row in rows
    ]
    marks = ", ".join("?" * len(COLUMNS))
    connection.executemany(f"REPLACE INTO answer VALUES ({marks})", values)  # noqa: S608


def _say_whole(
    connection: sqlite3.Connection, archive: str, kind: str, name: str, combined: Callable[[list[Row]], Row]
) -> None:
    where = "WHERE kind = ? AND archive = ? AND id = ?"
    named = (kind, archive, name)
    found = connection.execute(
        f"SELECT {', '.join((*_FIGURES, 'doc'))} FROM answer {where} AND day != '' ORDER BY day",  # noqa: S608
        named,
    ).fetchall()
    connection.execute(f"DELETE FROM answer {where} AND day = ''", named)  # noqa: S608
    if found:
        rows = [Row(**dict(zip(_FIGURES, row[:-1], strict=True)), doc=row[-1]) for row in found]
        whole = rows[0] if len(rows) == 1 else combined(rows)
        _insert(connection, archive, WHOLE, [whole])


def packed(doc: Any) -> bytes:
    """A document as it is kept."""
    return doc if isinstance(doc, bytes) else zlib.compress(msgspec.json.encode(doc), 1)


def _limit(connection: sqlite3.Connection, scope: Scope) -> None:
    """Puts the view between the asker and the table, and has SQLite refuse everything but the view."""
    wanted = []
    if scope.machines != ("*",):
        hosts = connection.execute("SELECT archive, name FROM answer WHERE kind = 'machine' AND day = ''")
        chosen = [(archive,) for archive, hostname in hosts if scope.has(archive, hostname)]
        connection.execute("CREATE TEMP TABLE theirs (archive PRIMARY KEY)")
        connection.executemany("INSERT INTO theirs VALUES (?)", chosen)
        wanted.append("archive IN (SELECT archive FROM temp.theirs)")
    if scope.user is not None:
        connection.execute("CREATE TEMP TABLE me (user)")
        connection.execute("INSERT INTO me VALUES (?)", (scope.user,))
        wanted.append("user = (SELECT user FROM temp.me)")
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    connection.execute(f"CREATE TEMP VIEW visible AS SELECT rowid AS number, * FROM main.answer{where}")  # noqa: S608
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_allowed)


def _allowed(
    action: int, first: str | None, _second: str | None, _place: str | None, inside: str | None
) -> int:
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    is_open = first == "visible" or inside == "visible"
    return sqlite3.SQLITE_OK if action == sqlite3.SQLITE_READ and is_open else sqlite3.SQLITE_DENY


class Seen:
    """The rows that one asker may see."""

    def __init__(self, connection: sqlite3.Connection, scope: Scope) -> None:
        self._connection = connection
        self.scope = scope

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query over `visible`."""
        return self._connection.execute(sql, values).fetchall()

    def docs(self, kind: str, where: str = "TRUE", *values: Any, rest: str = "") -> list[bytes]:
        """The documents of one kind, as JSON."""
        sql = f"SELECT doc FROM visible WHERE kind = ? AND ({where}) {rest}"  # noqa: S608 - our own words
        return [zlib.decompress(doc) for (doc,) in self.rows(sql, self.scope.kind(kind), *values)]

    def numbered(self, numbers: Sequence[int]) -> list[bytes]:
        """The documents of these rows, in this order."""
        marks = ", ".join("?" * len(numbers))
        found = dict(self.rows(f"SELECT number, doc FROM visible WHERE number IN ({marks})", *numbers))  # noqa: S608
        return [zlib.decompress(found[number]) for number in numbers]

    def structs(
        self, shape: type[T], kind: str, where: str = "TRUE", *values: Any, rest: str = ""
    ) -> list[T]:
        """The same as Structs."""
        decoder = msgspec.json.Decoder(shape)
        return [decoder.decode(doc) for doc in self.docs(kind, where, *values, rest=rest)]

    def places(self, archives: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The archives that answers come from, and how complete each is."""
        chosen = "" if archives is None else f"AND archive IN ({', '.join('?' * len(archives))})"
        sql = f"""SELECT archive, name, first, last, share, damaged FROM visible
            WHERE kind = ? AND day = '' {chosen} ORDER BY archive"""  # noqa: S608
        names = ("archive", "hostname", "first", "last", "coverage", "damaged")
        if archives is not None and not archives:
            return []
        found = self.rows(sql, self.scope.kind("machine"), *(archives or ()))
        return [dict(zip(names, row, strict=True)) for row in found]
