"""What is known of the memory of one process."""

import os
from dataclasses import dataclass
from typing import NamedTuple, Optional

from vmsonar.collectors.base import ProcessFacts

#: A flag of include/linux/sched.h.
PF_FORKNOEXEC = 0x00000040

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Below this, what members of a job share is not worth a closer look.
SMALL = 8 << 20


class Figure(NamedTuple):
    """A figure, the bounds of the truth, and how it was found out."""

    value: int
    low: int
    high: int
    source: str

    @classmethod
    def exact(cls, value: int, source: str = "sum") -> "Figure":
        return cls(value, value, value, source)


#: What of a member is in the sums of its job: threads, resident bytes, anonymous ones, the same if it was forked,
#: shared memory, what is file or shared memory, huge pages, faults if it was forked; and what an earlier run saw.
Weight = tuple[int, int, int, int, int, int, int, int, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Footprint(ProcessFacts):
    """The figures of stat, statm and status, and what was made of them."""

    pid: int = 0
    ppid: int = 0
    flags: int = 0
    threads: int = 0
    minor: int = 0
    virtual: int = 0
    resident: int = 0
    #: File pages and shared memory, from statm.
    shared: int | None = None
    data_stack: int | None = None
    #: From status: file pages (None before it was first read), shared memory, pages of the huge page pool, VmHWM.
    files: int | None = None
    shmem: int = 0
    huge: int = 0
    mark: int = 0
    #: What statm said when status was read.
    shared_then: int = 0
    #: Page faults, its own and those of children it waited for; how much of the latter is settled.
    faults: int = 0
    child_faults: int = 0
    child_faults_seen: int = 0
    #: Its sizes, faults or marks changed since it was last weighed.
    is_resized: bool = True
    #: Bytes that its faults can have brought since it was last weighed, and whether its mark was read since.
    grown: int = 0
    is_marked: bool = False
    #: The mark and the sizes as they are in the books of its job.
    marked: int = 0
    weighed: Weight = (0, 0, 0, 0, 0, 0, 0, 0, 0)
    #: Of a fork at first sight: its parent, the anonymous memory of both, the most in common, the parent's faults.
    origin: int = 0
    anonymous_first: int = 0
    inherited: int = 0
    parent_anonymous: int = 0
    parent_faults: int = 0
    #: What smaps_rollup said, and the anonymous memory, shared memory and faults at that time.
    pss_anonymous: int | None = None
    pss_shared: int | None = None
    own_huge: int | None = None
    pss_at: tuple[int, int, int] = (0, 0, 0)
    #: The process whose address space it uses (CLONE_VM), how often that was tried, whether others use its own.
    twin: Optional["Footprint"] = None
    twin_looks: int = 0
    has_twins: bool = False

    @property
    def anonymous(self) -> int:
        """Resident bytes that are neither file nor shared memory."""
        return max(0, self.resident - (self.shared or 0))

    @property
    def is_forked_copy(self) -> bool:
        """It was forked and never called exec: it shares its parent's pages until it writes."""
        return bool(self.flags & PF_FORKNOEXEC)

    def weight(self) -> Weight:
        """What is to be in the sums of its job."""
        shared = self.shared or 0
        anonymous = max(0, self.resident - shared)
        fork, faults = (anonymous, self.faults) if self.flags & PF_FORKNOEXEC else (0, 0)
        if self.files is None:
            return self.threads, self.resident, anonymous, fork, 0, shared, 0, faults, 0
        shmem = min(self.shmem, shared)
        huge = self.huge if self.virtual else 0  # a process that only waits to be reaped has none
        return self.threads, self.resident, anonymous, fork, shmem, 0, huge, faults, 0

    def inherit(self, parent: Optional["Footprint"]) -> None:
        """Notes what a fork can share with its parent, when it is first seen."""
        self.origin = self.ppid
        self.anonymous_first = self.inherited = self.anonymous
        if parent is not None:
            self.inherited = min(self.anonymous, parent.anonymous)
            self.parent_anonymous, self.parent_faults = parent.anonymous, parent.faults
