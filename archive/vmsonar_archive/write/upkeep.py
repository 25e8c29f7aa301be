"""Recompresses, merges and drops sealed segments, and adopts tables that were derived meanwhile."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.format.frames import SEALED_LEVEL
from vmsonar_archive.format.journal import (
    DERIVE,
    DROP,
    MERGE,
    RECOMPRESS,
    SEAL,
    Journal,
    JournalEntry,
    SegmentFacts,
)
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.system import files
from vmsonar_archive.system.children import python
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.lock import WriterLock
from vmsonar_archive.write.repair import is_journalled_at
from vmsonar_archive.write.rewrite import rewrite


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One segment to be rewritten from one or several."""

    target: str
    sources: list[JournalEntry]

    @property
    def temporary(self) -> str:
        return layout.temporary(self.target)


class Upkeep:
    """Plans and finishes the work on sealed files; the writer lock is held."""

    def __init__(
        self,
        journal: Journal,
        now: Callable[[], datetime],
        own: set[str],
        budget: Budget,
        lock: WriterLock,
    ) -> None:
        """What our child writes is added to `own` while it does."""
        self._root = journal.root
        self._journal = journal
        self._now = now
        self._own = own
        self.budget = budget
        self._lock = lock
        self._given_up: set[str] = set()

    def due(self) -> Rewriting | None:
        """The next hour whose segments can be written better: the oldest one that is over."""
        return next((work for work in self._all_due() if work.target not in self._given_up), None)

    def _all_due(self) -> Iterator[Rewriting]:
        present = layout.hour_of(self._now())
        limit = self.budget.segment_limit(self._root)
        for hour, entries in self._hours():
            if hour == present or any(entry.damaged for entry in entries):
                continue
            if len(entries) > 1 and sum(entry.bytes for entry in entries) <= limit:
                yield Rewriting(entries[0].path, entries)
            else:
                yield from (Rewriting(entry.path, [entry]) for entry in entries if entry.op == SEAL)

    def _hours(self) -> Iterator[tuple[str, list[JournalEntry]]]:
        """Segments of one hour that follow each other: after a clock was set back an hour comes twice."""
        named = ((SegmentName.parse(path), entry) for path, entry in self._journal.ledger.current.items())
        known = sorted((name.kind, name.first_seq, name.hour, entry.path) for name, entry in named if name)
        for (_, hour), group in groupby(known, key=lambda item: (item[0], item[2])):
            yield hour, [self._journal.ledger.current[path] for _, _, _, path in group]

    def start(self, work: Rewriting) -> "subprocess.Popen[bytes]":
        """Hands the work to a child of low priority."""
        (self._root / work.temporary).unlink(missing_ok=True)
        self._own.add(work.temporary)
        arguments = map(str, (os.getpid(), SEALED_LEVEL, self._root, work.temporary))
        sources = [entry.path for entry in work.sources]
        return subprocess.Popen(
            python("-m", "vmsonar_archive.write.rewrite", *arguments, *sources),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def do_all(self) -> None:
        """Does all that is due, in this process."""
        while (work := self.due()) is not None:
            self._do(work)

    def _do(self, work: Rewriting) -> None:
        temporary = self._root / work.temporary
        try:
            temporary.unlink(missing_ok=True)
            with ExitStack() as stack:
                opened = (files.open_inside(self._root, entry.path) for entry in work.sources)
                streams = [stack.enter_context(stream) for stream in opened]
                sealed = rewrite(streams, temporary, work.target, SEALED_LEVEL)
        except (OSError, files.Refused):
            self.give_up(work)
            return
        self.finish(work, sealed)

    def give_up(self, work: Rewriting) -> None:
        """Leaves the segments as they are, for verify to name what is wrong with them and recover to save the rest."""
        self._given_up.add(work.target)
        self._own.discard(work.temporary)
        with suppress(OSError):
            (self._root / work.temporary).unlink(missing_ok=True)

    def take_over(self, work: Rewriting, output: bytes) -> None:
        """Takes over what the child wrote, by what it said; one that failed said nothing."""
        try:
            sealed = msgspec.json.decode(output, type=SegmentFacts)
        except msgspec.MsgspecError:
            self.give_up(work)
            return
        try:
            self.finish(work, msgspec.structs.replace(sealed, path=work.target))
        finally:
            self._own.discard(work.temporary)

    def finish(self, work: Rewriting, sealed: SegmentFacts) -> None:
        """Journals the new file, puts it in place and removes what it took in."""
        temporary = self._root / work.temporary
        current = self._journal.ledger.current
        unchanged = all(current.get(entry.path) == entry for entry in work.sources)
        complete = sealed.records == sum(entry.records or 0 for entry in work.sources)
        there = unchanged and complete and temporary.exists()
        if not (there and is_journalled_at(self._root, work.temporary, sealed)):
            self.give_up(work)
            return
        others = [entry.path for entry in work.sources if entry.path != work.target]
        operation = MERGE if len(work.sources) > 1 else RECOMPRESS
        self._journal.fault("rewrite.before_journal")
        self._journal.append(JournalEntry.of(operation, sealed, self._now(), others))
        self._journal.fault("rewrite.before_rename")
        files.rename_durably(temporary, self._root / work.target)
        self._journal.fault("rewrite.before_unlink")
        for path in others:
            (self._root / path).unlink(missing_ok=True)

    def keep_budget(self, live_bytes: int) -> int:
        """Drops the oldest files until the limits hold; returns what the archive then takes."""
        used = live_bytes + self._sealed_bytes()
        current = self._journal.ledger.current.values()
        for entry, reason in self.budget.to_drop(self._root, current, used, self._today()):
            self._drop(entry, reason)
            used -= entry.bytes
        self._lock.set_aside_reserve()
        return used

    def _today(self) -> date:
        """The day by which age is counted: one wrong clock must not make everything old."""
        days = (entry.last.date() for entry in self._journal.ledger.current.values() if entry.last)
        newest = max(days, default=None)
        today = self._now().date()
        return newest + timedelta(days=1) if newest and newest < today else today

    def _sealed_bytes(self) -> int:
        journal = 0
        with suppress(OSError):
            journal = (self._root / layout.JOURNAL_FILE).stat().st_size
        # Dropping files does not shorten the journal: beyond its share it is not their fault.
        share = min(journal, self.budget.limit(self._root) // 4)
        return share + sum(entry.bytes for entry in self._journal.ledger.current.values())

    def _drop(self, entry: JournalEntry, reason: str) -> None:
        self._journal.fault("drop.before_journal")
        line = msgspec.structs.replace(entry, op=DROP, time=self._now(), reason=reason, sources=[])
        try:
            self._journal.append(line)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._lock.use_reserve()
            self._journal.append(line)
        self._journal.fault("drop.before_unlink")
        path = self._root / entry.path
        path.unlink(missing_ok=True)
        for folder in list(path.parents)[:3]:
            try:
                folder.rmdir()
            except OSError:
                break


def adopt_tables(root: Path, journal: Journal, now: datetime) -> None:
    """Adds a line for every table that the journal does not know; the writer lock is held."""
    for path in sorted(root.glob("[0-9]*/*/*/*.parquet")):
        name = str(path.relative_to(root))
        known = name in journal.ledger.current
        # Of a day without the last table the others will be written again.
        if layout.is_parquet(name) and not known and path.with_name(layout.LAST_TABLE).exists():
            # What is not a plain file is named by verify.
            with suppress(files.Refused), files.open_inside(root, name) as file:
                digest = files.sha256_of(file)
                size = os.fstat(file.fileno()).st_size
                journal.append(JournalEntry(op=DERIVE, path=name, time=now, bytes=size, sha256=digest))
