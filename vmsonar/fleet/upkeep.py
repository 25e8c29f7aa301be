"""Keeps a fleet in shape: merges what came in pieces, drops what is too old or too much, keeps the lake up to date.

One collector of a fleet does it: the one that holds state/upkeep.lock. The lake is written by a child of low priority
(`python -m vmsonar.fleet.upkeep FLEET`), because tables of many machines take minutes.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.format.journal import JournalEntry
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.system import files
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.write.lock import try_lock

from vmsonar.config.shipping import FleetSection, Kept
from vmsonar.daemon.log import Log
from vmsonar.fleet.evidence import Evidence
from vmsonar.fleet.holdings import current_holding, holding_path, read_holding, write_holding
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import Fleet, open_fleet

_EVERY = timedelta(hours=1)
# Late increments of yesterday have come by then.
_LAKE_HOUR = 3
#: What of the lake counts as rollups: sums per series and day, and the lists of records that they are of.
_ROLLUPS = (SERIES_DAY, SAMPLES)


class Upkeep:
    """Does what is due, a machine at a time, between two looks at the sources."""

    def __init__(self, intake: Intake, settings: FleetSection, log: Log) -> None:
        self._intake = intake
        self._fleet = intake.fleet
        self._settings = settings
        self._log = log
        self._lock: int | None = None
        self._due: datetime | None = None
        self._left: Iterator[str] = iter(())
        self._oldest: date | None = None
        self._lake: subprocess.Popen[bytes] | None = None
        # What the child says: a file, because nobody reads a pipe until it has ended.
        self._said = self._fleet.state / "lake.said"
        self._exported: date | None = None

    def step(self) -> None:
        """One machine's archive, or nothing."""
        now = self._intake.now()
        if not self._is_ours():
            return
        self._tend_lake(now)
        if (archive := next(self._left, None)) is not None:
            try:
                self._keep(archive, now)
            except (OSError, VmsonarError) as error:
                self._log.warning(f"archive {archive} could not be kept in order: {error}")
            return
        if self._due is None or now >= self._due:
            self._due = now + _EVERY
            self._begin(now)

    def close(self) -> None:
        if self._lake is not None:
            self._lake.kill()
            self._lake.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_ours(self) -> bool:
        if self._lock is None:
            self._lock = try_lock(self._fleet.state / "upkeep.lock")
        return self._lock is not None

    def _begin(self, now: datetime) -> None:
        self._oldest = oldest_day(self._fleet, self._settings.retention.archives, now)
        self._intake.refusals.prune(now)
        self._clean_incoming(now)
        self._left = iter(self._fleet.ids())

    def _clean_incoming(self, now: datetime) -> None:
        """Removes what transfers that broke off a day ago have left."""
        for path in self._fleet.incoming.iterdir():
            with suppress(OSError):
                if path.suffix == ".retired":
                    shutil.rmtree(path)
                elif path.is_file() and now.timestamp() - path.stat().st_mtime > 86_400:
                    path.unlink()

    def _keep(self, archive: str, now: datetime) -> None:
        root = self._fleet.archive(archive)
        content = files.read_inside(root, layout.ARCHIVE_FILE)
        with self._intake.deposit(archive, content, whole=True) as deposit:
            before = read_holding(self._fleet, archive)
            is_current = before is not None and before.mark == deposit.journal.mark
            deposit.tidy()
            if self._oldest is not None:
                current = deposit.journal.ledger.current.values()
                limit = "max_bytes" if self._settings.retention.archives.max_bytes else "max_days"
                deposit.drop([one for one in current if day_of(one) < self._oldest], limit)
            if before is not None and is_current:
                # What was merged or dropped is known as before: it is not to come back.
                before.mark = deposit.journal.mark
                write_holding(self._fleet, before)
            elif before is not None:
                with closing(FolderSource(root)) as source:
                    identity = source.identity()
                write_holding(self._fleet, current_holding(self._fleet, identity, deposit.journal))
            if self._oldest is not None:
                Evidence(self._fleet.evidence / archive).prune(self._oldest)
                heard = before.arrivals[-1].date() if before is not None and before.arrivals else date.min
                if not deposit.journal.ledger.current and heard < self._oldest:
                    self._retire(archive)

    def _retire(self, archive: str) -> None:
        """Takes away an archive of which nothing is left, and what is known of it; its lock is held."""
        holding_path(self._fleet, archive).unlink(missing_ok=True)
        for place in (self._fleet.archive(archive), self._fleet.evidence / archive):
            if place.exists():
                gone = self._fleet.incoming / f"{place.parent.name}-{archive}.retired"
                place.rename(gone)
                shutil.rmtree(gone)

    def _tend_lake(self, now: datetime) -> None:
        if self._lake is not None:
            if self._lake.poll() is None:
                return
            if self._lake.returncode != 0:
                said = self._said.read_text(errors="replace").strip().rpartition("\n")[2]
                self._log.error(
                    f"the lake is not up to date: {said or self._lake.returncode}; tried again tomorrow"
                )
            self._lake = None
        if self._settings.lake == "none" or now.hour < _LAKE_HOUR or self._exported == now.date():
            return
        self._exported = now.date()
        limits = [
            _number(kept) for kept in (self._settings.retention.tables, self._settings.retention.rollups)
        ]
        with self._said.open("wb") as out:
            self._lake = subprocess.Popen(
                python(
                    "-m",
                    "vmsonar.fleet.upkeep",
                    str(self._fleet.root),
                    *(one for pair in limits for one in pair),
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
            )


def _number(kept: Kept) -> tuple[str, str]:
    return str(kept.max_days or 0), str(int(kept.max_bytes or 0))


def day_of(entry: JournalEntry) -> date:
    """The day of a file, by its folder."""
    return layout.day_of(entry.path.rpartition("/")[0]) or date.max


def oldest_day(fleet: Fleet, kept: Kept, now: datetime) -> date | None:
    """The first day that stays in the archives; None where everything does."""
    if kept.max_days is None and kept.max_bytes is None:
        return None
    sizes: Counter[date] = Counter()
    for root in fleet.origins() if kept.max_bytes is not None else ():
        with suppress(OSError, VmsonarError), closing(FolderSource(root)) as source:
            for entry in source.journal()[0].current.values():
                sizes[day_of(entry)] += entry.bytes
    return first_kept(
        sizes, kept.max_days, None if kept.max_bytes is None else int(kept.max_bytes), now.date()
    )


def first_kept(sizes: Counter[date], max_days: int | None, max_bytes: int | None, today: date) -> date | None:
    """The first day that stays: the newest days that fit, and none that is too old."""
    oldest = None if max_days is None else today - timedelta(days=max_days)
    if max_bytes is not None:
        used = 0
        for day in sorted(sizes, reverse=True):
            used += sizes[day]
            if used > max_bytes:
                # Never the newest day: what comes now would go at once.
                fits = min(day + timedelta(days=1), max(sizes))
                oldest = fits if oldest is None else max(oldest, fits)
                break
    return oldest


def update_lake(fleet: Fleet, limits: Iterable[int], now: Callable[[], datetime]) -> int:
    """Adds finished days to the lake and removes what is too old or too much; returns how many files were added."""
    # Here, because only this child needs the database.
    from vmsonar_inspect.export.lake import export_lake
    from vmsonar_inspect.tables.lakes import prune_lake
    from vmsonar_inspect.tables.stores import lake_at
    from vmsonar_inspect.tables.where import Origin, TimeFrame

    table_days, table_bytes, rollup_days, rollup_bytes = (one or None for one in limits)
    lake, today = lake_at(fleet.lake), now().date()
    midnight = datetime.combine(today, time(), UTC)
    sizes: dict[bool, Counter[date]] = {True: Counter(), False: Counter()}
    origins = [Origin(root) for root in fleet.origins()]
    done = export_lake(origins, lake, TimeFrame(until=midnight))
    for path, size in lake.sizes().items():
        if path.startswith("kind="):
            kind, day = (part.partition("=")[2] for part in path.split("/")[:2])
            sizes[kind in _ROLLUPS][date.fromisoformat(day)] += size
    rollups = first_kept(sizes[True], rollup_days, rollup_bytes, today)
    tables = first_kept(sizes[False], table_days, table_bytes, today)
    if rollups is not None or tables is not None:

        def expired(kind: str, day: date) -> bool:
            oldest = rollups if kind in _ROLLUPS else tables
            return oldest is not None and day < oldest

        prune_lake(lake, expired)
    return done.files


def main(arguments: list[str]) -> None:
    """The child's entry: see the module's docstring."""
    os.nice(19)
    try:
        update_lake(open_fleet(Path(arguments[0])), map(int, arguments[1:]), lambda: datetime.now(UTC))
    except (OSError, VmsonarError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
