"""The jobs that have living members, and which one a process belongs to."""

from collections.abc import Iterable

from vmsonar_archive.ids import SeriesIds

from vmsonar.collectors.job import Job
from vmsonar.collectors.process_entry import Process


class JobTable:
    """Jobs by process group; what a filter leaves out forms jobs of its own that are not shown."""

    def __init__(self, ids: SeriesIds) -> None:
        self._ids = ids
        self._jobs: dict[tuple[int, bool], Job] = {}
        self._retired: list[Job] = []
        self._ended: list[Job] = []

    def place(self, process: Process, boot: str) -> Job | None:
        """Puts a process into the job of its group; returns the job if it begins with it."""
        old = process.job
        if old is not None and old.pgid == process.pgid and old.is_shown == process.kept:
            return None
        if old is not None:
            self.leave(process)
        key = (process.pgid, process.kept)
        job = self._jobs.get(key)
        began = job is None or _is_another_group(job, process)
        if job is None or began:
            if job is not None:
                self._retired.append(job)
            job = self._jobs[key] = self.make(process.pgid, process.start, boot, process.kept)
        job.join(process)
        return job if began else None

    def make(self, pgid: int, start: int, boot: str, is_shown: bool) -> Job:
        return Job(pgid, start, self._ids.job(boot, pgid, start), is_shown)

    def restore(self, job: Job) -> None:
        """Puts in a job as an earlier run of the daemon saw it last."""
        self._jobs[job.pgid, job.is_shown] = job

    def leave(self, process: Process) -> None:
        """Takes a process out of its job, which ends with its last member."""
        job = process.job
        if job is None:
            return
        process.job = None
        job.leave(process)
        if not job.members:
            self._end(job)

    def _end(self, job: Job) -> None:
        self._ended.append(job)
        key = (job.pgid, job.is_shown)
        if self._jobs.get(key) is job:
            del self._jobs[key]
        elif job in self._retired:
            self._retired.remove(job)

    def shown(self) -> list[Job]:
        """Every job to be recorded, those that just ended included."""
        return [
            job for jobs in (self._jobs.values(), self._retired, self._ended) for job in jobs if job.is_shown
        ]

    def take_ended(self) -> list[Job]:
        """The jobs that ended since this was last asked; a group that got a member again did not."""
        ended = [job for job in self._ended if job.is_shown and not job.members]
        self._ended = []
        return ended

    def end_empty(self) -> None:
        """Ends the jobs that were restored but have nobody any more."""
        for job in [job for job in self._jobs.values() if not job.members]:
            self._end(job)


def oldest(processes: Iterable[Process]) -> list[Process]:
    """In the order in which they started, so that a group is named after its first."""
    return sorted(processes, key=lambda process: (process.start, process.pid))


def _is_another_group(job: Job, process: Process) -> bool:
    """A leader that started after the job's first member leads a new group with an old number."""
    return process.looks == 1 and process.pid == process.pgid and process.start > job.start
