"""What happens to sealed segments later: compressed better, an hour's small ones merged, the oldest dropped."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import msgspec

from vmsonar_archive import budget as budgets
from vmsonar_archive import files, layout
from vmsonar_archive.budget import Budget
from vmsonar_archive.frames import SEALED_LEVEL
from vmsonar_archive.journal import DROP, MERGE, RECOMPRESS, SEAL, Entry, Journal
from vmsonar_archive.layout import SegmentName
from vmsonar_archive.lock import WriterLock
from vmsonar_archive.repair import entry_of, sha256_of
from vmsonar_archive.rewrite import rewrite
from vmsonar_archive.segment import Sealed


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One segment to be written anew from one or several."""

    target: str
    sources: list[Entry]

    @property
    def operation(self) -> str:
        return MERGE if len(self.sources) > 1 else RECOMPRESS


class Upkeep:
    """Plans and finishes the work on sealed files; the writer lock is held."""

    def __init__(
        self,
        root: Path,
        journal: Journal,
        budget: Budget,
        now: Callable[[], datetime],
        fault: Callable[[str], None],
        lock: WriterLock,
    ) -> None:
        self._root = root
        self._journal = journal
        self._budget = budget
        self._now = now
        self._fault = fault
        self._lock = lock
        self._given_up: set[str] = set()

    def due(self) -> Rewriting | None:
        """The next hour whose segments can be written better: the oldest one that is over."""
        return next((work for work in self._all_due() if work.target not in self._given_up), None)

    def _all_due(self) -> Iterator[Rewriting]:
        present = layout.hour_of(self._now())
        limit = self._budget.segment_limit(self._root)
        for hour, entries in self._hours():
            if hour == present or any(entry.damaged for entry in entries):
                continue
            if len(entries) > 1 and sum(entry.bytes for entry in entries) <= limit:
                yield Rewriting(entries[0].path, entries)
            else:
                yield from (Rewriting(entry.path, [entry]) for entry in entries if entry.op == SEAL)

    def _hours(self) -> Iterator[tuple[str, list[Entry]]]:
        """Segments of one hour that follow each other: after a clock was set back an hour comes twice."""
        named = ((SegmentName.parse(path), entry) for path, entry in self._journal.ledger.current.items())
        known = sorted((name.kind, name.first_seq, name.hour, entry.path) for name, entry in named if name)
        for (_, hour), group in groupby(known, key=lambda item: (item[0], item[2])):
            yield hour, [self._journal.ledger.current[path] for _, _, _, path in group]

    def start(self, work: Rewriting) -> "subprocess.Popen[bytes]":
        """Hands the work to a child of low priority."""
        (self._root / layout.temporary(work.target)).unlink(missing_ok=True)
        paths = [str(self._root / entry.path) for entry in work.sources]
        target = str(self._root / layout.temporary(work.target))
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vmsonar_archive.rewrite",
                str(os.getpid()),
                str(SEALED_LEVEL),
                target,
                *paths,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def do_now(self, work: Rewriting) -> None:
        """The same work in this process, for those who are not in a hurry."""
        temporary = self._root / layout.temporary(work.target)
        try:
            temporary.unlink(missing_ok=True)
            with ExitStack() as stack:
                streams = [
                    stack.enter_context((self._root / entry.path).open("rb")) for entry in work.sources
                ]
                sealed = rewrite(streams, temporary, work.target, SEALED_LEVEL)
        except OSError:
            self.give_up(work)
            return
        self.finish(work, sealed)

    def give_up(self, work: Rewriting) -> None:
        """Leaves the segments as they are, for verify to name what is wrong with them and recover to save the rest."""
        self._given_up.add(work.target)
        with suppress(OSError):
            (self._root / layout.temporary(work.target)).unlink(missing_ok=True)

    def finish_child(self, work: Rewriting, output: bytes) -> None:
        """Takes over what the child wrote."""
        try:
            sealed = msgspec.json.decode(output, type=Sealed)
        except msgspec.MsgspecError:
            self.give_up(work)
            return
        self.finish(work, replace(sealed, path=work.target))

    def finish(self, work: Rewriting, sealed: Sealed) -> None:
        """Journals the new file, puts it in place and removes what it took in."""
        temporary = self._root / layout.temporary(work.target)
        current = self._journal.ledger.current
        unchanged = all(current.get(entry.path) == entry for entry in work.sources)
        complete = sealed.records == sum(entry.records or 0 for entry in work.sources)
        if not (unchanged and complete and temporary.exists() and sha256_of(temporary) == sealed.sha256):
            self.give_up(work)
            return
        others = [entry.path for entry in work.sources if entry.path != work.target]
        self._fault("rewrite.before_journal")
        self._journal.append(entry_of(work.operation, sealed, self._now(), others))
        self._fault("rewrite.before_rename")
        temporary.rename(self._root / work.target)
        files.fsync_folder(temporary.parent)
        self._fault("rewrite.before_unlink")
        for path in others:
            (self._root / path).unlink(missing_ok=True)

    def keep_budget(self, live_bytes: int) -> int:
        """Drops the oldest files until the limits hold; returns what the archive then takes."""
        used = live_bytes + self._sealed_bytes()
        limit = self._budget.working_limit(self._root)
        missing = self._budget.min_free - budgets.free_bytes(self._root)
        first_day = budgets.first_kept_day(self._budget, self._today())
        candidates = budgets.oldest_first(self._journal.ledger.current)
        for entry, reason in budgets.to_drop(candidates, used, limit, missing, first_day):
            self._drop(entry, reason)
            used -= entry.bytes
        self._lock.set_aside_reserve()
        return used

    def _today(self) -> date:
        """The day by which age is counted: one wrong clock must not make everything old."""
        newest = max(
            (entry.last.date() for entry in self._journal.ledger.current.values() if entry.last), default=None
        )
        today = self._now().date()
        return min(today, newest + timedelta(days=1)) if newest else today

    def _sealed_bytes(self) -> int:
        journal = 0
        with suppress(OSError):
            journal = (self._root / layout.JOURNAL_FILE).stat().st_size
        # Dropping files does not shorten the journal: beyond its share it is not their fault.
        share = min(journal, self._budget.limit(self._root) // 4)
        return share + sum(entry.bytes for entry in self._journal.ledger.current.values())

    def _drop(self, entry: Entry, reason: str) -> None:
        self._fault("drop.before_journal")
        line = msgspec.structs.replace(entry, op=DROP, time=self._now(), reason=reason, sources=[])
        try:
            self._journal.append(line)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._lock.use_reserve()
            self._journal.append(line)
        self._fault("drop.before_unlink")
        path = self._root / entry.path
        path.unlink(missing_ok=True)
        for folder in list(path.parents)[:3]:
            try:
                folder.rmdir()
            except OSError:
                break
