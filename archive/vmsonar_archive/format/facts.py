"""The facts of a file that the journal, a bundle's description and the writer share, and the tally behind them."""

from datetime import datetime
from typing import Any

import msgspec


class ContentFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a file's content; the last five only of segments."""

    bytes: int
    sha256: str
    records: int | None = None
    first: datetime | None = None
    last: datetime | None = None
    first_seq: int | None = None
    last_seq: int | None = None

    def content(self) -> dict[str, Any]:
        """These fields, to make another Struct with them."""
        return {field: getattr(self, field) for field in ContentFacts.__struct_fields__}


class SegmentFacts(ContentFacts, frozen=True, kw_only=True):
    """What is known of a segment once it is closed."""

    path: str
    records: int
    damaged: bool = False


class Tally:
    """Counts the records that go into a file and remembers the lowest and highest times and numbers.

    Not those of the first and the last record: the clock can be set back in between.
    """

    def __init__(self) -> None:
        self.records = 0
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.first_seq: int | None = None
        self.last_seq: int | None = None

    def add(self, time: datetime, seq: int) -> None:
        self.records += 1
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)
        self.first_seq = seq if self.first_seq is None else min(self.first_seq, seq)
        self.last_seq = seq if self.last_seq is None else max(self.last_seq, seq)

    def facts(self, path: str, size: int, sha256: str, damaged: bool = False) -> SegmentFacts:
        """The facts of the file, which has this size and hash."""
        return SegmentFacts(path=path, bytes=size, sha256=sha256, damaged=damaged, **vars(self))
