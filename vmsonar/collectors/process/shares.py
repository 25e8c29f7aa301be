"""Divides what a parent gained between the jobs it may belong to, with bounds where there is a choice."""

from collections.abc import Callable
from dataclasses import dataclass, field

from vmsonar.collectors.process.lives import CPUS, TICK, Moved, Unseen, Usage, known_and_open
from vmsonar.collectors.process.model import Job, Process

NOTHING: Usage = (0, 0, 0)
#: Less than this is no doubt worth telling: two counters were each cut to whole ticks.
NEGLIGIBLE = 3 * TICK
#: User and kernel time of a parent are each cut to whole ticks.
ROUNDING = 2 * TICK
# A parent whose own I/O was below this part of a rise is not taken for who caused it.
_QUIET = 20


@dataclass(slots=True)
class Batch:
    """What one process gained by waiting for some of its children."""

    reaper: Process
    rise: int
    rest: Usage
    moved: Moved | None
    unseen: Unseen | None
    children: list[Process] = field(default_factory=list)
    #: What of its children's time may be in somebody else's rise: nobody told who waited for them.
    uncertain: int = 0
    #: How much more its children are known to have used: the counters of their parent are cut to ticks.
    overdrawn: int = 0
    #: Time that is in the totals of ended children already, and may be in this rise or in one before.
    foreign: int = 0


