"""The jobs with living members, and jobs restored after a restart."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.read.reader import last_sample
from vmsonar_archive.records import JobInfoRow, JobRow, ProcessRow, Sample
from vmsonar_archive.records.ids import SeriesIds

from vmsonar.collectors.process.lives import TICK
from vmsonar.collectors.process.memory import restore_marks, restored, resume
from vmsonar.collectors.process.model import PF_EXITING, Job, Process, batch_of

#: Two numbers that name a process or a job during one boot: its id and when it started.
Key = tuple[int, int]

# Stands for the group in the table where a job holds what a user's jobs used together; no group has such a number.
_STRAY = -1


class _Infos(msgspec.Struct):
    job_info: list[JobInfoRow] = []


@dataclass(slots=True)
class Last:
    """The last sample, and the descriptions of its jobs, which stand earlier in its segment."""

    sample: Sample
    job_infos: dict[Key, JobInfoRow] = field(default_factory=dict)


def read_last(root: Path) -> Last | None:
    """What the archive says last; None for one without a sample, or no archive."""
    infos: dict[Key, JobInfoRow] = {}
    decode = msgspec.json.Decoder(_Infos).decode

    def see(line: bytes) -> None:
        if b'"job_info":[' in line:
            with suppress(msgspec.MsgspecError):
                infos.update({(info.pgid, info.start_ticks): info for info in decode(line).job_info})

    sample = last_sample(root, see)
    return None if sample is None else Last(sample, infos)


class JobTable:
    """Jobs by process group and user; what a filter leaves out forms jobs of its own that are not shown."""

    def __init__(self, ids: SeriesIds, led_since: Callable[[int], int | None] = lambda _: None) -> None:
        """`led_since` tells when the leader of a group began, in ticks, of one that no sample can show."""
        self._ids = ids
        self._led_since = led_since
        self._jobs: dict[tuple[int, int | None, bool], Job] = {}
        self._groups: dict[int, list[Job]] = {}
        self._retired: list[Job] = []
        self._ended: list[Job] = []

    def place(self, process: Process, boot: str) -> Job | None:
        """Puts a process into the job of its group; returns the job if it begins with it."""
        old, uid = process.job, _uid(process)
        if old is not None:
            same_user = uid is None or old.uid is None or uid == old.uid
            if same_user and old.pgid == process.pgid and old.is_shown == process.kept:
                return None
            self.leave(process, is_over=False)
        if uid is None:  # it ended before it could be asked: it is taken to be of the same user as its group
            uid = next(
                (one.uid for one in self._groups.get(process.pgid, ()) if one.is_shown == process.kept), None
            )
        key = (process.pgid, uid, process.kept)
        job = self._jobs.get(key)
        if job is not None and _is_earlier_group(job, process):
            job = self._begin(process, boot, uid)
            self._retired.append(job)
            job.join(process)
            return job
        began = job is None or _is_another_group(job, process)
        if job is None or began:
            if job is not None:
                self._retired.append(job)
                self._groups[job.pgid].remove(job)
            job = self._begin(process, boot, uid)
            self._enter(key, job)
        job.join(process)
        return job if began else None

    def _begin(self, process: Process, boot: str, uid: int | None) -> Job:
        start = process.start_ticks
        if process.pid != process.pgid and (since := self._led_since(process.pgid)) is not None:
            start = min(start, since)
        while any(other.start == start for other in self._groups.get(process.pgid, ())):
            start += 1  # two users of one group that began in one tick have two names
        series_id = self._ids.job(boot, process.pgid, start)
        return Job(process.pgid, start, series_id, process.kept, uid=uid)

    def _enter(self, key: tuple[int, int | None, bool], job: Job) -> None:
        self._jobs[key] = job
        self._groups.setdefault(job.pgid, []).append(job)

    def find(self, pgid: int, is_shown: bool = True) -> Job | None:
        """The job of a group that has members, or has just lost its last: of several the first that is recorded."""
        known = (*self._groups.get(pgid, ()), *(job for job in self._ended if job.pgid == pgid))
        return next((job for job in known if job.is_shown == is_shown and not job.is_stray), None)

    def stray(self, uid: int, boot: str, ticks: int, is_shown: bool = True) -> Job:
        """What several jobs of a user used together, and nobody can tell apart."""
        job = self._jobs.get((_STRAY, uid, True))
        if job is None:
            ticks += sum(other.is_stray for other in self._jobs.values())  # no two have one name
            job = Job(0, ticks, self._ids.job(boot, 0, ticks), is_shown, uid=uid, is_stray=True)
            job.memory.note_unseen(None)  # nobody knows what they held
            self._jobs[_STRAY, uid, True] = job
        return job

    def restore(self, last: Last) -> dict[Key, Process]:
        """Puts the jobs in as an earlier run left them and returns their processes, by pid and start."""
        for row in last.sample.job:
            restored = self._restored(row, last)
            if row.processes:
                self._enter((row.pgid, restored.uid, True), restored)
            elif restored.is_stray:
                self._jobs[_STRAY, restored.uid, True] = restored
        processes = [_process(row) for row in last.sample.process]
        for process in processes:
            process.over = (0, last.sample.boottime) if process.is_zombie else None
            job = self.find(process.pgid)
            if job is not None:
                process.job = job
                job.members.add(process)
        return {(process.pid, process.start_ticks): process for process in processes}

    def _restored(self, row: JobRow, last: Last) -> Job:
        info = last.job_infos.get((row.pgid, row.start_ticks))
        total = (row.user_ticks or 0) + (row.system_ticks or 0)
        return Job(
            row.pgid,
            row.start_ticks,
            self._ids.job(last.sample.boot, row.pgid, row.start_ticks),
            is_shown=True,
            seen=row.processes_seen or 0,
            unseen=row.processes_unseen or 0,
            user=(row.user_ticks or 0) * TICK,
            system=(row.system_ticks or 0) * TICK,
            major=row.major_faults or 0,
            read=row.read_bytes,
            write=row.write_bytes,
            low_gap=0 if row.cpu_ticks_low is None else (total - row.cpu_ticks_low) * TICK,
            high_gap=0 if row.cpu_ticks_high is None else (row.cpu_ticks_high - total) * TICK,
            io_low_gap=(_gap(row.read_bytes_low, row.read_bytes), _gap(row.write_bytes_low, row.write_bytes)),
            io_high_gap=(
                _gap(row.read_bytes, row.read_bytes_high),
                _gap(row.write_bytes, row.write_bytes_high),
            ),
            is_partial_io=bool(row.io_partial) and row.read_bytes_high is None,
            source=row.cpu_source,
            uid=info.user_id if info else None,
            is_stray=info is not None and info.job_source == "no_group",
            batch=batch_of(info) if info else None,
            info=encode_row(info) if info else b"",
            memory=restored(row),
            group={"memory_charged_peak": row.memory_charged_peak},
        )

    def leave(self, process: Process, is_over: bool = True) -> None:
        """Takes a process out of its job, which ends with its last member."""
        job = process.job
        if job is None:
            return
        process.job = None
        job.leave(process, is_over)
        if not job.members:
            self._end(job)

    def _end(self, job: Job) -> None:
        self._ended.append(job)
        key = (job.pgid, job.uid, job.is_shown)
        if self._jobs.get(key) is job:
            del self._jobs[key]
            self._groups[job.pgid].remove(job)
            if not self._groups[job.pgid]:
                del self._groups[job.pgid]
        elif job in self._retired:
            self._retired.remove(job)

    def shown(self) -> list[Job]:
        """Every job to be recorded, those that just ended included."""
        return [job for job in (*self._jobs.values(), *self._retired, *self._ended) if job.is_shown]

    def take_ended(self) -> list[Job]:
        """The jobs that ended since the last call, without those that gained a member again."""
        ended = [job for job in self._ended if job.is_shown and not job.members]
        self._ended = []
        return ended

    def end_empty(self) -> None:
        """Ends restored jobs that have no members left."""
        for job in list(self._jobs.values()):
            if not job.members and not job.is_stray:
                self._end(job)


def _uid(process: Process) -> int | None:
    return None if process.identity is None else process.identity.user_id


def _gap(low: int | None, high: int | None) -> int:
    return 0 if low is None or high is None else high - low


def oldest(processes: Iterable[Process]) -> list[Process]:
    """Sorted by start, so that a group is named after its first process."""
    return sorted(processes, key=lambda process: (process.start_ticks, process.pid))


def _is_another_group(job: Job, process: Process) -> bool:
    """A leader that started after the job's first member leads a new group with an old number."""
    return process.looks == 1 and process.pid == process.pgid and process.start_ticks > job.start


