"""Asks the kernel what the members of a job share, and notes whose memory nobody saw to the end.

Pss (proc_pid_smaps_rollup(5)) is a walk over all pages, so there is a budget for it. Two processes of one address space
(clone(2) with CLONE_VM, vfork) are known by their equal figures: a fork never has all file pages of its parent.
"""

import re
from collections.abc import Iterable, Mapping

from vmsonar.collectors.process.footprint import SMALL, Footprint
from vmsonar.collectors.process.memory import JobMemory
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import CHANGED
from vmsonar.collectors.process.sharing import copied_since, family
from vmsonar.collectors.process.table import ProcessTable
from vmsonar.collectors.process.wire import Account

#: Resident bytes that may be walked per second on the average, and at once; a GiB takes about 4 ms.
RATE = 128 << 20
BURST = 16 << 30
#: What one more process costs, in bytes walked.
_EACH = 16 << 20

#: Nanoseconds for which an answer is trusted if nothing much changed.
PATIENCE = 60 * 10**9

_ROLLUP = re.compile(rb"^(Pss_Anon|Pss_Shmem|Shared_Hugetlb|Private_Hugetlb):\s*(\d+) kB$", re.MULTILINE)
_SIZES = re.compile(rb"^(?:Vm|Rss|Hugetlb)\w+:.*$", re.MULTILINE)
#: A first look, and a second one should both have been growing.
_TWIN_LOOKS = 2


