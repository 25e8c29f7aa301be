"""Credits the CPU time and I/O of ended processes: rises of a parent's figures belong to the children that ended.

The kernel adds the whole time of a child to its parent's cutime and cstime when the parent waits for it
(wait(2), getrusage(2) RUSAGE_CHILDREN), and its I/O to the parent's I/O. What of that was seen while the child lived is
in the child's job already. The rest was used after the last look, by the children that ended since, by none of
them more than its life times its threads. Where that leaves a choice between jobs, the time stays with the
parent's job, and every job concerned has bounds that say so.
"""

from collections.abc import Callable, Iterator

from vmsonar.collectors.process.lives import Interval, Life, Moved, Reading, Unseen, Usage
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import GONE
from vmsonar.collectors.process.shares import (
    NEGLIGIBLE,
    NOTHING,
    ROUNDING,
    Batch,
    Shares,
    has_final,
    minus,
    part,
    plus,
)
from vmsonar.collectors.process.table import ProcessTable


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
            _credit_own(process, now)
        is_whole = interval is not None and interval.is_whole
        round_ = _Round(self._table.by_pid, gone, Shares(self._before, now, is_whole, self._strays))
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
                child.last_seen = child.last_seen or self._before
            else:
                round_.give_up(child, self._table.ignores_children)
        if interval is not None and is_whole:
            self._credit_silent(round_, interval)
        round_.share_out()
        if round_.shares.orphaned:
            self._doubt_parents_of_orphans(round_, looked)
        for process in round_.with_child_io:
            self._table.encode_again(process)
        self._before = now
        return gone - postponed

    def _note_silence(self, round_: "_Round", batch: Batch, child: Process) -> None:
        """A reaper that ignores SIGCHLD is told nothing: the kernel then adds its children's time to nobody."""
        if not batch.rise and not has_final(child) and self._table.ignores_children(batch.reaper):
            round_.shares.lost(child)
        if child.moved is not None and batch.reaper.moved is None and not has_final(child):
            round_.shares.lost_io(child)

    def _doubt_parents_of_orphans(self, round_: "_Round", looked: list[Process]) -> None:
        """Process 1 waited for children that no sample saw: of any job that lost a member, or waited for one.

        No child is without a page fault.
        """
        home = self._table.by_pid[1].job
        parents = {process.job for process in round_.gone}
        # Of one that is new, those it waited for before are noted as seen already.
        parents.update(
            one.job for one in looked if one.child_faults > (0 if one.looks == 1 else one.child_faults_seen)
        )
        for job in parents - {home, None}:
            if job is not None:
                job.doubt(high=round_.shares.orphaned)

    def _credit_silent(self, round_: "_Round", interval: Interval) -> None:
        """Counts a job's members that no sample saw, and gives it what glances saw of those that nobody waited for."""
        unseen: dict[Process, Unseen] = {}
        found = [(self._table.by_pid.get(pid), some) for pid, some in interval.unseen.items()]
        found += [(round_.read_process(reading), reading.unseen) for reading in interval.readings]
        found += [
            (process, process.death.life.unseen) for process in round_.gone if process.death is not None
        ]
        for reaper, some in found:
            if reaper is not None and some.exits:
                unseen.setdefault(reaper, Unseen()).add(some)
        for reaper, some in unseen.items():
            if reaper.job is None:
                continue
            reaper.job.count_unseen(some.exits)
            if some.known + some.open <= NEGLIGIBLE or round_.has_risen(reaper):
                continue
            is_deaf = self._is_deaf(reaper)
            if is_deaf:
                _credit_unheard(reaper.job, some)
            elif is_deaf is None and has_final(
                reaper
            ):  # it ended, nobody asked, and it was told of none of them
                reaper.job.doubt(high=some.known + some.open)

    def _is_deaf(self, reaper: Process) -> bool | None:
        """Whether it ignores, or ignored, SIGCHLD; None where it ended before it was asked."""
        return self._table.ignores_children(reaper) if reaper.death is None else reaper.death.life.is_deaf


