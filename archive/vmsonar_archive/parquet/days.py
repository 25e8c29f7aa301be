"""Derives the tables of an archive's finished days, beside the writer and without disturbing it."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import Journal
from vmsonar_archive.format.layout import SAMPLE, SYSINFO
from vmsonar_archive.parquet.derive import Derivation, Derived
from vmsonar_archive.parquet.files import SourceSegment
from vmsonar_archive.read.reader import Archive, open_archive
from vmsonar_archive.records import Stamp
from vmsonar_archive.system.errors import Locked
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.upkeep import adopt_tables


def due_days(archive: Archive, today: date) -> list[date]:
    """Days that are over, whose segments are all sealed, and that have no tables yet."""
    segments = [*archive.segments(SAMPLE), *archive.segments(SYSINFO)]
    open_days = {segment.day for segment in segments if not segment.sealed}
    days = {segment.day for segment in segments if segment.name.kind == SAMPLE and segment.day < today}
    present = archive.source.sizes()
    return sorted(
        day for day in days - open_days if f"{layout.day_path(day)}/{layout.LAST_TABLE}" not in present
    )


def derive_day(
    root: Path, day: date, folder: Path | None = None, accepts: Callable[[Stamp], bool] = lambda _: True
) -> Derived:
    """Writes the tables of one day, or of some of its records, into its folder or another one."""
    with open_archive(root) as archive:
        first = next(archive.sysinfos(), None)
        ticks = float(first.ticks_per_second or 100) if first else 100.0
        derivation = Derivation(
            archive.identity.archive,
            day.isoformat(),
            folder or root / layout.day_path(day),
            ticks_per_second=ticks,
            accepts=accepts,
        )
        sources = []
        for kind, add in ((SAMPLE, derivation.add_samples), (SYSINFO, derivation.add_sysinfos)):
            for segment in archive.segments(kind):
                if segment.day == day:
                    add(archive.lines(segment))
                    sources.append(SourceSegment(path=segment.path, sha256=segment.sha256))
        return derivation.finish(sources)


def derive_due(root: Path, now: datetime | None = None) -> Iterator[tuple[date, Derived]]:
    """Derives every day that is due, the oldest first."""
    moment = now or datetime.now(UTC)
    with open_archive(root) as archive:
        days = due_days(archive, moment.date())
    for day in days:
        yield day, derive_day(root, day)
    if days:
        journal_tables(root, moment)


def journal_tables(root: Path, now: datetime) -> bool:
    """Journals new tables if no writer holds the archive; a writer does it by itself."""
    try:
        lock = WriterLock(root)
    except Locked:
        return False
    try:
        journal = Journal(root, lambda _: None)
        adopt_tables(root, journal, now)
        journal.close()
    finally:
        lock.close()
    return True