class Shares:
    """Divides what is left of the rises of one sample."""

    def __init__(self, before: int, now: int, is_whole: bool, strays: Callable[[int], Job]) -> None:
        self._before = before
        self._now = now
        self._is_whole = is_whole
        self._strays = strays
        #: What process 1 gained by children that nobody knew.
        self.orphaned = 0

    def share(self, batch: Batch) -> None:
        """Credits CPU time."""
        paid = min(batch.reaper.owed, sum(batch.rest[:2]))
        batch.reaper.owed -= paid
        batch.rest = minus(batch.rest, part(batch.rest, paid, sum(batch.rest[:2])))
        home, left = batch.reaper.job, batch.rest[0] + batch.rest[1]
        if home is not None and batch.foreign >= NEGLIGIBLE:
            home.doubt(low=min(batch.foreign, home.user + home.system + left - home.low_gap))
        caps = self._caps(batch, left)
        before = {job: job.user + job.system for job in caps}
        self._divide(batch, caps, left, home)
        for job, had in before.items():
            if batch.foreign >= NEGLIGIBLE and job is not home:
                job.doubt(low=min(batch.foreign, job.user + job.system - had))

    def _divide(self, batch: Batch, caps: dict[Job, int], left: int, home: Job | None) -> None:
        self._note_source(batch)
        self._doubt_orphans(batch, left)
        if home is None or left < NEGLIGIBLE or (not caps and self._is_whole):
            likely = _busiest(batch, home) if left < NEGLIGIBLE or home is None else home
            if likely is not None:
                likely.credit(batch.rest)
        elif self._is_whole:
            self._split(batch, caps, left, home)
        else:
            self._estimate(batch, caps, left, home)

    def _doubt_orphans(self, batch: Batch, left: int) -> None:
        """Children that a process never waited for come to its own reaper, and nobody knows when."""
        for child in batch.children:
            death = child.death
            if death is None or death.final is None or child.job is None or batch.reaper.job is None:
                continue
            orphaned = min(left, _most(death.life.unseen) - sum(death.final[1][:2]))
            if orphaned >= NEGLIGIBLE and child.job is not batch.reaper.job:
                child.job.doubt(high=orphaned)
                batch.reaper.job.doubt(low=orphaned)

    def _caps(self, batch: Batch, left: int) -> dict[Job, int]:
        """The jobs that the rest may belong to, with the most each can have of it."""
        caps: dict[Job, int] = {}
        for child in batch.children:
            if child.job is not None and not has_final(child):
                caps[child.job] = caps.get(child.job, 0) + self._open(child)
        home, unseen = batch.reaper.job, batch.unseen
        if home is not None and unseen is not None and unseen.exits:
            caps[home] = caps.get(home, 0) + _most(unseen)
        return {job: min(cap, left + batch.uncertain) for job, cap in caps.items()}

    def _open(self, child: Process) -> int:
        """The most that it, and children of its own that nobody saw, can have used after it was looked at."""
        before = child.last_seen or self._before
        if not self._is_whole:
            # It may have had any number of children that nobody saw, and a slow sample read it long before its end.
            return 2 * (self._now - before) * CPUS + ROUNDING
        if (death := child.death) is not None:
            return known_and_open(death, before)[1] + ROUNDING + _most(death.life.unseen)
        return (self._now - before) * min(max(1, child.threads), CPUS) + ROUNDING

    def _split(self, batch: Batch, caps: dict[Job, int], left: int, home: Job) -> None:
        """Everybody has what no other can have used; the rest stays with the parent's job, or with the user."""
        excess = max(
            0, left - sum(caps.values())
        )  # of children in the parent's group that were told of before
        share = left - excess
        lows = {job: max(0, share - (sum(caps.values()) - cap)) for job, cap in caps.items()}
        open_ = share - sum(lows.values())
        likely = _scaled({job: max(0, told - lows[job]) for job, told in self._told(batch).items()}, open_)
        kept = open_ - sum(likely.values())
        keeper = self._keeper(home, caps) if open_ >= NEGLIGIBLE else max(caps, key=lambda job: caps[job])
        for job, low in lows.items():
            given = likely.get(job, 0)
            job.credit(part(batch.rest, low + given, left))
            if open_ >= NEGLIGIBLE:
                job.doubt(low=given, high=0 if job is keeper else min(caps[job], share) - low - given)
        home.credit(part(batch.rest, excess, left))
        for other in caps.keys() - {home} if excess >= NEGLIGIBLE else ():
            other.doubt(high=excess)  # or of these, if a look came later than its sample's time
            home.doubt(low=excess)
        keeper.credit(part(batch.rest, kept, left))
        if open_ >= NEGLIGIBLE:
            keeper.doubt(low=kept, high=open_ - kept - likely.get(keeper, 0) if keeper in caps else 0)

    def _told(self, batch: Batch) -> dict[Job, int]:
        """How much of the rest the kernel's own books think is each job's."""
        told: dict[Job, int] = {}
        for child in batch.children:
            account = None if child.death is None or has_final(child) else child.death.account
            if child.job is not None and account is not None:
                more = account.user_ns + account.system_ns - child.used[0] - child.used[1]
                told[child.job] = told.get(child.job, 0) + max(0, more)
        return told

    def _estimate(self, batch: Batch, caps: dict[Job, int], left: int, home: Job) -> None:
        """Without the lifeline: who was busy went on as before, and all the rest is of children nobody saw."""
        paces: dict[Job, int] = {}
        for child in batch.children:
            if child.job is not None and not has_final(child):
                # One that did not run before its last sample hardly ran after it.
                pace = child.pace if child.paced >= self._before else 0
                paces[child.job] = paces.get(child.job, 0) + pace
        given = _scaled({job: min(pace, caps[job], left) for job, pace in paces.items()}, left)
        kept = left - sum(given.values())
        for job, amount in given.items():
            job.credit(part(batch.rest, amount, left))
            if job is not home:
                job.doubt(low=amount, high=max(0, caps[job] - amount))
        if batch.reaper.pid == 1:
            self.orphaned += kept
        home.credit(part(batch.rest, kept, left))
        home.doubt(low=kept, high=sum(amount for job, amount in given.items() if job is not home))

    def _keeper(self, home: Job, caps: dict[Job, int]) -> Job:
        """The parent's job, unless all who may have used the time are recorded, and another user's."""
        users = {job.uid if job.is_shown else None for job in caps}
        if len(users) == 1 and (uid := users.pop()) is not None and home.uid != uid:
            return self._strays(uid)
        return home

    def _note_source(self, batch: Batch) -> None:
        for child in batch.children:
            if child.job is not None:
                child.job.note_source(self._source_of(child))
        if batch.rise and not batch.children and batch.reaper.job is not None:
            batch.reaper.job.note_source("lifeline" if self._is_whole else "samples")

    def _source_of(self, child: Process) -> str:
        if child.death is not None and child.death.account is not None:
            return "accounts"
        return "lifeline" if self._is_whole else "samples"

    def lost(self, child: Process) -> None:
        """A member ended and nobody was told what it used last."""
        if child.job is not None and not has_final(child):
            child.job.doubt(high=self._open(child))
            child.job.note_source(self._source_of(child))
            self.lost_io(child)

    def lost_io(self, child: Process) -> None:
        if child.job is not None and child.moved is not None and not _has_final_io(child):
            child.job.is_partial_io = child.job.is_dirty = True

    def share_io(self, batch: Batch) -> None:
        """Credits bytes; a parent's own cannot be told from those of its children."""
        home, rest = batch.reaper.job, batch.moved
        if rest is None or home is None:
            return
        others = {
            child.job
            for child in batch.children
            if child.job not in (None, home) and not _has_final_io(child)
        }
        if not batch.children and not (batch.unseen and batch.unseen.exits):
            batch.reaper.io_pace = sum(rest)
        if not others or rest == (0, 0):
            home.credit_io(rest)
            return
        keeper = home
        if len(others) == 1 and batch.reaper.io_pace * _QUIET < sum(rest):
            keeper = next(job for job in others if job is not None)
        keeper.credit_io(rest)
        keeper.doubt_io(low=rest)
        for job in (home, *others):
            if job is not None and job is not keeper:
                job.doubt_io(high=rest)


