"""Credits the CPU time and I/O of ended processes: rises of a parent's figures belong to the children that ended.

The kernel adds the whole time of a child to its parent's cutime and cstime when the parent waits for it
(wait(2), getrusage(2) RUSAGE_CHILDREN), and its I/O to the parent's I/O. What of that was seen while the child lived is
in the child's job already. The rest was used after the last look, by the children that ended since, by none of
them more than its life times its threads. Where that leaves a choice between jobs, the time stays with the
parent's job, and every job concerned has bounds that say so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vmsonar.collectors.process.lives import (
    CPUS,
    TICK,
    Interval,
    Moved,
    Reading,
    Unseen,
    Usage,
    known_and_open,
)
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import GONE
from vmsonar.collectors.process.table import ProcessTable

_NOTHING: Usage = (0, 0, 0)

#: Fewer ticks than this are no doubt worth telling: two counters were each cut to whole ticks.
NEGLIGIBLE = 3
# User and kernel time of a parent are each cut to whole ticks.
_ROUNDING = 2
# A parent whose own I/O was below this part of a rise is not taken for who caused it.
_QUIET = 20


class Accounting:
    """Credits jobs with what their members used, each tick once."""

    def __init__(self, table: ProcessTable, strays: Callable[[int], Job]) -> None:
        """`strays` gives the job that holds what a user's jobs used together and nobody can tell apart."""
        self._table = table
        self._strays = strays
        self._before = 0

    def settle(
        self,
        now: int,
        looked: list[Process],
        vanished: set[Process],
        late: set[Process],
        interval: Interval | None = None,
    ) -> set[Process]:
        """Accounts for one sample; `late` ended while it was taken. Returns those of all that are done with."""
        gone = vanished | late
        known = [process for process in gone if _take_final(process)]
        for process in (*looked, *known):
            _credit_own(process)
        is_whole = interval is not None and interval.is_whole
        round_ = _Round(self._table.by_pid, gone, _Doubts(self._before, now, is_whole, self._strays))
        if interval is not None and is_whole:
            round_.open_readings(interval.readings)
        for process in (*looked, *known):
            unseen = interval.unseen.get(process.pid) if interval is not None and is_whole else None
            round_.open(process, unseen)
        postponed = set()
        for child in round_.by_depth():
            batch = round_.match(child)
            if batch is not None:
                self._note_silence(round_, batch, child)
            elif child in late:
                postponed.add(child)  # its reaper was read before it was reaped; the next sample has it
            else:
                round_.give_up(child, self._table.ignores_children)
        if interval is not None and is_whole:
            self._credit_silent(round_, interval)
        round_.share_out()
        for process in round_.with_child_io:
            self._table.encode_again(process)
        self._before = now
        return gone - postponed

    def _note_silence(self, round_: "_Round", batch: "_Batch", child: Process) -> None:
        """A reaper that ignores SIGCHLD is told nothing: the kernel then adds its children's time to nobody."""
        if not batch.rise and not _has_final(child) and self._table.ignores_children(batch.reaper):
            round_.doubts.lost(child)
        if child.moved is not None and batch.reaper.moved is None and not _has_final(child):
            round_.doubts.lost_io(child)

    def _credit_silent(self, round_: "_Round", interval: Interval) -> None:
        """Gives a job what glances saw of its members that nobody waited for."""
        unseen: dict[int, Unseen] = {}
        for pid, some in (*interval.unseen.items(), *((one.pid, one.unseen) for one in interval.readings)):
            unseen.setdefault(pid, Unseen()).add(some)
        for pid, some in unseen.items():
            reaper = self._table.by_pid.get(pid)
            if reaper is None or reaper.job is None or round_.has_risen(reaper):
                continue
            if some.known + some.open > NEGLIGIBLE * TICK and self._table.ignores_children(reaper):
                reaper.job.credit((ticks(some.known), 0, 0))
                reaper.job.doubt(high=ticks(some.open))


@dataclass(slots=True)
class _Batch:
    """What one process gained by waiting for some of its children."""

    reaper: Process
    rise: int
    rest: Usage
    moved: Moved | None
    unseen: Unseen | None
    children: list[Process] = field(default_factory=list)
    #: Ticks that are in the totals of ended children already, and may be in this rise or in one before.
    foreign: int = 0