def _is_earlier_group(job: Job, process: Process) -> bool:
    """A leader that ended before the job began led another group with its number."""
    if process.death is None or process.pid != process.pgid or process.start_ticks >= job.start:
        return False
    is_used_again = any(member.pid == process.pid for member in job.members)
    return is_used_again or process.death.ended < job.start * TICK


def take_over(process: Process, earlier: Process) -> None:
    """Goes on with a process that an earlier run knew: only what it used since is new."""
    process.counted = earlier.counted
    process.counted_reaped = (*earlier.counted_reaped[:2], process.reaped[2])
    process.counted_moved = earlier.counted_moved
    process.child_moved = earlier.child_moved
    process.over = earlier.over
    resume(process, earlier)
    if earlier.job is not None:
        process.job = earlier.job
        process.job.members.discard(earlier)
        process.job.members.add(process)


def _process(row: ProcessRow) -> Process:
    process = Process(str(row.pid), start_ticks=row.start_ticks, ppid=row.ppid or 0, pgid=row.pgid or 0)
    process.flags, process.threads = PF_EXITING if row.state == "Z" else 0, row.threads or 0
    user, system = (row.user_ticks or 0) * TICK, (row.system_ticks or 0) * TICK
    # Each half was cut to whole ticks: on the average half a tick is missing.
    process.used = process.counted = (user + TICK // 2, system + TICK // 2, row.major_faults or 0)
    reaped = ((row.child_user_ticks or 0) * TICK, (row.child_system_ticks or 0) * TICK, 0)
    process.reaped = process.counted_reaped = reaped
    restore_marks(process, row)
    if row.read_bytes is not None and row.write_bytes is not None:
        process.moved = process.counted_moved = (row.read_bytes, row.write_bytes)
    if row.child_read_bytes is not None and row.child_write_bytes is not None:
        process.child_moved = (row.child_read_bytes, row.child_write_bytes)
    return process
