"""What is remembered of processes and jobs between two samples."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import EventRow, JobInfoRow, JobRow

from vmsonar.collectors.process.footprint import Footprint
from vmsonar.collectors.process.lives import TICK, Death, Life, Moved, Usage
from vmsonar.collectors.process.memory import JobMemory
from vmsonar.host.cgroups import BatchStep, Membership

#: Flags of include/linux/sched.h.
PF_EXITING = 0x00000004
PF_KTHREAD = 0x00200000


NOT_OPEN = -1
DENIED = -2

#: Who tells what an ended process used, the best first.
SOURCES = ("accounts", "lifeline", "samples")


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
    #: What its user was told by: `process`, or `real_uid` for a setuid program.
    user_source: str = "process"
    #: The step of a batch job that it works for.
    batch: BatchStep | None = None
    #: What a Python has loaded.
    libraries: str | None = None

    def row_fields(self) -> dict[str, Any]:
        """What the info rows of a process and of its job have in common."""
        return {
            "session_id": self.session,
            "program": self.program,
            "command": self.command,
            "container_id": self.membership.container_id,
            "user_id": self.user_id,
            "user_name": self.user_name,
            "user_source": self.user_source if self.user_id is not None else None,
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
    #: Nanoseconds of children that were credited before its own counters, cut to ticks, showed them.
    owed: int = 0
    #: What of its own I/O came with children that it waited for.
    child_moved: Moved | None = None
    #: CPU time of its own between its last two looks, when the last one was, and bytes when last nobody ended below it.
    pace: int = 0
    paced: int = 0
    io_pace: int = 0
    #: Of one that was found gone and left for the next sample: when the sample before that was.
    last_seen: int = 0
    #: What the kernel told of its birth and its end.
    life: Life | None = None
    death: Death | None = None
    #: Where nobody told: it ended, or left its group, between these two moments.
    over: tuple[int, int] | None = None
    #: The jobs it left since it was last counted, nanoseconds it surely used there, and those it may have.
    left_jobs: "list[tuple[Job, int, int]] | None" = None
    #: The row, and the parts of it that come from stat and from io.
    head: bytes = b""
    tail: bytes = b"}"
    row: bytes = b""
    kept: bool = True
    identity: Identity | None = None
    job: "Job | None" = None

    def __post_init__(self) -> None:
        self.pid = int(self.name)

    def note_child_io(self, moved: Moved) -> None:
        """So much of its I/O was a child's."""
        before = self.child_moved or (0, 0)
        self.child_moved = (before[0] + moved[0], before[1] + moved[1])

    @property
    def is_zombie(self) -> bool:
        return bool(self.flags & PF_EXITING) and self.threads <= 1

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
    #: What the kernel counts for the control group that holds this job and nothing else, as fields of the row.
    group: dict[str, Any] = field(default_factory=dict)
    seen: int = 0
    #: Members that ended before a sample could show them, and that we heard of.
    unseen: int = 0
    user: int = 0
    system: int = 0
    major: int = 0
    read: int | None = None
    write: int | None = None
    is_partial_io: bool = False
    #: The books tell what ended members moved: only those that live now may be hidden.
    has_accounts: bool = False
    #: Nanoseconds in the totals that may be others', and in others' totals that may be its own; the same for bytes.
    low_gap: int = 0
    high_gap: int = 0
    io_low_gap: Moved = (0, 0)
    io_high_gap: Moved = (0, 0)
    #: What tells of members that ended: the weakest so far.
    source: str | None = None
    #: Whose the first member is, and between which moments the last one died or left: one where the kernel told it.
    uid: int | None = None
    ended: tuple[int, int] = (0, 0)
    #: It stands for what several jobs of a user used together; process 1 may be in group 0 as well.
    is_stray: bool = False
    #: The step of a batch job that an earlier run knew it for.
    batch: BatchStep | None = None
    is_dirty: bool = True
    row: bytes = b""
    info: bytes = b""

    def join(self, process: Process) -> None:
        """Takes a process in; its time so far is not taken with it."""
        process.job = self
        self.members.add(process)
        self.seen += 1
        self.is_dirty = True

    def leave(self, process: Process, is_over: bool = True) -> None:
        """Takes a process out that ended, or went to another job."""
        self.members.discard(process)
        low, high = process.over or (0, 0)
        if process.death is not None and is_over:
            low, high = process.death.after or process.death.ended, process.death.ended
        self.note_end(low, high)
        self.memory.leave(process)
        self.is_dirty = True

    def note_end(self, low: int, high: int) -> None:
        """A member died or left between these two moments: nobody ends the job before."""
        self.ended = max(self.ended[0], low), max(self.ended[1], high)

    def count_unseen(self, exits: int) -> None:
        """Members came and went without a sample of them."""
        self.unseen += exits
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

    def doubt(self, low: int = 0, high: int = 0) -> None:
        """So much of the totals may be others', and so much of others' may be its own."""
        self.low_gap += low
        self.high_gap += high
        self.is_dirty = True

    def doubt_io(self, low: Moved = (0, 0), high: Moved = (0, 0)) -> None:
        """The same for bytes."""
        self.io_low_gap = (self.io_low_gap[0] + low[0], self.io_low_gap[1] + low[1])
        self.io_high_gap = (self.io_high_gap[0] + high[0], self.io_high_gap[1] + high[1])
        self.is_dirty = True

    def note_source(self, source: str) -> None:
        """Remembers the weakest source of what is known about ended members."""
        if self.source is None or SOURCES.index(source) > SOURCES.index(self.source):
            self.source = source
            self.is_dirty = True

    def _is_io_hidden(self) -> bool:
        return self.is_partial_io or (
            self.has_accounts and any(member.moved is None for member in self.members)
        )

    def _bounds(self) -> dict[str, Any]:
        """The fields that say how sure the totals are."""
        fields: dict[str, Any] = {}
        total = self.user + self.system
        if self.low_gap or self.high_gap:
            fields["cpu_ticks_low"] = max(0, total - self.low_gap) // TICK
            fields["cpu_ticks_high"] = -(-(total + self.high_gap) // TICK)
        for name, index, known in (("read", 0, self.read), ("write", 1, self.write)):
            low, high = self.io_low_gap[index], self.io_high_gap[index]
            if low or high:
                fields[f"{name}_bytes_low"] = max(0, (known or 0) - low)
                fields[f"{name}_bytes_high"] = None if self._is_io_hidden() else (known or 0) + high
        return fields

    def _end(self) -> dict[str, Any]:
        """The fields that say when it ended, of one without members."""
        low, high = self.ended
        if self.members or not high:
            return {}
        return {"end_boottime": high} if low == high else {"end_boottime_low": low, "end_boottime_high": high}

    @property
    def _ticks(self) -> tuple[int, int]:
        """The totals in user mode and in the kernel, rounded and not cut: many small jobs lose nothing."""
        return (self.user + TICK // 2) // TICK, (self.system + TICK // 2) // TICK

    def encode(self) -> bytes:
        """The row, made anew only when something changed."""
        if not self.is_dirty:
            return self.row
        row = JobRow(
            pgid=self.pgid,
            start_ticks=self.start,
            processes=len(self.members),
            processes_seen=self.seen,
            processes_unseen=self.unseen or None,
            user_ticks=self._ticks[0],
            system_ticks=self._ticks[1],
            unattributed=bool(self.low_gap or self.high_gap) or None,
            cpu_source=self.source,
            major_faults=self.major,
            read_bytes=self.read,
            write_bytes=self.write,
            io_partial=self._is_io_hidden() or any(self.io_low_gap + self.io_high_gap) or None,
            **self._end(),
            **self._bounds(),
            **self.memory.row_fields(),
            **self.group,
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
                user_ticks=self._ticks[0],
                system_ticks=self._ticks[1],
            )
        )


def encode_job_info(
    job: Job, first: Process, started: datetime, first_seen: datetime | None, facts: dict[str, Any]
) -> bytes:
    """The info row, from the member that was seen first."""
    identity = first.identity
    assert identity is not None
    batch = identity.batch
    return encode_row(
        JobInfoRow(
            series_id=job.series_id,
            pgid=job.pgid,
            start_ticks=job.start,
            job_id=str(job.pgid) if batch is None else batch.job or batch.sluid,
            job_source="process_group" if batch is None else "slurm",
            batch_step=batch.step if batch else None,
            batch_task=batch.task if batch else None,
            batch_source=batch.source if batch else None,
            sluid=batch.sluid if batch else None,
            started=started,
            first_seen=first_seen,
            **facts,
            **identity.row_fields(),
        )
    )


def batch_of(info: JobInfoRow) -> BatchStep | None:
    """The step that a job was described with."""
    if info.job_source != "slurm":
        return None
    number = None if info.job_id == info.sluid else info.job_id
    return BatchStep(number, info.batch_step, info.sluid, info.batch_source or "cgroup", info.batch_task)


def encode_stray_info(job: Job, user_name: str | None, first_seen: datetime) -> bytes:
    """The info row of what a user's jobs used together and nobody can tell apart."""
    return encode_row(
        JobInfoRow(
            series_id=job.series_id,
            pgid=0,
            start_ticks=job.start,
            job_source="no_group",
            first_seen=first_seen,
            user_id=job.uid,
            user_name=user_name,
            user_source="process",
        )
    )
