"""Brings the deaths that the kernel told together with the processes that samples saw, and with those that none saw."""

from collections.abc import Callable, Iterable

from vmsonar.collectors.process.accounting import ended_meanwhile
from vmsonar.collectors.process.accounts import Accounts
from vmsonar.collectors.process.books import Ledger
from vmsonar.collectors.process.identity import Identities
from vmsonar.collectors.process.jobs import JobTable
from vmsonar.collectors.process.lifeline import BRIEF, Lifeline
from vmsonar.collectors.process.lives import TICK, Death, Interval, Life
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import CHANGED
from vmsonar.collectors.process.shares import ticks
from vmsonar.collectors.process.table import ProcessTable

# Reapers are read again while more is reaped; a storm must not keep a sample waiting.
_ROUNDS = 4


class Departures:
    """Hears the lifeline at each sample."""

    def __init__(
        self,
        lifeline: Lifeline,
        accounts: Accounts,
        table: ProcessTable,
        jobs: JobTable,
        identities: Identities,
    ) -> None:
        self._lifeline = lifeline
        self._accounts = accounts
        self._table = table
        self._jobs = jobs
        self._identities = identities

    def hear(self, looked: list[Process], vanished: set[Process]) -> tuple[Interval, set[Process]]:
        """What ended since the last sample, and the processes that ended while this one is taken.

        The parents that waited for them are read again, and join `looked`, until what was read of all fits together.
        """
        interval = self._lifeline.take()
        late: set[Process] = set()
        deaths = all_deaths(interval)
        for _ in range(_ROUNDS):
            self._look_again({death.reaper for death in deaths}, looked)
            late |= ended_meanwhile(self._table, looked, vanished | late)
            deaths = self._lifeline.reaped_since()
            interval.deaths += deaths
            if not deaths:
                break
        return interval, late

    def _look_again(self, pids: set[int], looked: list[Process]) -> None:
        for pid in pids:
            reaper = self._table.by_pid.get(pid)
            if reaper is None or self._table.by_name.get(reaper.name) is not reaper:
                continue
            if self._table.look(reaper) == CHANGED and reaper not in looked:
                looked.append(reaper)

    def read_books(self, interval: Interval, vanished: set[Process]) -> bool:
        """Takes over what the kernel's own accounts say of all that ended; whether they are complete."""
        accounts, lost = self._accounts.take()
        if not accounts:
            return not lost
        ledger = Ledger(accounts)
        ledger.attach(all_deaths(interval))
        ledger.end(vanished)
        ended = {process.pid: process for process in vanished}
        ledger.credit_unseen(interval, lambda pid: ended.get(pid) or self._table.by_pid.get(pid))
        return not lost

    def attach(self, interval: Interval, vanished: set[Process]) -> list[Death]:
        """Tells each process that samples saw of its end; returns the deaths of those that none saw."""
        ended = {process.pid: process for process in vanished}
        unseen = []
        for death in all_deaths(interval):
            process = ended.get(death.life.pid)
            if process is None or not _is_of(death.life, process):
                process = self._table.by_pid.get(death.life.pid)
            if process is not None and _is_of(death.life, process):
                process.death = death
            elif death.life.born and not death.life.is_sampled:
                unseen.append(death)
        return unseen

    def place_unseen(
        self, deaths: Iterable[Death], place: Callable[[Process], None]
    ) -> tuple[set[Process], set[Process]]:
        """Stand-ins for processes that no sample saw: those that are in a job of their group, and all others."""
        members, guests = set(), set()
        for death in sorted(deaths, key=lambda death: death.life.born):
            process = _stand_in(death)
            job = self._jobs.find(process.pgid, process.kept)
            if job is not None and process.pid == process.pgid and job.start < process.start_ticks:
                job = None  # of an earlier process with this number
            if job is None and death.life.look is not None and death.ended - death.life.born >= BRIEF:
                process.identity = self._identities.of_look(death.life.look)
                place(process)
                members.add(process)
            else:
                process.job = job or self._job_of_parent(death)
                guests.add(process)
        for process in members | guests:  # when every job has its place
            if process.death is not None:
                note_moves(process, process.death.life, self._jobs)
        return members, guests

    def _job_of_parent(self, death: Death) -> Job | None:
        """The job of who started it, or of who waited for it."""
        job = self._jobs.find(death.life.first_pgid, death.life.is_member)
        if job is None:
            reaper = self._table.by_pid.get(death.reaper)
            job = None if reaper is None else reaper.job
        return job


def all_deaths(interval: Interval) -> list[Death]:
    """Of those that were waited for, whenever their parents were read."""
    return [*interval.deaths, *(death for reading in interval.readings for death in reading.deaths)]


def note_moves(process: Process, life: Life, jobs: JobTable) -> None:
    """What a process used in a group before it changed to another one, as glances saw it."""
    for pgid, last, first in life.moves:
        job = jobs.find(pgid, process.kept)
        if job is not None and job is not process.job:
            sure = max(0, ticks(last) - process.counted[0] - process.counted[1] - 1)
            process.left_jobs = [*(process.left_jobs or ()), (job, sure, ticks(first - last) + 1)]
    life.moves.clear()


def _stand_in(death: Death) -> Process:
    life = death.life
    process = Process(str(life.pid))
    process.start_ticks = life.start_ticks if life.start_ticks >= 0 else life.born // TICK
    process.ppid, process.pgid = death.reaper, life.pgid
    process.comm, process.threads, process.looks = life.name, 0, 1
    process.kept = life.is_member
    process.death = death
    return process


def _is_of(life: Life, process: Process) -> bool:
    """Whether a life is that of this process: its pid may have been used again."""
    return process.life is life if life.born and process.life is not None else life.is_of(process.start_ticks)