class _Round:
    """The accounts of one sample."""

    def __init__(self, by_pid: dict[int, Process], gone: set[Process], doubts: "_Doubts") -> None:
        self._by_pid = by_pid
        self._gone_by_pid = {process.pid: process for process in gone}
        self.gone = gone
        self.doubts = doubts
        self._batches: list[_Batch] = []
        #: All batches of a reaper, its last one, the batch of each child that is settled, and of each in a reading.
        self._by_reaper: dict[Process, list[_Batch]] = {}
        self._last: dict[Process, _Batch] = {}
        self._of: dict[Process, _Batch] = {}
        self._read: dict[Process, _Batch] = {}
        self.with_child_io: set[Process] = set()

    def open_readings(self, readings: list[Reading]) -> None:
        """Takes what parents gained at moments between the samples."""
        by_death = {process.death: process for process in self.gone if process.death is not None}
        for reading in readings:
            reaper = self._read_process(reading)
            if reaper is None:
                continue
            batch = self._add(reaper, reading.reaped, reading.moved, reading.unseen)
            for death in reading.deaths:
                child = by_death.get(death)
                if child is not None:
                    self._read[child] = batch

    def _read_process(self, reading: Reading) -> Process | None:
        for known in (self._gone_by_pid, self._by_pid):
            process = known.get(reading.pid)
            if process is not None and process.start_ticks == reading.start_ticks:
                return process
        return None

    def _reaper(self, child: Process) -> Process | None:
        """Who waited for it: of two with one pid the one that lived then."""
        pid = (child.death.reaper if child.death is not None else 0) or child.ppid
        gone = self._gone_by_pid.get(pid)
        if gone is None or gone is child or _died_before(gone, child):
            return self._by_pid.get(pid)
        return gone

    def open(self, reaper: Process, unseen: Unseen | None) -> None:
        """Takes what rose since the last sample, or since the last reading."""
        if reaper.reaped != reaper.counted_reaped or reaper.moved != reaper.counted_moved:
            self._last[reaper] = self._add(reaper, reaper.reaped, reaper.moved, unseen)

    def _add(self, reaper: Process, reaped: Usage, moved: Moved | None, unseen: Unseen | None) -> _Batch:
        rise = minus(reaped, reaper.counted_reaped)
        if sum(reaped[:2]) < sum(reaper.counted_reaped[:2]):
            reaped = reaper.counted_reaped  # read before what was counted last
        paid = min(reaper.owed, rise[0] + rise[1])
        reaper.owed -= paid
        rise = minus(rise, _part(rise, paid, rise[0] + rise[1]))
        gained = None
        if moved is not None:
            before = reaper.counted_moved or (0, 0)
            gained = (max(0, moved[0] - before[0]), max(0, moved[1] - before[1]))
            reaper.counted_moved = moved
        reaper.counted_reaped = reaped
        batch = _Batch(reaper, rise[0] + rise[1], rise, gained, unseen)
        self._batches.append(batch)
        self._by_reaper.setdefault(reaper, []).append(batch)
        return batch

    def has_risen(self, reaper: Process) -> bool:
        return any(batch.rise for batch in self._by_reaper.get(reaper, ()))

    def by_depth(self) -> list[Process]:
        """The vanished, children of the living first: a grandchild's time came through its parent."""
        return sorted(self.gone, key=lambda process: (self._depth(process), process.start_ticks, process.pid))

    def _depth(self, process: Process) -> int:
        depth = 0
        parent = self._reaper(process)
        while parent is not None and parent in self.gone and depth < 64:
            depth += 1
            parent = self._reaper(parent)
        return depth

    def match(self, child: Process) -> _Batch | None:
        """The batch that holds this child's time, out of which what is known of it is taken."""
        known = plus(child.used, child.counted_reaped)
        for batch in self._possible(child):
            short = known[0] + known[1] - batch.rest[0] - batch.rest[1]
            if short <= _ROUNDING:
                batch.reaper.owed += max(0, short)
                batch.rest = minus(batch.rest, known)
                if _take_io(batch, child):
                    self.with_child_io.add(batch.reaper)
                batch.children.append(child)
                self._of[child] = batch
                return batch
        return None

    def give_up(self, child: Process, ignores_children: Callable[[Process], bool]) -> None:
        """Nobody's rise shows it: it may have been in the last one, which others then have too much of."""
        self.doubts.lost(child)
        known = sum(child.used[:2]) + sum(child.counted_reaped[:2])
        for batch in list(self._possible(child)):
            if batch.reaper.pid != 1 and not ignores_children(batch.reaper):
                batch.foreign = max(batch.foreign, known)

    def _possible(self, child: Process) -> Iterator[_Batch]:
        """Where its time may be: with its parent if that lives; else with the parent's, and with living ancestors."""
        if (read := self._read.get(child)) is not None:
            yield read
            yield from self._by_reaper.get(read.reaper, ())  # the word of its end may come late
            return
        parent = self._reaper(child)
        if parent is not None and parent not in self.gone:
            yield self._batch_of(parent)
            yield from self._by_reaper.get(parent, ())
            return
        seen = {child.pid}
        while parent is not None and parent.pid not in seen:
            seen.add(parent.pid)
            if parent in self._of:
                yield self._of[parent]
            if parent not in self.gone or parent in self._last:
                yield self._batch_of(parent)
            parent = self._reaper(parent)
        init = self._by_pid.get(1)
        if init is not None and init.pid not in seen:
            yield self._batch_of(init)

    def _batch_of(self, reaper: Process) -> _Batch:
        batch = self._last.get(reaper)
        if batch is None:
            batch = self._last[reaper] = _Batch(reaper, 0, _NOTHING, None, None)
            self._batches.append(batch)
        return batch

    def share_out(self) -> None:
        """Credits what is left of the rises: used after the last look, or by children that no sample saw."""
        for batch in self._batches:
            self.doubts.share(batch)
            self.doubts.share_io(batch)


