"""Credits the CPU time of ended processes: rises of a parent's cutime are matched with its vanished children.

The kernel adds the whole time of a child to its parent's cutime and cstime when the parent waits for it
(wait(2), getrusage(2) RUSAGE_CHILDREN), and its I/O to the parent's I/O. What of that was seen while the child
lived is in the child's job already; the rest, used after the last sample, belongs to the same job. A rise that no
vanished child explains is of children that were never seen: it belongs to the parent's job.
"""

from collections.abc import Iterable, Iterator

from vmsonar.collectors.process.model import Job, Moved, Process, Usage
from vmsonar.collectors.process.reader import GONE
from vmsonar.collectors.process.table import ProcessTable

_NOTHING: Usage = (0, 0, 0)

#: Fewer ticks than this are not flagged as unattributed.
NEGLIGIBLE = 2


class Accounting:
    """Credits jobs with what their members used, each tick once."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._rounds = 0

    def settle(self, looked: list[Process], vanished: set[Process]) -> set[Process]:
        """Accounts for one sample; returns the vanished processes, including those that ended while it was taken."""
        late = self._ended_meanwhile(looked, vanished)
        self._rounds += 1
        for process in looked:
            _credit_own(process, self._rounds)
        round_ = _Round(self._table.by_pid, looked, vanished | late, self._rounds - 1)
        postponed = set()
        for child in round_.by_depth():
            reaper = round_.match(child)
            if reaper is not None:
                self._note_silence(round_, reaper, child)
            elif child in late:
                postponed.add(child)  # its reaper was read before it was reaped; the next sample has it
            else:
                _flag(child)
        round_.share_out()
        return round_.gone - postponed

    def _ended_meanwhile(self, looked: list[Process], vanished: set[Process]) -> set[Process]:
        """Children reaped since the list of processes was taken, whose time a rise may hold already.

        After this, each reaper was last read when all children that count as living were alive.
        """
        late: set[Process] = set()
        for process in looked:
            if process.reaped == process.counted_reaped and process.moved == process.counted_moved:
                continue
            while ended := self._ended_below(process, vanished | late):
                if self._table.look(process) == GONE:
                    break
                late |= ended
        return late

    def _ended_below(self, process: Process, known: set[Process]) -> set[Process]:
        ended: set[Process] = set()
        for child in self._table.children.get(process.pid, ()):
            if child not in known and not self._table.is_alive(child):
                ended.add(child)
                ended |= self._ended_below(child, known)
        return ended

    def _note_silence(self, round_: "_Round", reaper: Process, child: Process) -> None:
        """Flags a child whose reaper ignores SIGCHLD: the kernel then adds its time to nobody."""
        if reaper not in round_.risen and self._table.ignores_children(reaper):
            _flag(child)
        if child.moved is not None and reaper.moved is None and child.job is not None:
            child.job.is_partial_io = child.job.is_dirty = True


class _Round:
    """The accounts of one sample."""

    def __init__(
        self, by_pid: dict[int, Process], looked: Iterable[Process], gone: set[Process], last_round: int
    ) -> None:
        self._by_pid = by_pid
        self._last_round = last_round
        self.gone = gone
        self.risen: dict[Process, Usage] = {}
        self._moved: dict[Process, Moved] = {}
        self._matched: dict[Process, list[Process]] = {}
        for process in looked:
            self._open(process)

    def _open(self, process: Process) -> None:
        """Takes what rose since the last sample."""
        if process.reaped != process.counted_reaped:
            self.risen[process] = _minus(process.reaped, process.counted_reaped)
            process.counted_reaped = process.reaped
        if process.moved is not None and process.moved != process.counted_moved:
            before = process.counted_moved or (0, 0)
            self._moved[process] = (
                max(0, process.moved[0] - before[0]),
                max(0, process.moved[1] - before[1]),
            )
            process.counted_moved = process.moved

    def by_depth(self) -> list[Process]:
        """The vanished, children of the living first: a grandchild's time came through its parent."""
        return sorted(self.gone, key=lambda process: (self._depth(process), process.start_ticks, process.pid))

    def _depth(self, process: Process) -> int:
        depth = 0
        parent = self._by_pid.get(process.ppid)
        while parent is not None and parent in self.gone and depth < 64:
            depth += 1
            parent = self._by_pid.get(parent.ppid)
        return depth

    def match(self, child: Process) -> Process | None:
        """The living process whose rise holds this child's time, which is taken out of the rise."""
        known = _plus(child.used, child.reaped)
        for reaper in self._possible_reapers(child):
            rise = self.risen.get(reaper, _NOTHING)
            if rise[0] >= known[0] and rise[1] >= known[1] and rise[2] >= known[2]:
                if reaper in self.risen:
                    self.risen[reaper] = _minus(rise, known)
                self._take_io(reaper, child)
                self._matched.setdefault(reaper, []).append(child)
                return reaper
        return None

    def _possible_reapers(self, child: Process) -> Iterator[Process]:
        """The parent if it lives; else every living ancestor, then init, which adopts orphans (prctl(2))."""
        parent = self._by_pid.get(child.ppid)
        if parent is not None and parent not in self.gone:
            yield parent
            return
        seen = {child.pid}
        while parent is not None and parent.pid not in seen:
            seen.add(parent.pid)
            if parent not in self.gone:
                yield parent
            parent = self._by_pid.get(parent.ppid)
        init = self._by_pid.get(1)
        if init is not None and init.pid not in seen:
            yield init

    def _take_io(self, reaper: Process, child: Process) -> None:
        rise = self._moved.get(reaper)
        if rise is not None and child.moved is not None:
            rest = (rise[0] - child.moved[0], rise[1] - child.moved[1])
            if min(rest) >= 0:
                self._moved[reaper] = rest

    def share_out(self) -> None:
        """Credits what is left of the rises: used after the last sample, or by children never seen."""
        for reaper, rest in self.risen.items():
            heirs = self._heirs(reaper)
            if len(heirs) == 1 or (heirs and rest[0] + rest[1] < NEGLIGIBLE):
                heirs[-1].credit(rest)
                continue
            for job in heirs:
                job.is_unattributed = job.is_dirty = True
        for reaper, moved in self._moved.items():
            heirs = self._heirs(reaper)
            if len(heirs) == 1 or (heirs and moved == (0, 0)):
                heirs[-1].credit_io(moved)
                continue
            for job in heirs:
                job.is_partial_io = job.is_dirty = True

    def _heirs(self, reaper: Process) -> list[Job]:
        """The jobs that a remainder may belong to; it cannot be split between several."""
        children = self._matched.get(reaper)
        if not children:
            return _jobs_of([reaper])
        # One that hardly ran before its last sample, beside one that did, hardly ran after it.
        paces = [child.pace if child.paced >= self._last_round else 0 for child in children]
        busiest = max(paces)
        return _jobs_of([child for child, pace in zip(children, paces, strict=True) if pace * 10 >= busiest])


def _credit_own(process: Process, number: int) -> None:
    """Credits its job with what a process itself used since that was last done."""
    if process.used != process.counted:
        own = _minus(process.used, process.counted)
        process.counted = process.used
        process.pace, process.paced = own[0] + own[1], number
        if process.job is not None:
            process.job.credit(own)


def _jobs_of(processes: list[Process]) -> list[Job]:
    return list(dict.fromkeys(process.job for process in processes if process.job is not None))


def _flag(process: Process) -> None:
    if process.job is not None:
        process.job.is_unattributed = True
        process.job.is_partial_io = process.job.is_partial_io or process.moved is not None
        process.job.is_dirty = True


def _plus(one: Usage, other: Usage) -> Usage:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _minus(one: Usage, other: Usage) -> Usage:
    """Never below zero: the kernel's counters do not fall, but a restored one may be of another making."""
    return max(0, one[0] - other[0]), max(0, one[1] - other[1]), max(0, one[2] - other[2])
