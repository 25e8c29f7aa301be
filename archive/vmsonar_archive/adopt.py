"""Journals tables that were derived beside the writer, by the unit that runs after midnight."""

import hashlib
import os
from datetime import datetime
from pathlib import Path

from vmsonar_archive import layout
from vmsonar_archive.journal import DERIVE, Entry, Journal


def adopt_tables(root: Path, journal: Journal, now: datetime) -> None:
    """Adds a line for every table that the journal does not know; the writer lock is held."""
    for path in sorted(root.glob("[0-9]*/*/*/*.parquet")):
        name = str(path.relative_to(root))
        known = name in journal.ledger.current or path.is_symlink()
        # Of a day without the last table the others will be written again.
        if layout.is_parquet(name) and not known and path.with_name(layout.LAST_TABLE).exists():
            journal.append(_entry(path, name, now))


def _entry(path: Path, name: str, now: datetime) -> Entry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    return Entry(op=DERIVE, path=name, time=now, bytes=size, sha256=digest)
