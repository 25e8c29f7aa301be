"""What is remembered of one live process between two samples."""

from datetime import datetime
from typing import TYPE_CHECKING

from vmsonar.collectors.base import ProcessFacts
from vmsonar.collectors.process_stat import PF_FORKNOEXEC, PF_KTHREAD

if TYPE_CHECKING:
    from vmsonar.collectors.job import Job
    from vmsonar.collectors.process_identity import Identity

#: User ticks, kernel ticks, major faults.
Usage = tuple[int, int, int]
#: Bytes fetched from storage, bytes sent to storage.
Moved = tuple[int, int]

NOT_OPEN = -1
DENIED = -2


class Process:
    """One process. Plain attributes: the sampling loop touches them a million times an hour."""

    __slots__ = (
        "cgroup_fd",
        "comm",
        "counted",
        "counted_moved",
        "counted_reaped",
        "data_stack",
        "facts",
        "flags",
        "folder_fd",
        "head",
        "identity",
        "index",
        "info",
        "inherited",
        "io_fd",
        "io_text",
        "job",
        "kept",
        "known_ppid",
        "looks",
        "minor",
        "moved",
        "name",
        "noted",
        "pace",
        "paced",
        "pgid",
        "pid",
        "ppid",
        "pss_at",
        "pss_private",
        "reaped",
        "resident",
        "row",
        "schedstat",
        "schedstat_fd",
        "session",
        "shared",
        "start",
        "started",
        "stat_fd",
        "stat_used",
        "statm_fd",
        "tail",
        "terminal",
        "threads",
        "used",
        "virtual",
        "weighed",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = int(name)
        #: Where its clock stands in the arrays, and what the clock showed before the first look.
        self.index = 0
        self.noted = 0
        self.schedstat = b""
        self.looks = 0
        self.stat_fd = self.statm_fd = self.io_fd = self.cgroup_fd = self.schedstat_fd = NOT_OPEN
        self.folder_fd = NOT_OPEN
        #: The stat line up to the last field we use; a blank is in none, so the first look finds a change.
        self.stat_used = b" "
        self.io_text = b""
        self.comm = b""
        self.start = -1
        #: The same as wall time, found out once: the clock may be set later.
        self.started: datetime | None = None
        self.ppid = self.known_ppid = self.pgid = self.session = self.terminal = self.flags = 0
        self.threads = self.minor = self.virtual = self.resident = 0
        self.shared: int | None = None
        self.data_stack: int | None = None
        self.used: Usage = (0, 0, 0)
        self.reaped: Usage = (0, 0, 0)
        self.moved: Moved | None = None
        #: What of the three above is in the totals of jobs.
        self.counted: Usage = (0, 0, 0)
        self.counted_reaped: Usage = (0, 0, 0)
        self.counted_moved: Moved | None = None
        #: Ticks it used before its last look that found any, and the number of that sample.
        self.pace = self.paced = 0
        #: Memory a fork shared with its parent when it was first seen, and what Pss said later.
        self.inherited = 0
        self.pss_private: int | None = None
        self.pss_at = 0
        #: Threads, resident and shared bytes as they are in the sums of its job.
        self.weighed = (0, 0, 0)
        #: The row, and the parts of it that come from stat and from io.
        self.head = b""
        self.tail = b"}"
        self.row = b""
        self.info = b""
        self.kept = True
        self.identity: Identity | None = None
        self.facts: ProcessFacts | None = None
        self.job: Job | None = None

    @property
    def anonymous(self) -> int:
        """Resident bytes that are neither file nor shared memory."""
        return max(0, self.resident - (self.shared or 0))

    @property
    def is_kernel_thread(self) -> bool:
        return bool(self.flags & PF_KTHREAD)

    @property
    def is_forked_copy(self) -> bool:
        """It was forked and never called exec: it shares its parent's pages until it writes."""
        return bool(self.flags & PF_FORKNOEXEC)