def _scaled(wanted: dict[Job, int], most: int) -> dict[Job, int]:
    """What each wants, in proportion where there is not enough."""
    total = sum(wanted.values())
    if total <= most:
        return wanted
    return {job: want * most // total for job, want in wanted.items()}


def has_final(process: Process) -> bool:
    return process.death is not None and process.death.final is not None and process.job is not None


def _has_final_io(process: Process) -> bool:
    """It may have been waited for between the reading of its times and that of its bytes."""
    death = process.death
    if death is None or process.job is None:
        return False
    account = death.account
    return death.moved is not None or (
        account is not None and process.moved == (account.read_bytes, account.write_bytes)
    )


def _busiest(batch: Batch, home: Job | None) -> Job | None:
    """Whose a few cut ticks are: of the child that used most, never of one that did nothing.

    A child that no sample saw comes first: of the others what they used is known but for the last moment.
    """
    strays = [child.job for child in batch.children if child.job is not None and child.job.is_stray]
    if strays:
        return strays[0]
    if home is not None and batch.unseen is not None and batch.unseen.exits:
        return home
    child = max(batch.children, key=lambda child: child.used[0] + child.used[1], default=None)
    return home if child is None or not sum(child.used[:2]) or child.job is None else child.job


def _most(unseen: Unseen) -> int:
    """The most that children nobody saw can have used."""
    return unseen.known + unseen.open


def part(whole: Usage, share: int, of: int) -> Usage:
    """So much of a usage, in its proportion of user to kernel time; faults go with the larger half."""
    if not share or not of:
        return NOTHING
    system = whole[1] * share // of
    return share - system, system, whole[2] if 2 * share >= of else 0


def plus(one: Usage, other: Usage) -> Usage:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def minus(one: Usage, other: Usage) -> Usage:
    """Never below zero; what user time lacks is taken from kernel time, and the other way round."""
    user, system = one[0] - other[0], one[1] - other[1]
    if user < 0:
        user, system = 0, system + user
    elif system < 0:
        user, system = user + system, 0
    return max(0, user), max(0, system), max(0, one[2] - other[2])