class MemoryReader:
    """Brings the memory of jobs up to date at the end of a sample."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._files = table.files
        self._machine = table.machine
        self._allowance = BURST
        self._filled = 0
        #: Whether the accounts tell the peak of everyone that ends: then nothing is unseen.
        self.has_accounts = False

    def refresh(self, jobs: Iterable[Job], now: int) -> None:
        """Makes the figures of the jobs that changed or whose answers are out of date."""
        for job in jobs:
            memory = job.memory
            is_owed = 0 < memory.owed_at <= now
            if job.is_dirty or is_owed:
                if (memory.is_stale or is_owed) and memory.may_share:
                    self._resolve(job, now)
                memory.settle(self._machine)
        self._machine.end_round()

    def note_ends(
        self, read: Iterable[Process], ended: Iterable[Process], glanced: Mapping[int, int] | None = None
    ) -> None:
        """Compares the faults of ended children with those seen: what nobody saw can have been a peak."""
        glanced = glanced or {}
        for child in ended:
            self._note_last(child)
        for pid, size in glanced.items():
            parent = self._table.by_pid.get(pid)
            if parent is not None and parent.job is not None:
                parent.job.memory.note_glance(size)
                parent.job.is_dirty = True
        unseen: dict[Process, int] = {}
        children: dict[Process, list[Process]] = {}
        for process in read:
            if process.child_faults != process.child_faults_seen:
                unseen[process] = process.child_faults - process.child_faults_seen
                process.child_faults_seen = process.child_faults
        if self.has_accounts:
            return
        gone = set(ended)
        for child in gone:
            reaper = self._reaper(child, gone)
            if reaper is not None:
                children.setdefault(reaper, []).append(child)
                unseen[reaper] = unseen.get(reaper, 0) - child.faults - child.child_faults_seen
            elif child.job is not None:
                child.job.memory.note_unseen(None)
        for reaper, faults in unseen.items():
            room = None if faults < 0 else self._machine.growth(faults)
            own = [reaper] if reaper not in children or reaper.pid in glanced else []
            for process in (*children.get(reaper, ()), *own):
                if process.job is not None:
                    # Of one that is new itself only its own job was told how much its children can have had.
                    is_told = reaper.looks > 1 or process.job is reaper.job
                    process.job.memory.note_unseen(room if is_told else None)
                    process.job.is_dirty = True

    def _note_last(self, child: Process) -> None:
        """Takes over what accounts and glances tell of the memory of one that ended."""
        if child.job is None or child.death is None:
            return
        memory, account, life = child.job.memory, child.death.account, child.death.life
        if account is not None and child.virtual:  # else it is a zombie, or no sample saw it
            self._close(child, account)
        elif account is not None and (account.peak_rss or 0) > child.mark:
            parent = self._table.by_pid.get(life.parent)
            is_kin = parent is not None and parent.job is child.job
            memory.note_account(account, parent if is_kin else None, child.files or life.files)
        memory.note_glance(life.unseen.memory)
        if is_unseen := not child.virtual:
            memory.note_glance(life.memory, life.memory_low)
        if account is None and (self.has_accounts or (is_unseen and (life.memory or not memory.peak))):
            memory.note_unseen(None)
        child.job.is_dirty = True

    def _close(self, process: Process, account: Account) -> None:
        """The last mark of one that samples saw; its page faults since then bound what it can have got."""
        mark = account.peak_rss or 0
        faults = account.minor_faults + account.major_faults - process.faults
        process.grown += self._machine.growth(faults) if account.is_whole else mark
        process.mark, process.is_marked, process.is_resized = mark, True, True
        if process.job is not None:
            process.job.weigh(process)

    def _reaper(self, child: Process, gone: set[Process]) -> Process | None:
        """Its next living ancestor, or process 1."""
        by_pid = self._table.by_pid
        parent, steps = by_pid.get(child.ppid), 0
        while parent is not None and parent in gone and steps < 64:
            parent, steps = by_pid.get(parent.ppid), steps + 1
        return by_pid.get(1) if parent is None or parent in gone else parent

    def _resolve(self, job: Job, now: int) -> None:
        memory = job.memory
        if memory.forked:
            self._find_twins(job)
        sharers = _sharers(job)
        if len(sharers) < 2:
            memory.owed_at = 0
        elif not self._is_due(memory, sharers, now):
            has_moved = memory.moves or any(_has_moved(member) for member in sharers)
            memory.owed_at = memory.asked + PATIENCE if has_moved else 0
        elif self._can_afford(sum([member.resident + _EACH for member in sharers]), now):
            self._ask(memory, sharers, now)
            memory.is_stale = job.is_dirty = True
        else:
            memory.owed_at = now + 1

    def _is_due(self, memory: JobMemory, sharers: list[Process], now: int) -> bool:
        if not memory.asked or now - memory.asked >= PATIENCE:
            return memory.moves > 0 or any(_has_moved(member) for member in sharers)
        if memory.moves * 20 > memory.asked_of:
            return True
        if any(member.pss_anonymous is None for member in sharers):
            return False  # denied; asked again when the minute is over
        return any(_has_moved_far(member) for member in sharers)

    def _ask(self, memory: JobMemory, sharers: list[Process], now: int) -> None:
        memory.asked, memory.asked_of = now, len(sharers)
        memory.moves = memory.departed = 0
        memory.owed_at = 0
        holders = max(1, sum([member.huge > 0 for member in sharers]))
        for member in sharers:
            member.pss_at = (member.anonymous, member.shmem, member.faults)
            text = self._files.smaps_rollup(member)
            if not text or b"\nPss_Anon:" not in text:
                # One that we may not read spoils the sum: the others would be read in vain.
                _forget_answers(sharers)
                return
            found = {name: int(kilobytes) * 1024 for name, kilobytes in _ROLLUP.findall(text)}
            member.pss_anonymous = found[b"Pss_Anon"]
            member.pss_shared = found.get(b"Pss_Shmem")
            private, common = found.get(b"Private_Hugetlb"), found.get(b"Shared_Hugetlb")
            member.own_huge = None if private is None or common is None else private + common // holders

    def _can_afford(self, cost: int, now: int) -> bool:
        """A family that is larger than the whole budget is asked when that is full, and paid off later."""
        gained = (now - self._filled) * RATE // 10**9 if self._filled else 0
        self._allowance = min(BURST, self._allowance + gained)
        self._filled = now
        if cost > self._allowance < BURST:
            return False
        self._allowance -= cost
        return True

    def _find_twins(self, job: Job) -> None:
        """Looks for forks that use the address space of their parent, and keeps the figures of both in step."""
        by_pid: dict[int, Process] = {}
        for member in job.members:
            if member.twin_looks < _TWIN_LOOKS and member.weighed[3] and member.twin is None:
                by_pid = by_pid or {one.pid: one for one in job.members}
                self._compare(member, by_pid.get(member.ppid), job.memory)
        if job.memory.has_twins:
            self._follow_twins(job)

    def _compare(self, fork: Process, parent: Process | None, memory: JobMemory) -> None:
        fork.twin_looks += 1
        if parent is None or self._files.statm(fork) != self._files.statm(parent):
            return
        sizes = [_SIZES.findall(self._files.status(process) or b"") for process in (fork, parent)]
        if sizes[0] and sizes[0] == sizes[1]:
            fork.twin = parent.twin or parent
            fork.twin.has_twins = True
            memory.has_twins = memory.is_stale = True

    def _follow_twins(self, job: Job) -> None:
        """The one that stands for all may sleep while another works: it is read again. Exec ends it."""
        for member in list(job.members):
            if member.twin is not None and not member.is_forked_copy:
                member.twin, job.memory.is_stale = None, True
            elif member.has_twins and self._table.look(member, ran=False) == CHANGED:
                job.weigh(member)


def _sharers(job: Job) -> list[Process]:
    """Those whose pages may be another's too, through a fork or a segment."""
    kin: set[Footprint] = set(family(job.members)) if job.memory.forked >= SMALL else set()
    if len(kin) < 2:
        kin = set()
    holders = [member for member in job.members if member.weighed[4] or member.weighed[6]]
    if len(holders) > 1:
        kin.update([member for member in holders if member.twin is None])
    return [member for member in job.members if member in kin]


def _has_moved(member: Footprint) -> bool:
    return member.pss_at != (member.anonymous, member.shmem, member.faults)


def _has_moved_far(member: Footprint) -> bool:
    """More than a twentieth of it may have changed since it was asked about."""
    anonymous, shmem, _ = member.pss_at
    moved = max(abs(member.anonymous - anonymous), abs(member.shmem - shmem), copied_since(member))
    return moved > max(anonymous + shmem, SMALL) // 20


def _forget_answers(members: Iterable[Footprint]) -> None:
    for member in members:
        member.pss_anonymous = member.pss_shared = member.own_huge = None
