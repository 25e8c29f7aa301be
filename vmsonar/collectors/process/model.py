"""What is remembered of processes and jobs between two samples."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import EventRow, JobInfoRow, JobRow

from vmsonar.collectors.process.footprint import Footprint
from vmsonar.collectors.process.memory import JobMemory
from vmsonar.host.cgroups import Membership

#: A flag of include/linux/sched.h.
PF_KTHREAD = 0x00200000

#: User ticks, kernel ticks, major faults.
Usage = tuple[int, int, int]
#: Bytes fetched from storage, bytes sent to storage.
Moved = tuple[int, int]

NOT_OPEN = -1
DENIED = -2


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts of an info row that have to be read."""

    user_id: int | None
    user_name: str | None
    program: str
    command: str | None
    membership: Membership
    contained: bool | None
    session: int
    terminal: int

    def row_fields(self) -> dict[str, Any]:
        """What the info rows of a process and of its job have in common."""
        return {
            "session_id": self.session,
            "program": self.program,
            "command": self.command,
            "container_id": self.membership.container_id,
            "user_id": self.user_id,
            "user_name": self.user_name,
            "user_source": "process" if self.user_id is not None else None,
        }


@dataclass(slots=True, eq=False)
class Process(Footprint):
    """One process. Plain attributes: the sampling loop touches them a million times an hour."""

    name: str
    #: Where its clock stands in the arrays, and what the clock showed before the first look.
    index: int = 0
    noted: int = 0
    schedstat: bytes = b""
    looks: int = 0
    stat_fd: int = NOT_OPEN
    #: Where the files of a living thread are, once the main thread has ended.
    task: str = ""
    statm_fd: int = NOT_OPEN
    io_fd: int = NOT_OPEN
    cgroup_fd: int = NOT_OPEN
    schedstat_fd: int = NOT_OPEN
    folder_fd: int = NOT_OPEN
    #: The stat line up to the last field we use; a blank is in none, so the first look finds a change.
    stat_used: bytes = b" "
    io_text: bytes = b""
    comm: bytes = b""
    #: Its start as wall time, found out once: the clock may be set later.
    started: datetime | None = None
    known_ppid: int = 0
    session: int = 0
    terminal: int = 0
    used: Usage = (0, 0, 0)
    reaped: Usage = (0, 0, 0)
    moved: Moved | None = None
    #: What of the three above is in the totals of jobs.
    counted: Usage = (0, 0, 0)
    counted_reaped: Usage = (0, 0, 0)
    counted_moved: Moved | None = None
    #: Ticks it used before its last look that found any, and the number of that sample.
    pace: int = 0
    paced: int = 0
    #: The row, and the parts of it that come from stat and from io.
    head: bytes = b""
    tail: bytes = b"}"
    row: bytes = b""
    info: bytes = b""
    kept: bool = True
    identity: Identity | None = None
    job: "Job | None" = None

    def __post_init__(self) -> None:
        self.pid = int(self.name)

    @property
    def is_kernel_thread(self) -> bool:
        return bool(self.flags & PF_KTHREAD)


@dataclass(slots=True, eq=False)
class Job:
    """Running totals of one process group, and the rows that show them."""

    pgid: int
    start: int
    series_id: str
    #: False for the processes that a filter leaves out: they are counted, so that nobody else gets their time.
    is_shown: bool
    members: set[Process] = field(default_factory=set)
    memory: JobMemory = field(default_factory=JobMemory)
    seen: int = 0
    user: int = 0
    system: int = 0
    major: int = 0
    read: int | None = None
    write: int | None = None
    is_unattributed: bool = False
    is_partial_io: bool = False
    is_dirty: bool = True
    row: bytes = b""
    info: bytes = b""

    def join(self, process: Process) -> None:
        """Takes a process in; its time so far is not taken with it."""
        process.job = self
        self.members.add(process)
        self.seen += 1
        self.is_dirty = True

    def leave(self, process: Process) -> None:
        self.members.discard(process)
        self.memory.leave(process)
        self.is_dirty = True

    def weigh(self, process: Process) -> None:
        """Brings the sums up to date with a member that was read again."""
        if self.memory.weigh(process):
            self.is_dirty = True

    def credit(self, usage: Usage) -> None:
        """Adds time and faults that no total holds yet."""
        self.user += usage[0]
        self.system += usage[1]
        self.major += usage[2]
        self.is_dirty = True

    def credit_io(self, moved: Moved) -> None:
        """Adds bytes that no total holds yet."""
        self.read = (self.read or 0) + moved[0]
        self.write = (self.write or 0) + moved[1]
        self.is_dirty = True

    def encode(self) -> bytes:
        """The row, made anew only when something changed."""
        if not self.is_dirty:
            return self.row
        row = JobRow(
            pgid=self.pgid,
            start_ticks=self.start,
            processes=len(self.members),
            processes_seen=self.seen,
            user_ticks=self.user,
            system_ticks=self.system,
            unattributed=self.is_unattributed or None,
            major_faults=self.major,
            read_bytes=self.read,
            write_bytes=self.write,
            io_partial=self.is_partial_io or None,
            **self.memory.row_fields(),
        )
        self.row = encode_row(row)
        self.is_dirty = False
        return self.row

    def encode_end(self) -> bytes:
        """The event that closes the series, with the last totals."""
        return encode_row(
            EventRow(
                event_type="job_end",
                series_id=self.series_id,
                pgid=self.pgid,
                start_ticks=self.start,
                user_ticks=self.user,
                system_ticks=self.system,
            )
        )


def encode_job_info(job: Job, first: Process, started: datetime, first_seen: datetime | None) -> bytes:
    """The info row, from the member that was seen first."""
    identity = first.identity
    assert identity is not None
    slurm = identity.membership.slurm_job
    return encode_row(
        JobInfoRow(
            series_id=job.series_id,
            pgid=job.pgid,
            start_ticks=job.start,
            job_id=str(job.pgid if slurm is None else slurm),
            job_source="process_group" if slurm is None else "slurm",
            started=started,
            first_seen=first_seen,
            **identity.row_fields(),
        )
    )