class _Round:
    """The accounts of one sample."""

    def __init__(self, by_pid: dict[int, Process], gone: set[Process], shares: Shares) -> None:
        self._by_pid = by_pid
        self._gone_by_pid: dict[int, list[Process]] = {}
        for process in gone:
            self._gone_by_pid.setdefault(process.pid, []).append(process)
        self.gone = gone
        self.shares = shares
        self._batches: list[Batch] = []
        #: All batches of a reaper, its last one, the batch of each child that is settled, and of each in a reading.
        self._by_reaper: dict[Process, list[Batch]] = {}
        self._last: dict[Process, Batch] = {}
        self._of: dict[Process, Batch] = {}
        self._read: dict[Process, Batch] = {}
        self.with_child_io: set[Process] = set()

    def open_readings(self, readings: list[Reading]) -> None:
        """Takes what parents gained at moments between the samples."""
        by_death = {process.death: process for process in self.gone if process.death is not None}
        for reading in readings:
            reaper = self.read_process(reading)
            if reaper is None:
                continue
            batch = self._add(reaper, reading.reaped, reading.moved, reading.unseen)
            for death in reading.deaths:
                child = by_death.get(death)
                if child is not None:
                    self._read[child] = batch

    def read_process(self, reading: Reading) -> Process | None:
        alive = self._by_pid.get(reading.pid)
        known = [*self._gone_by_pid.get(reading.pid, ()), *([] if alive is None else [alive])]
        return next((process for process in known if process.start_ticks == reading.start_ticks), None)

    def _reaper(self, child: Process) -> Process | None:
        """Who waited for it: of two with one pid the one that lived then."""
        death = child.death
        pid = (death.reaper if death is not None else 0) or child.ppid
        alive = self._by_pid.get(pid)
        gone = [process for process in self._gone_by_pid.get(pid, ()) if process is not child]
        if death is not None and (life := death.reaper_life) is not None:
            known = [*gone, *([] if alive is None else [alive])]
            for process in known:
                if _life_of(process) is life:
                    return process
        gone = [process for process in gone if not _died_before(process, child)]
        return gone[0] if gone else alive

    def open(self, reaper: Process, unseen: Unseen | None) -> None:
        """Takes what rose since the last sample, or since the last reading."""
        if reaper.reaped != reaper.counted_reaped or reaper.moved != reaper.counted_moved:
            self._last[reaper] = self._add(reaper, reaper.reaped, reaper.moved, unseen)

    def _add(self, reaper: Process, reaped: Usage, moved: Moved | None, unseen: Unseen | None) -> Batch:
        rise = minus(reaped, reaper.counted_reaped)
        if sum(reaped[:2]) < sum(reaper.counted_reaped[:2]):
            reaped = reaper.counted_reaped  # read before what was counted last
        gained = None
        if moved is not None:
            before = reaper.counted_moved or (0, 0)
            gained = (max(0, moved[0] - before[0]), max(0, moved[1] - before[1]))
            reaper.counted_moved = moved
        reaper.counted_reaped = reaped
        batch = Batch(reaper, rise[0] + rise[1], rise, gained, unseen)
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

    def match(self, child: Process) -> Batch | None:
        """The batch that holds this child's time, out of which what is known of it is taken."""
        # What it owes is of children that were credited whole, while its own counters cut them to ticks.
        known = plus(plus(child.used, child.counted_reaped), (child.owed, 0, 0))
        for batch in self._possible(child):
            short = max(0, known[0] + known[1] - batch.rest[0] - batch.rest[1])
            if short + batch.overdrawn <= ROUNDING:
                batch.overdrawn += short
                self._owe(batch.reaper, short)
                if child.death is None and self._reaper(child) is not batch.reaper:
                    batch.uncertain += known[0] + known[1]
                batch.rest = minus(batch.rest, known)
                if _take_io(batch, child):
                    self.with_child_io.add(batch.reaper)
                batch.children.append(child)
                self._of[child] = batch
                return batch
        return None

    def _owe(self, reaper: Process, short: int) -> None:
        """Its children used more than its counters, cut to ticks, show: one that ended has that in its own reaper's."""
        while short and (above := self._of.get(reaper)) is not None:
            taken = min(short, sum(above.rest[:2]))
            above.rest = minus(above.rest, part(above.rest, taken, sum(above.rest[:2])))
            reaper, short = above.reaper, short - taken
        reaper.owed += short

    def give_up(self, child: Process, ignores_children: Callable[[Process], bool]) -> None:
        """Nobody's rise shows it: it may have been in the last one, which others then have too much of."""
        self.shares.lost(child)
        known = sum(child.used[:2]) + sum(child.counted_reaped[:2])
        for batch in list(self._possible(child)):
            if batch.reaper.pid != 1 and not ignores_children(batch.reaper):
                batch.foreign += known

    def _possible(self, child: Process) -> Iterator[Batch]:
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
            if parent not in self.gone:
                yield self._batch_of(parent)
            elif (last := self._last.get(parent)) is not None and (last.rise or has_final(parent)):
                yield last  # it was read after it had waited, and before it ended itself
            if parent in self._of:
                yield self._of[parent]
            parent = self._reaper(parent)
        # Its parent may have ended unseen, after it had waited: then somebody of the same job waited for that one.
        yield from (
            batch
            for batch in self._batches
            if batch.reaper.job is child.job and batch.reaper not in self.gone
        )
        init = self._by_pid.get(1)
        if init is not None and init.pid not in seen:
            yield self._batch_of(init)
            yield from self._by_reaper.get(init, ())

    def _batch_of(self, reaper: Process) -> Batch:
        batch = self._last.get(reaper)
        if batch is None:
            batch = self._last[reaper] = Batch(reaper, 0, NOTHING, None, None)
            self._batches.append(batch)
        return batch

    def share_out(self) -> None:
        """Credits what is left of the rises: used after the last look, or by children that no sample saw."""
        for batch in self._batches:
            self.shares.share(batch)
            self.shares.share_io(batch)


