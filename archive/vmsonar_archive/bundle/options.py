"""What a bundle is to be, and what became of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from vmsonar_archive.findings import Finding, Severity
from vmsonar_archive.units import Sensitivity

#: Given the number of bytes to come, something that is told how many have gone.
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]


class Bundled(msgspec.Struct, kw_only=True):
    """What was made, for people and programs."""

    #: The bag's own name, which is the file's unless another was asked for.
    name: str
    output: str = ""
    bytes: int = 0
    files: int = 0
    head: str = ""
    #: After an upload: the hash of what went out, and whether the other side said that it has the same.
    sha256: str | None = None
    confirmed: bool | None = None
    findings: list[Finding] = []

    @property
    def ok(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


@contextmanager
def no_progress(_total: int) -> Iterator[Callable[[int], None]]:
    """For callers that show none."""
    yield lambda _bytes: None


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for beyond everything as it is."""

    #: An ed25519 key that signs the bundle.
    sign: Path | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Kinds of rows to keep; empty for all.
    only: tuple[str, ...] = ()
    #: What to replace by pseudonyms, and under which key; None for the archive's own.
    redact: frozenset[Sensitivity] = frozenset()
    redact_key: bytes | None = None
    #: Make the Parquet tables of days that have none.
    parquet: bool = False
    #: Leave out what a confirmed upload has taken before.
    increment: bool = False


NO_OPTIONS = Options()
