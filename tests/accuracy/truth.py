"""What really happened: the control groups' CPU time and the actors' own words, put together per job and per user."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.accuracy.oracle import usage

#: Nanoseconds: who leaves its parent's group sooner than this was never meant to be in it.
STAY = 10**9

_NAMES = re.compile(r"\bjob (\S+)")


def accounts_in(plan: str) -> list[str]:
    """The accounts that a plan or a script names."""
    return list(dict.fromkeys(_NAMES.findall(plan)))


@dataclass
class Account:
    """One control group: a job, or the part of it that belongs to another user."""

    name: str
    pgid: int
    start: int
    leads: bool
    uid: int
    parent: str
    begun: int
    ended: int = 0
    #: Its leader told its end; the first of all was seen to be gone, its memory freed, at the latest then.
    is_over: bool = False
    gone: int = 0
    #: False for one that became another program, which ends when it likes.
    is_told: bool = True
    #: When the last process left its group for another one.
    left: int = 0
    cpu: int = 0
    read: int = 0
    written: int = 0


@dataclass
class TrueJob:
    """One process group, as it was: nanoseconds, bytes, and ticks after boot."""

    name: str
    pgid: int
    start: int
    uid: int
    parent: str | None
    begun: int
    ended: int
    cpu: int = 0
    read: int = 0
    written: int = 0
    gone: int = 0
    is_told: bool = True
    #: Its group began with it; else with a program that is no actor.
    leads: bool = True
    names: list[str] = field(default_factory=list)

    @property
    def lived(self) -> float:
        """Seconds from the birth of its leader to the end of its last member."""
        return self.ended / 1e9 - self.start / 100

    @property
    def lived_at_most(self) -> float:
        return max(self.ended, self.gone) / 1e9 - self.start / 100

    def add(self, account: Account) -> None:
        self.cpu += account.cpu
        self.read += account.read
        self.written += account.written
        self.is_told = self.is_told and account.is_told
        self.ended = max(self.ended, account.ended, account.left)
        self.gone = max(self.gone, account.gone)
        self.names.append(account.name)


@dataclass
class Truth:
    """All jobs of one workload, and the CPU time of each user."""

    jobs: dict[str, TrueJob]
    users: dict[int, int]

    def by_job(self, name: str) -> TrueJob:
        return next(job for job in self.jobs.values() if name in job.names)


def read_truth(log: Path, groups: Path, ended: int, gone: dict[str, int]) -> Truth:
    """Reads the log of a workload whose root ended then, and its control groups; `gone` tells when some were empty."""
    accounts = _accounts(log.read_text().splitlines())
    for account in accounts.values():
        account.cpu = usage(groups / account.name)
        account.gone = gone.get(account.name, 0)
        if account.parent == "-":
            account.gone = max(account.gone, ended)
            account.ended = account.ended if account.is_over else max(account.ended, ended)
    users: dict[int, int] = {}
    for account in accounts.values():
        if not account.ended:
            account.ended = max([account.begun, *_ends_near(account, list(accounts.values()))])
            account.is_told = False
        users[account.uid] = users.get(account.uid, 0) + account.cpu
    return Truth(_jobs(list(accounts.values())), users)


def _ends_near(account: Account, others: list[Account]) -> list[int]:
    """When one ended that told no end: it went on under another name in its group, or became another program.

    A program waited for those it started.
    """
    same = [other.ended for other in others if other.pgid == account.pgid and other.ended]
    return same or [other.ended for other in others if other.parent == account.name]


def _accounts(lines: list[str]) -> dict[str, Account]:
    found: dict[str, Account] = {}
    for line in lines:
        what, name, pid, moment, *rest = line.split()
        if what == "job":
            pgid, start, uid, parent = int(rest[0]), int(rest[1]), int(rest[2]), rest[3]
            if name in found and found[name].pgid != pgid:
                raise ValueError(f"account {name} is of the groups {found[name].pgid} and {pgid}")
            if name not in found:
                leads = int(pid) == pgid
                found[name] = Account(name, pgid, start, leads, uid, parent, int(moment))
            if parent in found and found[parent].pgid != pgid and int(rest[4]) - start * 10**7 > STAY:
                found[parent].left = max(found[parent].left, int(rest[4]))
            continue
        account = found[name]
        account.ended = max(account.ended, int(moment))
        account.is_over = account.is_over or (what == "end" and int(pid) == account.pgid)
        account.read += int(rest[0]) if what == "read" else 0
        account.written += int(rest[0]) if what == "write" else 0
    return found


def _jobs(accounts: list[Account]) -> dict[str, TrueJob]:
    """Accounts of the same group are one job; a group with a later leader of the same number is another."""
    jobs: dict[str, TrueJob] = {}
    for one in sorted(accounts, key=lambda account: (not account.leads, account.begun)):
        same = [job for job in jobs.values() if job.pgid == one.pgid and job.start <= one.start]
        if one.leads and not any(job.start == one.start for job in same):
            same = []
        job = max(same, key=lambda job: job.start) if same else None
        if job is None:
            parent = one.parent if one.parent != "-" else None
            job = TrueJob(
                one.name, one.pgid, one.start, one.uid, parent, one.begun, one.ended, leads=one.leads
            )
            jobs[one.name] = job
        job.add(one)
    return jobs