def ended_meanwhile(table: ProcessTable, looked: list[Process], vanished: set[Process]) -> set[Process]:
    """Children reaped since the list of processes was taken, whose time a rise may hold already.

    After this, each reaper was last read when all children that count as living were alive.
    """
    # What was first seen in this sample has no known parent whose rise would lead to it.
    late = {one for one in looked if one.looks == 1 and one not in vanished and not table.is_alive(one)}
    for process in looked:
        if process.reaped == process.counted_reaped and process.moved == process.counted_moved:
            continue
        while ended := _ended_below(table, process, vanished | late):
            if table.look(process) == GONE:
                break
            late |= ended
    return late


def _ended_below(table: ProcessTable, process: Process, known: set[Process]) -> set[Process]:
    """Those of its descendants that are gone and not known to be; a pid that was used again may be its own ancestor."""
    ended: set[Process] = set()
    seen, waiting = {process.pid}, [process.pid]
    while waiting:
        for child in table.children.get(waiting.pop(), ()):
            if child not in known:
                if table.is_alive(child):
                    continue
                ended.add(child)
            if child.pid not in seen:
                seen.add(child.pid)
                waiting.append(child.pid)
    return ended


def _credit_own(process: Process, now: int) -> None:
    """Credits its job with what a process itself used since that was last done."""
    own = minus(process.used, process.counted)
    process.counted = process.used
    process.pace, process.paced = own[0] + own[1], now
    if process.job is None:
        return
    for job, sure, doubtful in process.left_jobs or ():
        # What it used in a group that it left since; in between nobody looked.
        spent = part(own, min(sure, own[0] + own[1]), own[0] + own[1])
        job.credit(spent)
        own = minus(own, spent)
        doubtful = min(doubtful, own[0] + own[1])
        if doubtful >= NEGLIGIBLE:
            job.doubt(high=doubtful)
            process.job.doubt(low=doubtful)
    process.left_jobs = None
    if own != NOTHING:
        process.job.credit(own)


def _take_final(process: Process) -> bool:
    """Takes over what was learned of an ended process after its last sample; whether there was anything."""
    death = process.death
    if death is None or process.job is None:
        return False  # what is credited to nobody must stay in the rise
    if death.final is not None:
        process.used, process.reaped = death.final
        process.moved = death.moved if death.moved is not None else process.moved
    account, is_new = death.account, death.final is not None
    if account is not None and process.moved is None and account.is_whole:
        process.moved, is_new = (account.read_bytes, account.write_bytes), True
    if death.final is not None:
        return True
    if account is not None and account.cpu_low_ns >= process.used[0] + process.used[1]:
        told = (account.user_ns, account.system_ns, account.major_faults)
        process.used = part(told, account.cpu_low_ns, account.user_ns + account.system_ns)
        return True
    seen = death.life.cpu
    if seen > process.used[0] + process.used[1]:
        process.used = (seen - process.used[1], process.used[1], process.used[2])
        return True
    return is_new


def _credit_unheard(job: Job, unseen: Unseen) -> None:
    """Children that nobody was told of count by what glances saw; the rest of their lives is the upper bound."""
    job.credit((unseen.known, 0, 0))
    job.doubt(high=unseen.open)
    job.is_partial_io = True


def _life_of(process: Process) -> Life | None:
    return process.life if process.death is None else process.death.life


def _died_before(one: Process, other: Process) -> bool:
    return one.death is not None and other.death is not None and one.death.ended < other.death.ended


def _take_io(batch: Batch, child: Process) -> bool:
    """Takes what is known of a child's I/O out of its parent's; whether there was any."""
    if batch.moved is None or child.moved is None:
        return False
    rest = (batch.moved[0] - child.moved[0], batch.moved[1] - child.moved[1])
    if min(rest) < 0:
        return False
    batch.moved = rest
    batch.reaper.note_child_io(child.moved)
    return child.moved != (0, 0)
