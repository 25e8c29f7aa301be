"""Brings the deaths that the kernel told together with the processes that samples saw, and with those that none saw."""

import time
from collections.abc import Callable, Iterable

from vmsonar.collectors.process.accounting import ended_meanwhile
from vmsonar.collectors.process.accounts import Accounts
from vmsonar.collectors.process.books import Ledger
from vmsonar.collectors.process.glances import BRIEF
from vmsonar.collectors.process.identity import Identities, ProcessFilter
from vmsonar.collectors.process.jobs import JobTable
from vmsonar.collectors.process.lifeline import Lifeline
from vmsonar.collectors.process.lives import HERTZ, TICK, Death, Interval, Life, all_deaths
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import CHANGED
from vmsonar.collectors.process.table import ProcessTable
from vmsonar.collectors.process.wire import Account

# Reapers are read again while more is reaped; a storm must not keep a sample waiting.
_ROUNDS = 6
# Seconds for the kernel to tell of an end that we see already.
_PATIENCE = 0.002
# Ended processes whose accounts a slow companion may still send.
_MOST_UNTOLD = 1000


class Departures:
    """Hears the lifeline at each sample."""

    def __init__(
        self,
        lifeline: Lifeline,
        accounts: Accounts,
        table: ProcessTable,
        jobs: JobTable,
        identities: Identities,
        kept: ProcessFilter,
    ) -> None:
        self._lifeline = lifeline
        self._accounts = accounts
        self._table = table
        self._jobs = jobs
        self._identities = identities
        self._filter = kept
        self._ledger = Ledger(())
        #: Accounts of processes that are zombies still.
        self._set_aside: list[Account] = []
        #: Processes that are gone, and their jobs, while the companion owes their accounts.
        self._untold: dict[Process, Job | None] = {}

    def hear(
        self, looked: list[Process], vanished: set[Process], late: set[Process]
    ) -> tuple[Interval, set[Process]]:
        """What ended since the last sample, and the processes that ended while this one is taken, `late` among them.

        The parents that waited for them are read again, and join `looked`, until what was read of all fits together.
        """
        interval = self._lifeline.take()
        late = set(late)
        deaths = all_deaths(interval)
        reapers: set[int] = set()
        for left in reversed(range(_ROUNDS)):
            reapers.update(death.reaper for death in deaths)
            self._look_again(reapers, looked)
            late |= ended_meanwhile(self._table, looked, vanished | late)
            if not left:
                break  # what ends from now on belongs to the next sample
            deaths = self._lifeline.reaped_since()
            interval.deaths += deaths
            ended = ((process.pid, process.life) for process in vanished | late)
            if self._lifeline.is_behind(ended, reapers):
                time.sleep(_PATIENCE)
            elif not deaths:
                break
        return interval, late

    def _look_again(self, pids: set[int], looked: list[Process]) -> None:
        for pid in pids:
            reaper = self._table.by_pid.get(pid)
            if reaper is None or self._table.by_name.get(reaper.name) is not reaper:
                continue
            if self._table.look(reaper) == CHANGED and reaper not in looked:
                looked.append(reaper)

    def read_books(
        self, interval: Interval, vanished: set[Process], late: set[Process], is_last: bool
    ) -> tuple[bool, list[Process]]:
        """Takes over what the kernel's own accounts say of all that ended.

        Returns whether they are complete, and processes of earlier samples whose ends are told only now.
        """
        accounts, lost = self._accounts.take(is_last)
        self._ledger = Ledger((*self._set_aside, *accounts))
        heard = [process for process in self._untold if process.death is not None]
        self._ledger.attach(
            [*all_deaths(interval), *(process.death for process in heard if process.death is not None)]
        )
        self._ledger.end((*vanished, *late, *self._untold))
        told = []
        for process, job in self._untold.items():
            if _has_account(process):
                if process not in heard:
                    process.job = job  # it left it when it was gone
                    told.append(process)
                if process not in vanished and process not in late:
                    _credit_late(process, job)
        untold = {**self._untold, **{process: process.job for process in vanished | late}}
        untold = {process: job for process, job in untold.items() if not _has_account(process)}
        owed = [*untold.items()][-_MOST_UNTOLD:] if self._accounts.is_owing else []
        self._untold = dict(owed)
        return not lost, told

    def credit_unseen(self, interval: Interval, ended: set[Process]) -> None:
        """Credits what the accounts tell of processes that have no place of their own, when all others have theirs."""
        by_pid = {process.pid: process for process in ended}
        self._set_aside = self._ledger.set_aside(lambda account: self._is_zombie(account, by_pid))
        self._ledger.credit_unseen(
            interval,
            lambda pid: by_pid.get(pid) or self._table.by_pid.get(pid),
            is_one_command=self._lifeline.members is not None,
        )

    def _is_zombie(self, account: Account, ended: dict[int, Process]) -> bool:
        process = self._table.by_pid.get(account.pid)
        if process is not None and process.pid not in ended:
            return account.may_have_begun(process.start_ticks, HERTZ)
        return self._lifeline.is_unreaped(account.pid)

    def attach(self, interval: Interval, vanished: set[Process], late: set[Process]) -> list[Death]:
        """Tells each process that samples saw of its end, so that it is late at least.

        Returns the deaths of those that no sample saw.
        """
        known: dict[int, list[Process]] = {}
        for process in vanished | late:
            known.setdefault(process.pid, []).append(process)
        unseen: list[Death] = []
        for death in all_deaths(interval):
            pid = death.life.pid
            alive = self._table.by_pid.get(pid)
            for process in (*known.get(pid, ()), *(() if alive is None else (alive,))):
                if _is_of(death.life, process):
                    process.death = death
                    if process not in vanished:
                        late.add(process)  # a zombie until its parent, that may be gone, waited for it
                    break
            else:
                if death.life.born and not death.life.is_sampled:
                    unseen.append(death)
        return unseen

    def place_unseen(
        self, deaths: Iterable[Death], place: Callable[[Process], None], stray: Callable[[int], Job]
    ) -> tuple[set[Process], set[Process]]:
        """Stand-ins for processes that no sample saw: those that are in a job of their group, and all others.

        `stray` gives the job of a user's time that belongs to no group of theirs.
        """
        members, guests = set(), set()
        for death in sorted(deaths, key=lambda death: death.life.born):
            process = _stand_in(death)
            job = self._jobs.find(process.pgid, process.kept)
            if job is not None and process.pid == process.pgid and self._is_of_another(job, process, death):
                job = None
            look = death.life.look
            is_known = look is not None and death.ended - death.life.born >= BRIEF
            if look is not None and is_known and (job is None or job.uid not in (look.uid, None)):
                process.identity = self._identities.of_look(
                    look, process, self._table.by_pid.get(death.life.parent)
                )
                process.kept = process.kept and self._filter.keeps(process.identity)
                place(process)
                members.add(process)
            else:
                process.job, uid = job or self._job_of_parent(death), death.life.uid
                if (
                    uid is not None
                    and death.life.is_others
                    and process.kept
                    and (process.job is None or process.job.uid != uid)
                ):
                    process.job = stray(uid)
                if process.job is not None:
                    process.job.count_unseen(1)
                guests.add(process)
        for process in members | guests:  # when every job has its place
            if process.death is not None:
                note_moves(process, process.death.life, self._jobs)
        return members, guests

    def _is_of_another(self, job: Job, leader: Process, death: Death) -> bool:
        """Whether a job is of another group with the same number; it may be named after a younger member."""
        heir = self._table.by_pid.get(leader.pid)
        if heir is not None and heir.start_ticks == job.start:
            return True
        return job.start < leader.start_ticks or job.start * TICK > death.ended

    def _job_of_parent(self, death: Death) -> Job | None:
        """The job of who started it, or of who waited for it."""
        job = self._jobs.find(death.life.first_pgid, death.life.is_member)
        if job is None:
            reaper = self._table.by_pid.get(death.reaper)
            job = None if reaper is None else reaper.job
        return job


def _has_account(process: Process) -> bool:
    return process.death is not None and process.death.account is not None


def _credit_late(process: Process, job: Job | None) -> None:
    """The bytes of one that is gone; its time was in its parent's rise."""
    account = process.death.account if process.death is not None else None
    if job is not None and account is not None and account.is_whole and process.moved is None:
        process.moved = (account.read_bytes, account.write_bytes)
        job.credit_io(process.moved)


def note_moves(process: Process, life: Life, jobs: JobTable) -> None:
    """What a process used in a group before it changed to another one, as glances saw it."""
    for move in life.moves:
        job = jobs.find(move.pgid, process.kept)
        if job is not None and job is not process.job:
            sure = max(0, move.cpu_then - process.counted[0] - process.counted[1])
            process.left_jobs = [*(process.left_jobs or ()), (job, sure, move.cpu_now - move.cpu_then)]
            job.note_end(move.last, move.first)
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
