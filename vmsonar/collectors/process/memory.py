"""The memory of a job and its peak: each page once, whatever its members share.

Counted are anonymous pages, shared memory (System V, POSIX, tmpfs) and pages of the huge page pool; pages of files
are not, the kernel can drop them. VmHWM of proc_pid_status(5) counts file pages too and begins anew at exec.
"""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from vmsonar_archive.records import JobRow, ProcessRow

from vmsonar.collectors.process.footprint import PAGE, SMALL, Figure, Footprint, Weight
from vmsonar.collectors.process.machine_memory import MachineMemory
from vmsonar.collectors.process.sharing import forks_figure, private_estimate, segments_figure
from vmsonar.collectors.process.wire import Account

_NONE = Figure.exact(0)
_NOTHING: Weight = (0, 0, 0, 0, 0, 0, 0, 0, 0)
#: Figures that are this close are one: bounds are recorded only where they lie further apart.
_CLOSE = 1 << 20


@dataclass(slots=True, eq=False)
class JobMemory:
    """Sums over the members of one job, and the highest that they ever were."""

    members: set[Footprint] = field(default_factory=set)
    threads: int = 0
    resident: int = 0
    anonymous: int = 0
    #: Anonymous memory of members that were forked and never called exec.
    forked: int = 0
    #: Shared memory and huge pages over all members, each counted with every member that maps it.
    shared: int = 0
    huge: int = 0
    #: File pages and shared memory of members of which nobody knows which of the two it is.
    unread: int = 0
    figure: Figure = _NONE
    is_stale: bool = True
    #: The highest so far, and the bounds of it.
    peak: int = 0
    peak_low: int = 0
    peak_high: int = 0
    peak_source: str = "high_water"
    #: Since the last figure: by how much members' marks rose above all that was seen, together and the most of one,
    #: by how much members can have grown, and how much more than now they can have had.
    spikes: int = 0
    spike: int = 0
    growth: int = 0
    excess: int = 0
    #: The members that came and went since, by the accounts: when they began and ended, and the most they had.
    lives: list[tuple[int, int, int]] = field(default_factory=list)
    has_history: bool = False
    #: When the kernel was last asked what members share, of how many, and who came or went since.
    asked: int = 0
    asked_of: int = 0
    moves: int = 0
    #: Pss of members that left since: the others have a larger share now.
    departed: int = 0
    #: When it must be asked again though nobody changed; 0 for never.
    owed_at: int = 0
    has_twins: bool = False

    @property
    def may_share(self) -> bool:
        """Whether pages may be in the sums more than once."""
        if len(self.members) < 2:
            return False
        return self.forked >= SMALL or self.shared + self.huge >= SMALL

    def leave(self, process: Footprint) -> None:
        """Takes a member out of the sums."""
        self.members.discard(process)
        self._exchange(process, _NOTHING)
        process.is_resized = True
        self.moves += 1
        self.departed += process.pss_anonymous or 0
        if process.has_twins:
            self._hand_over(process)

    def weigh(self, process: Footprint) -> bool:
        """Brings the sums up to date with a member that was read again; False if nothing changed."""
        if not process.is_resized and process.threads == process.weighed[0]:
            return False
        weight = process.weight()
        if process not in self.members:
            self.members.add(process)
            self.moves += 1
            # What its children were before it was first seen is unknown.
            self.note_unseen((process.child_faults - process.child_faults_seen) * PAGE, process.resident)
            process.child_faults_seen = process.child_faults
        self._watch(process, weight)
        self._exchange(process, weight)
        process.is_resized = False
        return True

    def _watch(self, process: Footprint, weight: Weight) -> None:
        """Takes over how high a member was since it was last weighed."""
        before, now = _own(process.weighed), _own(weight)
        top = before + process.grown
        if process.mark > process.marked:
            spike = min(top, process.mark - (process.files or 0)) - max(before, now)
            if spike > 0 and process.twin is None:
                self.spikes += spike
                self.spike = max(self.spike, spike)
        if process.mark < process.marked:
            self.note_unseen(process.grown - process.mark)  # it called exec: what it had before is in no mark
        if process.is_marked:
            top = min(top, process.mark + weight[6])  # huge pages of the pool are in no mark
        self.growth += max(0, top - before)
        self.excess += max(0, top - now)
        process.grown = 0
        process.is_marked = False
        process.marked = process.mark

    def _exchange(self, process: Footprint, weight: Weight) -> None:
        before = process.weighed
        self.threads += weight[0] - before[0]
        self.resident += weight[1] - before[1]
        self.anonymous += weight[2] - before[2]
        self.forked += weight[3] - before[3]
        self.shared += weight[4] - before[4]
        self.unread += weight[5] - before[5]
        self.huge += weight[6] - before[6]
        process.weighed = weight
        self.is_stale = True

    def _hand_over(self, owner: Footprint) -> None:
        """Another process of one address space stands for it now."""
        twins = [member for member in self.members if member.twin is owner]
        for twin in twins:
            twin.twin = None if twin is twins[0] else twins[0]
            twin.has_twins = len(twins) > 1 and twin is twins[0]

    def note_unseen(self, room: int | None, at_least: int = 0) -> None:
        """Members that nobody read to their end may have had that much; None if nobody can say how much."""
        if room is None or room > max(SMALL // 2, max(self.peak, at_least) // 20):
            self.peak_source = "sampled"

    def note_glance(self, size: int, low: int = 0) -> None:
        """Between two samples a member had that much by its mark, and `low` for certain."""
        self.peak = max(self.peak, size)
        self.peak_low = max(self.peak_low, low)

    def note_account(self, account: Account, parent: Footprint | None, files: int = 0) -> None:
        """Takes over the peak of a member that no sample saw; what it shares with a parent in this job counts once."""
        size = more = account.peak_rss or 0
        if account.is_forked and parent is not None:
            faults = account.minor_faults + account.major_faults
            more = private_estimate(size, min(size, parent.resident), faults)
            size = self.figure.value + more
        elif files < size:
            size -= files
        begun = 0 if account.elapsed is None else account.ended_after - account.elapsed
        self.lives.append((begun, account.ended, more))
        self.is_stale = True
        if size > self.peak:
            self.peak = size
            if self.peak_source != "sampled":
                self.peak_source = "accounts"

    def settle(self, machine: MachineMemory | None = None) -> Figure:
        """Makes the figure of this sample, and raises the peak."""
        if not self.is_stale:
            return self.figure
        before, now = self.figure, self._measure(machine)
        self.figure, self.is_stale = now, False
        if self.has_history:
            spike, high = self.spikes, before.high + self.growth
        else:
            # Nothing says that members were large at the same moment. What forks share now, they shared then.
            spike, high = self.spike, now.high + self.excess
        self.peak = max(self.peak, max(now.value, before.value) + spike)
        self.peak_low = max(self.peak_low, now.low)
        self.peak_high = max(self.peak_high, self.peak, now.high, high + _most_at_once(self.lives))
        if machine is not None and machine.total is not None:
            self.peak_high = max(self.peak, min(self.peak_high, machine.total))
        self.spikes = self.spike = self.growth = self.excess = 0
        self.lives.clear()
        self.has_history = True
        return now

    def _measure(self, machine: MachineMemory | None) -> Figure:
        anonymous, shared, huge = map(Figure.exact, (self.anonymous, self.shared, self.huge))
        if self.may_share:
            limits = (machine.anonymous, machine.shared, machine.hugetlb) if machine else (None, None, None)
            members = [member for member in self.members if member.twin is None]
            anonymous = forks_figure(members, self.departed, limits[0])
            shared = segments_figure([(one.weighed[4], one.pss_shared) for one in members], limits[1])
            huge = segments_figure([(one.weighed[6], one.own_huge) for one in members], limits[2])
        elif len(self.members) > 1 and (self.forked or self.shared):
            # Not worth a question, but the truth may be less.
            count = len(self.members)
            low = max(self.anonymous - self.forked, self.forked // count)
            anonymous = Figure(self.anonymous, low, self.anonymous, "estimate" if self.forked else "sum")
            shared = Figure(self.shared, self.shared // count, self.shared, "estimate")
        parts = (anonymous, shared, huge)
        low, high = sum(part.low for part in parts), sum(part.high for part in parts) + self.unread
        sources = {part.source for part in parts if part.value}
        source = next((name for name in ("estimate", "pss") if name in sources), "sum")
        return Figure(sum(part.value for part in parts), low, high, source)

    def row_fields(self) -> dict[str, Any]:
        """What the row of a job says about memory; bounds only where they are apart."""
        low, high = self.figure.low, self.figure.high
        is_apart = _is_apart(low, high)
        is_peak_apart = _is_apart(self.peak_low, self.peak_high)
        is_sampled = self.peak_source == "sampled"
        return {
            "threads": self.threads,
            "resident": self.resident,
            "memory": self.figure.value,
            "memory_source": self.figure.source,
            "memory_low": low if is_apart else None,
            "memory_high": high if is_apart else None,
            "memory_peak": self.peak or (None if is_sampled or self.peak_high else 0),
            "memory_peak_low": self.peak_low if is_peak_apart and self.peak_low < self.peak else None,
            "memory_peak_high": self.peak_high if is_peak_apart and not is_sampled else None,
            "memory_peak_source": self.peak_source,
        }


def restored(row: JobRow) -> JobMemory:
    """The peak of a job as an earlier run left it."""
    memory = JobMemory()
    if row.memory is not None:
        low, high = row.memory_low or row.memory, row.memory_high or row.memory
        memory.figure = Figure(row.memory, low, high, row.memory_source or "sum")
    if row.memory_peak is None:  # written by a version that kept none
        memory.peak_source = "sampled"
        return memory
    memory.peak = row.memory_peak
    memory.peak_low = row.memory_peak_low or row.memory_peak
    memory.peak_high = row.memory_peak_high or row.memory_peak
    memory.peak_source = row.memory_peak_source or "sampled"
    memory.has_history = True
    return memory


def restore_marks(process: Footprint, row: ProcessRow) -> None:
    """What an earlier run knew of the memory of a process."""
    process.resident, process.shared, process.minor = row.resident or 0, row.shared, row.minor_faults or 0
    process.faults = process.minor + (row.major_faults or 0)
    process.mark = row.resident_peak or 0


def resume(process: Footprint, earlier: Footprint) -> None:
    """Goes on with a process that an earlier run knew: only faults and marks since then are new."""
    since = max(0, process.faults - earlier.faults)
    process.grown = process.grown * since // max(1, process.faults)
    process.marked = earlier.mark
    process.weighed = (0, 0, 0, 0, 0, 0, 0, 0, earlier.anonymous)
    process.child_faults_seen = process.child_faults


def _own(weight: Weight) -> int:
    """Anonymous and shared memory of one member."""
    return weight[2] + weight[4] + weight[6] + weight[8]


def _most_at_once(lives: list[tuple[int, int, int]]) -> int:
    """The highest sum of those that can have lived at one moment."""
    changes = [change for begun, ended, size in lives for change in ((begun, -size), (ended, size))]
    return -min(accumulate([change for _, change in sorted(changes)]), default=0)


def _is_apart(low: int, high: int) -> bool:
    return high - low > max(_CLOSE, high // 20)
