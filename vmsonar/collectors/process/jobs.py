"""The jobs with living members, and what their forks still share (Pss_Anon of proc_pid_smaps_rollup(5))."""

import re
from collections.abc import Callable, Iterable

from vmsonar_archive.records.ids import SeriesIds

from vmsonar.collectors.process.model import SMALL, Job, Process, family


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
        """The jobs that ended since the last call, without those that gained a member again."""
        ended = [job for job in self._ended if job.is_shown and not job.members]
        self._ended = []
        return ended

    def end_empty(self) -> None:
        """Ends restored jobs that have no members left."""
        for job in [job for job in self._jobs.values() if not job.members]:
            self._end(job)


def oldest(processes: Iterable[Process]) -> list[Process]:
    """Sorted by start, so that a group is named after its first process."""
    return sorted(processes, key=lambda process: (process.start, process.pid))


def _is_another_group(job: Job, process: Process) -> bool:
    """A leader that started after the job's first member leads a new group with an old number."""
    return process.looks == 1 and process.pid == process.pgid and process.start > job.start


#: Resident bytes that may be walked per second on the average, and at once; a GiB takes about 4 ms.
RATE = 128 << 20
BURST = 4 << 30

#: Nanoseconds for which an answer is trusted if nothing else changed.
PATIENCE = 60 * 10**9

_PSS_ANON = re.compile(rb"^Pss_Anon:\s*(\d+) kB$", re.MULTILINE)


class PssReader:
    """Keeps the shares of forked members up to date."""

    def __init__(self, smaps_rollup: Callable[[Process], bytes | None]) -> None:
        self._read = smaps_rollup
        self._allowance = BURST
        self._filled = 0

    def refresh(self, job: Job, now: int) -> None:
        """Reads the members that may share memory, if that is due and can be afforded."""
        if not job.forks or len(job.members) == 1:
            return
        members = family(job.members, job.forks)
        if not self._is_due(job, members, now):
            return
        cost = sum([member.resident for member in members])
        if not self._can_afford(cost, now):
            return
        job.pss_asked = now
        job.pss_members = len(members)
        for member in members:
            text = self._read(member)
            match = _PSS_ANON.search(text) if text else None
            member.pss_private = int(match[1]) * 1024 if match else None
            member.pss_at = member.anonymous
            if match is None:
                break  # one that we may not read spoils the sum: the others would be read in vain

    def _is_due(self, job: Job, members: list[Process], now: int) -> bool:
        if now - job.pss_asked >= PATIENCE or len(members) != job.pss_members:
            return True
        if any(member.pss_private is None for member in members):
            return False  # denied; asked again when the minute is over
        return any(
            abs(member.anonymous - member.pss_at) > max(member.pss_at, SMALL) // 20 for member in members
        )

    def _can_afford(self, cost: int, now: int) -> bool:
        gained = (now - self._filled) * RATE // 10**9 if self._filled else 0
        self._allowance = min(BURST, self._allowance + gained)
        self._filled = now
        if cost > self._allowance:
            return False
        self._allowance -= cost
        return True
