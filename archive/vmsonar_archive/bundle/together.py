"""Are increments of one archive complete when they are looked at together? Each by itself cannot say."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.bundle.source import BundleSource
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Code, Finding


@dataclass(frozen=True, slots=True)
class Span:
    """The records that a bundle answers for: those after one number, up to another."""

    path: str
    archive: str
    after: int
    last: int


def span_of(path: Path) -> Span | None:
    """What a bundle answers for; None for what is no bundle, or was cut by time or kind."""
    if path.is_dir():
        return None
    try:
        source = BundleSource(path)
    except (VmsonarError, OSError):
        return None
    try:
        record = source.record()
        current = source.journal()[0].current
    except (VmsonarError, OSError):
        return None
    finally:
        source.close()
    if record.since or record.until:
        return None
    last = max((entry.last_seq or 0 for entry in current.values()), default=0)
    return Span(str(path), record.archive, record.after_seq or 0, last)


def missing_between(spans: Iterable[Span]) -> dict[str, Finding]:
    """For each bundle before which records of its archive are in none of the others."""
    found: dict[str, Finding] = {}
    reached: dict[str, int] = {}
    for span in sorted(spans, key=lambda span: (span.archive, span.after)):
        before = reached.get(span.archive)
        if before is not None and span.after > before:
            detail = f"records {before + 1} to {span.after} of this archive are in none of these bundles"
            found[span.path] = Finding.of(Code.MISSING, "", detail)
        reached[span.archive] = max(before or 0, span.last)
    return found
