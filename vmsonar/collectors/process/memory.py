"""The memory of a job: each page once, whatever its members share."""

from dataclasses import dataclass, field

from vmsonar.collectors.base import ProcessFacts

#: A flag of include/linux/sched.h.
PF_FORKNOEXEC = 0x00000040

#: Below this, what forks share is not worth a closer look.
SMALL = 8 << 20
PAGE = 4096


@dataclass(slots=True, kw_only=True, eq=False)
class Footprint(ProcessFacts):
    """What is known of the memory of one process."""

    pid: int = 0
    ppid: int = 0
    flags: int = 0
    threads: int = 0
    minor: int = 0
    virtual: int = 0
    resident: int = 0
    shared: int | None = None
    data_stack: int | None = None
    #: Memory a fork shared with its parent when it was first seen, and what Pss said later.
    inherited: int = 0
    pss_private: int | None = None
    pss_at: int = 0
    #: Threads, resident and shared bytes as they are in the sums of its job.
    weighed: tuple[int, int, int] = (0, 0, 0)

    @property
    def anonymous(self) -> int:
        """Resident bytes that are neither file nor shared memory."""
        return max(0, self.resident - (self.shared or 0))

    @property
    def is_forked_copy(self) -> bool:
        """It was forked and never called exec: it shares its parent's pages until it writes."""
        return bool(self.flags & PF_FORKNOEXEC)


@dataclass(slots=True, eq=False)
class JobMemory:
    """Sums over the members of one job."""

    members: set[Footprint] = field(default_factory=set)
    threads: int = 0
    resident: int = 0
    shared: int = 0
    #: The most that one member has of shared memory; None when it must be found out anew.
    shared_peak: int | None = 0
    #: The members that may share much memory with another.
    forks: set[Footprint] = field(default_factory=set)
    #: When the kernel was last asked what its forks share, and of how many.
    pss_asked: int = 0
    pss_members: int = 0

    def leave(self, process: Footprint) -> None:
        """Takes a member out of the sums."""
        self.members.discard(process)
        self.forks.discard(process)
        self._exchange(process, (0, 0, 0))

    def weigh(self, process: Footprint) -> bool:
        """Brings the sums up to date with a member that was read again; False if nothing changed."""
        weight = (process.threads, process.resident, process.shared or 0)
        if weight == process.weighed:
            return False
        self.members.add(process)
        self._exchange(process, weight)
        # One that may share much with the process it was forked from.
        if process.is_forked_copy and process.anonymous >= SMALL:
            self.forks.add(process)
        else:
            self.forks.discard(process)
        return True

    def _exchange(self, process: Footprint, weight: tuple[int, int, int]) -> None:
        before = process.weighed
        self.threads += weight[0] - before[0]
        self.resident += weight[1] - before[1]
        self.shared += weight[2] - before[2]
        if self.shared_peak is not None and weight[2] < before[2] == self.shared_peak:
            self.shared_peak = None
        elif self.shared_peak is not None and weight[2] > self.shared_peak:
            self.shared_peak = weight[2]
        process.weighed = weight

    def figure(self) -> tuple[int, str]:
        """Anonymous memory of all members plus shared memory once, and how that was found out."""
        if self.shared_peak is None:
            self.shared_peak = max([member.weighed[2] for member in self.members], default=0)
        if not self.forks or len(self.members) == 1:
            return self.shared_peak + self.resident - self.shared, "sum"
        if all(member.pss_private is not None for member in self.family()):
            return self.shared_peak + sum([_by_pss(member) for member in self.members]), "pss"
        return self.shared_peak + _estimate(self.members, self.forks), "estimate"

    def family(self) -> set[Footprint]:
        """The members whose anonymous memory may be shared: forks, and those they were forked from."""
        parents = {fork.ppid for fork in self.forks}
        return {member for member in self.members if member.pid in parents or member in self.forks}


def _by_pss(member: Footprint) -> int:
    """What Pss said, moved on by what the process grew or shrank since."""
    if member.pss_private is None:
        return member.anonymous
    return max(0, member.pss_private + member.anonymous - member.pss_at)


def _estimate(members: set[Footprint], forks: set[Footprint]) -> int:
    """Each fork's own pages, and what it inherited once for all forks of one parent."""
    present = {member.pid for member in members}
    total = sum([member.anonymous for member in members if member not in forks])
    orphaned: dict[int, int] = {}
    for fork in forks:
        own = private_estimate(fork.anonymous, fork.inherited, fork.minor)
        total += own
        if fork.ppid not in present:
            orphaned[fork.ppid] = max(orphaned.get(fork.ppid, 0), fork.anonymous - own)
    return total + sum(orphaned.values())


def private_estimate(anonymous: int, inherited: int, minor_faults: int) -> int:
    """Bytes of its own: growth beyond what it inherited, and faults that growth does not explain."""
    grown = max(0, anonymous - inherited)
    copied = max(0, minor_faults * PAGE - grown)
    return min(anonymous, grown + min(copied, inherited))
