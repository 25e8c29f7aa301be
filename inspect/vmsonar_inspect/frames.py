"""Narrows the tables to a time frame: the same views over only the samples that lie in it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vmsonar_inspect.tables import make_views

_SCHEMA = "framed"
# What is said once per segment holds for later samples too.
_TIMELESS = frozenset({"job_info", "process_info", "container_info", "sysinfo"})


@dataclass(frozen=True, slots=True)
class Frame:
    """From since (inclusive) to until (exclusive)."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_whole(self) -> bool:
        return self.since is None and self.until is None


def narrow(connection: Any, frame: Frame) -> None:
    """From here on every unqualified name means the samples of the frame."""
    if frame.is_whole:
        return
    tables = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' AND table_type = 'BASE TABLE'"
    ).fetchall()
    condition = _condition(frame)
    connection.execute(f"CREATE SCHEMA {_SCHEMA}")
    for (name,) in tables:
        where = "" if name in _TIMELESS else f" WHERE {condition}"
        connection.execute(f"CREATE VIEW {_SCHEMA}.{name} AS SELECT * FROM main.{name}{where}")  # noqa: S608
    connection.execute(f"SET schema = '{_SCHEMA}'")
    make_views(connection)


def _condition(frame: Frame) -> str:
    parts = []
    if frame.since is not None:
        parts.append(f"time >= {_literal(frame.since)}")
    if frame.until is not None:
        parts.append(f"time < {_literal(frame.until)}")
    return " AND ".join(parts)


def _literal(moment: datetime) -> str:
    return f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
