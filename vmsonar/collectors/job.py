"""A job: a process group, with totals that outlive its members (setpgid(2), credentials(7))."""

from datetime import datetime

from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import EventRow, JobInfoRow, JobRow

from vmsonar.collectors.job_memory import is_candidate, resolve_sharing
from vmsonar.collectors.process_entry import Moved, Process, Usage


class Job:
    """Running totals of one process group, and the rows that show them."""

    __slots__ = (
        "forks",
        "info",
        "is_dirty",
        "is_partial_io",
        "is_shown",
        "is_unattributed",
        "major",
        "members",
        "pgid",
        "pss_asked",
        "pss_members",
        "read",
        "resident",
        "row",
        "seen",
        "series_id",
        "shared",
        "shared_peak",
        "start",
        "system",
        "threads",
        "user",
        "write",
    )

    def __init__(self, pgid: int, start: int, series_id: str, is_shown: bool) -> None:
        self.pgid = pgid
        self.start = start
        self.series_id = series_id
        #: False for the processes that a filter leaves out: they are counted, so that nobody else gets their time.
        self.is_shown = is_shown
        self.members: set[Process] = set()
        self.seen = 0
        self.threads = self.resident = self.shared = 0
        #: The most that one member has of shared memory; None when it must be found out anew.
        self.shared_peak: int | None = 0
        #: The members that may share much memory with another.
        self.forks: set[Process] = set()
        self.user = self.system = self.major = 0
        self.read: int | None = None
        self.write: int | None = None
        self.is_unattributed = False
        self.is_partial_io = False
        #: When the kernel was last asked what its forks share, and of how many.
        self.pss_asked = 0
        self.pss_members = 0
        self.is_dirty = True
        self.row = b""
        self.info = b""

    def join(self, process: Process) -> None:
        """Takes a process in; its time so far is not taken with it."""
        process.job = self
        self.members.add(process)
        self.seen += 1
        self.is_dirty = True

    def leave(self, process: Process) -> None:
        self.members.discard(process)
        self.forks.discard(process)
        self._exchange(process, (0, 0, 0))

    def weigh(self, process: Process) -> None:
        """Brings the sums up to date with a member that was read again."""
        weight = (process.threads, process.resident, process.shared or 0)
        if weight != process.weighed:
            self._exchange(process, weight)
            if is_candidate(process):
                self.forks.add(process)
            else:
                self.forks.discard(process)

    def _exchange(self, process: Process, weight: tuple[int, int, int]) -> None:
        before = process.weighed
        self.threads += weight[0] - before[0]
        self.resident += weight[1] - before[1]
        self.shared += weight[2] - before[2]
        if self.shared_peak is not None and weight[2] < before[2] == self.shared_peak:
            self.shared_peak = None
        elif self.shared_peak is not None and weight[2] > self.shared_peak:
            self.shared_peak = weight[2]
        process.weighed = weight
        self.is_dirty = True

    def memory(self) -> tuple[int, str]:
        """Anonymous memory of all members plus shared memory once, and how that was found out."""
        if self.shared_peak is None:
            self.shared_peak = max([member.weighed[2] for member in self.members], default=0)
        if not self.forks or len(self.members) == 1:
            return self.shared_peak + self.resident - self.shared, "sum"
        anonymous, source = resolve_sharing(self.members, self.forks)
        return self.shared_peak + anonymous, source

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
        if self.is_dirty:
            self.row = encode_row(self._as_row())
            self.is_dirty = False
        return self.row

    def _as_row(self) -> JobRow:
        memory, source = self.memory()
        return JobRow(
            pgid=self.pgid,
            start_ticks=self.start,
            processes=len(self.members),
            processes_seen=self.seen,
            threads=self.threads,
            user_ticks=self.user,
            system_ticks=self.system,
            unattributed=True if self.is_unattributed else None,
            major_faults=self.major,
            memory=memory,
            memory_source=source,
            resident=self.resident,
            read_bytes=self.read,
            write_bytes=self.write,
            io_partial=True if self.is_partial_io else None,
        )

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
            session_id=identity.session,
            program=identity.program,
            command=identity.command,
            container_id=identity.membership.container_id,
            user_id=identity.user_id,
            user_name=identity.user_name,
            user_source="process" if identity.user_id is not None else None,
        )
    )
