"""Tells how processes and jobs ended: one event for each failure and each leader of a job, counts for the rest."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import EventRow

from vmsonar.collectors.base import Tick
from vmsonar.collectors.process.jobs import JobTable
from vmsonar.collectors.process.lives import TICK, Death, Interval
from vmsonar.collectors.process.model import Job, Process

#: Programs whose good ends are counted apart in one sample; all others are counted together.
MOST_PROGRAMS = 50
#: A thread that the kernel began for a purpose of its own can end with a negative number of errno.
_LARGEST_STATUS = 0xFFFF
_NO_STATUS = "the kernel ended a task of its own with a number that is no exit status"
_HEADLESS = "its main thread ended before the others, and only Linux 6.15 or later can tell how those ended"


class Exits:
    """Makes the events of one sample."""

    def __init__(self, tick: Tick, jobs: JobTable, keeps_user: Callable[[int], bool] | None = None) -> None:
        """`keeps_user` tells of whom anything is recorded, where filters leave somebody out."""
        self._tick = tick
        self._jobs = jobs
        self._keeps_user = keeps_user
        #: By name, by who started it where it has none, and whether they failed.
        self._counted: Counter[tuple[str | None, str | None, bool]] = Counter()
        self._rows: list[bytes] = []

    def tell(self, interval: Interval, processes: Iterable[Process]) -> list[bytes]:
        """The events of what ended; of those in `processes` more is known than the kernel's word."""
        by_death = {process.death: process for process in processes if process.death is not None}
        for death in interval.ends:
            self._tell_one(death, by_death.get(death))
        told = set(interval.ends)
        for death, process in by_death.items():
            if death is None or death in told or not death.life.is_member:
                continue
            if death.account is not None and not death.life.born:
                self._tell_one(death, process)  # nobody listened, but the books have it
        for (name, failed, pgid, starter), number in interval.counted.items():
            if self._keeps_user is None or self._is_recorded(pgid):
                self._counted[_text(name), _text(starter), failed] += number
        return [*self._rows, *self._counts()] if self._counted else self._rows

    def _tell_one(self, death: Death, process: Process | None) -> None:
        if self._keeps_user is not None and self._is_left_out(death, process, self._keeps_user):
            return
        job = self._led_by(death, process)
        if job is None and death.status == 0:
            name = _name(death, process)
            self._counted[name, None if name else _text(death.starter), False] += 1
            return
        row = self._row(death, process)
        if job is not None:
            row.subject, row.pgid, row.start_ticks, row.series_id = "job", job.pgid, job.start, job.series_id
        if job is None or job.is_shown:
            self._rows.append(encode_row(row))

    def _is_left_out(self, death: Death, process: Process | None, keeps_user: Callable[[int], bool]) -> bool:
        """Of one that was never read, its user tells, and those whom it and its parent lived among."""
        if process is not None and process.identity is not None:
            return not process.kept
        life, parent = death.life, death.reaper_life
        uid = life.uid if life.uid is not None or death.account is None else death.account.uid
        if uid is not None and not keeps_user(uid):
            return True
        groups = (_group(death, process), life.first_pgid, parent.pgid if parent is not None else 0)
        return not self._is_recorded(*groups)

    def _is_recorded(self, *groups: int) -> bool:
        """Whether the first of these groups that is known has a job that is shown."""
        for pgid in filter(None, groups):
            if self._jobs.find(pgid) is not None:
                return True
            if self._jobs.find(pgid, is_shown=False) is not None:
                return False
        return False

    def _led_by(self, death: Death, process: Process | None) -> Job | None:
        """The job that it led, if there is one of its own."""
        if death.life.pid != _group(death, process):
            return None
        if process is not None and process.job is not None:
            return process.job if process.job.pgid == process.pid else None
        return self._jobs.find(death.life.pgid)

    def _row(self, death: Death, process: Process | None) -> EventRow:
        life, status = death.life, death.status
        born = life.born or (process.start_ticks * TICK if process is not None else 0)
        if not born and death.account is not None and death.account.elapsed is not None:
            born = death.ended - death.account.elapsed
        identity = None if process is None else process.identity
        row = EventRow(
            event_type="exit",
            subject="process",
            happened=self._wall(death.ended),
            pid=life.pid,
            pgid=_group(death, process) or None,
            start_ticks=None if process is None else process.start_ticks,
            container_id=None if identity is None else identity.membership.container_id,
            program=_name(death, process),
            started_by=_text(death.starter),
            runtime=death.ended - born if born else None,
            cpu_time=_used(death),
        )
        if status is None:
            row.detail = _HEADLESS
            return row
        if status > _LARGEST_STATUS:
            row.detail = _NO_STATUS
            return row
        row.exit_source = death.source or "accounts"
        if os.WIFSIGNALED(status):
            row.exit_signal, row.core_dumped = os.WTERMSIG(status), os.WCOREDUMP(status) or None
        else:
            row.exit_code = os.WEXITSTATUS(status)
        return row

    def _counts(self) -> list[bytes]:
        """How many more ended, by program: well, or beyond the failures that are told one by one."""
        largest = self._counted.most_common(MOST_PROGRAMS)
        rest: Counter[tuple[str | None, str | None, bool]] = Counter()
        for (_, _, failed), number in self._counted.most_common()[MOST_PROGRAMS:]:
            rest[None, None, failed] += number
        rows = [*largest, *rest.items()]
        return [
            encode_row(
                EventRow(
                    event_type="exits_counted",
                    program=name,
                    started_by=starter,
                    exits=number,
                    exit_code=None if failed else 0,
                )
            )
            for (name, starter, failed), number in rows
        ]

    def _wall(self, boottime: int) -> datetime:
        return self._tick.time - timedelta(microseconds=(self._tick.boottime - boottime) // 1000)


def _used(death: Death) -> int | None:
    """CPU time at its end; what a sample saw before is not that."""
    if death.final is not None:
        return sum(death.final[0][:2])
    return None if death.account is None else death.account.user_ns + death.account.system_ns


def _group(death: Death, process: Process | None) -> int:
    """Its process group; of one that is older than our listening, that of its last sample."""
    return death.life.pgid or (0 if process is None else process.pgid)


def _name(death: Death, process: Process | None) -> str | None:
    """What was read after its end, else at the last sample: before exec(2) it had another name."""
    sampled = process.comm if process is not None and death.final is None else b""
    known = sampled or death.life.name or (process.comm if process is not None else b"")
    if not known and death.account is not None:
        return death.account.name or None
    return _text(known)


def _text(name: bytes) -> str | None:
    return name.decode("utf-8", "backslashreplace") or None