class _Doubts:
    """Divides what is left of a rise between the jobs it may belong to, with bounds where there is a choice."""

    def __init__(self, before: int, now: int, is_whole: bool, strays: Callable[[int], Job]) -> None:
        self._before = before
        self._now = now
        self._is_whole = is_whole
        self._strays = strays

    def share(self, batch: _Batch) -> None:
        """Credits CPU time."""
        home, left = batch.reaper.job, batch.rest[0] + batch.rest[1]
        if home is not None and batch.foreign >= NEGLIGIBLE:
            home.doubt(low=min(batch.foreign, home.user + home.system + left - home.low_gap))
        caps = self._caps(batch, left)
        self._note_source(batch)
        if home is None or left < NEGLIGIBLE or (not caps and self._is_whole):
            likely = max(caps, key=lambda job: caps[job], default=home)
            if not caps and left < NEGLIGIBLE * len(batch.children):
                likely = batch.children[-1].job  # its final figures were cut to whole ticks
            if likely is not None:
                likely.credit(batch.rest)
        elif self._is_whole:
            self._split(batch, caps, left, home)
        else:
            self._estimate(batch, caps, left, home)

    def _caps(self, batch: _Batch, left: int) -> dict[Job, int]:
        """The jobs that the rest may belong to, with the most each can have of it."""
        caps: dict[Job, int] = {}
        for child in batch.children:
            if child.job is not None and not _has_final(child):
                caps[child.job] = caps.get(child.job, 0) + self._open(child)
        home, unseen = batch.reaper.job, batch.unseen
        if home is not None and unseen is not None and unseen.exits:
            caps[home] = caps.get(home, 0) + _most(unseen)
        return {job: min(cap, left) for job, cap in caps.items()}

    def _open(self, child: Process) -> int:
        """The most ticks that it, and children of its own that nobody saw, can have used after it was looked at."""
        if child.death is not None:
            open_ = known_and_open(child.death, self._before)[1]
            return ticks(open_) + _ROUNDING + _most(child.death.life.unseen)
        return ticks((self._now - self._before) * min(max(1, child.threads), CPUS)) + _ROUNDING

    def _split(self, batch: _Batch, caps: dict[Job, int], left: int, home: Job) -> None:
        """Everybody has what no other can have used; the rest stays with the parent's job, or with the user."""
        excess = max(
            0, left - sum(caps.values())
        )  # of children in the parent's group that were told of before
        share = left - excess
        lows = {job: max(0, share - (sum(caps.values()) - cap)) for job, cap in caps.items()}
        open_ = share - sum(lows.values())
        keeper = self._keeper(home, caps) if open_ >= NEGLIGIBLE else max(caps, key=lambda job: caps[job])
        for job, low in lows.items():
            job.credit(_part(batch.rest, low, left))
            if open_ >= NEGLIGIBLE and job is not keeper:
                job.doubt(high=min(caps[job], share) - low)
        home.credit(_part(batch.rest, excess, left))
        keeper.credit(_part(batch.rest, open_, left))
        if open_ >= NEGLIGIBLE:
            keeper.doubt(low=open_)

    def _estimate(self, batch: _Batch, caps: dict[Job, int], left: int, home: Job) -> None:
        """Without the lifeline: who was busy went on as before, and all the rest is of children nobody saw."""
        paces: dict[Job, int] = {}
        for child in batch.children:
            if child.job is not None and not _has_final(child):
                paces[child.job] = paces.get(child.job, 0) + child.pace
        wanted = {job: min(pace, caps[job]) for job, pace in paces.items()}
        total = sum(wanted.values())
        given = {job: pace if total <= left else pace * left // total for job, pace in wanted.items()}
        if total > left:
            given[max(wanted, key=lambda job: wanted[job])] += left - sum(given.values())
        kept = left - sum(given.values())
        for job, amount in given.items():
            job.credit(_part(batch.rest, amount, left))
            if job is not home:
                job.doubt(low=amount, high=max(0, caps[job] - amount))
        home.credit(_part(batch.rest, kept, left))
        home.doubt(low=kept, high=sum(amount for job, amount in given.items() if job is not home))

    def _keeper(self, home: Job, caps: dict[Job, int]) -> Job:
        """The parent's job, unless all who may have used the time are another user's."""
        users = {job.uid for job in caps}
        if len(users) == 1 and (uid := users.pop()) is not None and home.uid != uid:
            return self._strays(uid)
        return home

    def _note_source(self, batch: _Batch) -> None:
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
        if child.job is not None and not _has_final(child):
            child.job.doubt(high=self._open(child))
            child.job.note_source(self._source_of(child))
            self.lost_io(child)

    def lost_io(self, child: Process) -> None:
        if child.job is not None and child.moved is not None and not _has_final(child):
            child.job.is_partial_io = child.job.is_dirty = True

    def share_io(self, batch: _Batch) -> None:
        """Credits bytes; a parent's own cannot be told from those of its children."""
        home, rest = batch.reaper.job, batch.moved
        if rest is None or home is None:
            return
        others = {
            child.job for child in batch.children if child.job not in (None, home) and not _has_final(child)
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


def ended_meanwhile(table: ProcessTable, looked: list[Process], vanished: set[Process]) -> set[Process]:
    """Children reaped since the list of processes was taken, whose time a rise may hold already.

    After this, each reaper was last read when all children that count as living were alive.
    """
    late: set[Process] = set()
    for process in looked:
        if process.reaped == process.counted_reaped and process.moved == process.counted_moved:
            continue
        while ended := _ended_below(table, process, vanished | late):
            if table.look(process) == GONE:
                break
            late |= ended
    return late


def _ended_below(table: ProcessTable, process: Process, known: set[Process]) -> set[Process]:
    ended: set[Process] = set()
    for child in table.children.get(process.pid, ()):
        if child not in known and not table.is_alive(child):
            ended.add(child)
            ended |= _ended_below(table, child, known)
    return ended


def _credit_own(process: Process) -> None:
    """Credits its job with what a process itself used since that was last done."""
    own = minus(process.used, process.counted)
    process.counted = process.used
    process.pace = own[0] + own[1]
    if process.job is None:
        return
    for job, sure, doubtful in process.left_jobs or ():
        # What it used in a group that it left since; in between nobody looked.
        spent = _part(own, min(sure, own[0] + own[1]), own[0] + own[1])
        job.credit(spent)
        own = minus(own, spent)
        doubtful = min(doubtful, own[0] + own[1])
        if doubtful >= NEGLIGIBLE:
            job.doubt(high=doubtful)
            process.job.doubt(low=doubtful)
    process.left_jobs = None
    if own != _NOTHING:
        process.job.credit(own)


def _take_final(process: Process) -> bool:
    """Takes over what was learned of an ended process after its last sample; whether there was anything."""
    death = process.death
    if death is None or process.job is None:
        return False  # what is credited to nobody must stay in the rise
    if death.final is not None:
        process.used, process.reaped = death.final
        process.moved = death.moved if death.moved is not None else process.moved
        return True
    if (account := death.account) is not None:
        process.used = (account.user_ns // TICK, account.system_ns // TICK, account.major_faults)
        if process.moved is None and account.is_whole:
            process.moved = (account.read_bytes, account.write_bytes)
        return True
    seen = ticks(death.life.cpu)
    if seen > process.used[0] + process.used[1] + 1:
        process.used = (seen - 1 - process.used[1], process.used[1], process.used[2])
        return True
    return False


def _has_final(process: Process) -> bool:
    return process.death is not None and process.death.final is not None and process.job is not None


def _died_before(one: Process, other: Process) -> bool:
    return one.death is not None and other.death is not None and one.death.ended < other.death.ended


def _most(unseen: Unseen) -> int:
    """The most ticks that children nobody saw can have used, each rounded up."""
    return ticks(unseen.known + unseen.open) + unseen.exits


def _take_io(batch: _Batch, child: Process) -> bool:
    """Takes what is known of a child's I/O out of its parent's; whether there was any."""
    if batch.moved is None or child.moved is None:
        return False
    rest = (batch.moved[0] - child.moved[0], batch.moved[1] - child.moved[1])
    if min(rest) < 0:
        return False
    batch.moved = rest
    batch.reaper.note_child_io(child.moved)
    return child.moved != (0, 0)


def _part(whole: Usage, ticks: int, of: int) -> Usage:
    """So many ticks of a usage, in its proportion of user to kernel time; faults go with the larger half."""
    if not ticks or not of:
        return _NOTHING
    system = whole[1] * ticks // of
    return ticks - system, system, whole[2] if 2 * ticks >= of else 0


def ticks(nanoseconds: int) -> int:
    """So many ticks, the last one perhaps not whole."""
    return -(-nanoseconds // TICK)


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
