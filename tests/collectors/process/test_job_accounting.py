"""The rules of attribution, on made-up families: each tick once, to the right job, or flagged."""

import random

import pytest

from vmsonar.collectors.process.accounting import Accounting
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import CHANGED


class Family:
    """A table of processes that tests move by hand, the way the kernel would."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Process] = {}
        self.children: dict[int, set[Process]] = {}
        self.dead: set[int] = set()
        self.deaf: set[int] = set()
        self.again: dict[int, tuple[int, int, int]] = {}
        self.books = Accounting(self)

    def is_alive(self, process: Process) -> bool:
        return process.pid not in self.dead

    def look(self, process: Process) -> int:
        process.reaped = self.again.pop(process.pid, process.reaped)
        return CHANGED

    def ignores_children(self, process: Process) -> bool:
        return process.pid in self.deaf

    def add(self, pid: int, ppid: int, job: Job, used: int = 0) -> Process:
        process = Process(str(pid))
        process.ppid = process.known_ppid = ppid
        process.used = (used, 0, 0)
        process.start_ticks = pid
        job.join(process)
        self.by_pid[pid] = process
        self.children.setdefault(ppid, set()).add(process)
        return process

    def end(self, *processes: Process) -> set[Process]:
        self.dead |= {process.pid for process in processes}
        return set(processes)

    def settle(self, looked: list[Process], vanished: set[Process]) -> set[Process]:
        gone = self.books.settle(looked, vanished)
        for process in gone:
            del self.by_pid[process.pid]
            self.children[process.ppid].discard(process)
        return gone


@pytest.fixture
def family() -> Family:
    return Family()


def job(number: int) -> Job:
    return Job(number, number, str(number), is_shown=True)


def test_the_rest_of_a_childs_time_goes_to_the_childs_job(family: Family) -> None:
    shell_job, work_job = job(10), job(20)
    shell = family.add(10, 1, shell_job, used=3)
    worker = family.add(20, 10, work_job, used=50)
    family.settle([shell, worker], set())
    shell.reaped = (57, 0, 0)
    family.settle([shell], family.end(worker))
    assert (shell_job.user, work_job.user) == (3, 57)


def test_children_never_seen_belong_to_the_parents_job(family: Family) -> None:
    script_job = job(10)
    script = family.add(10, 1, script_job, used=1)
    family.settle([script], set())
    script.reaped = (40, 2, 0)
    family.settle([script], set())
    assert (script_job.user, script_job.system) == (41, 2)


def test_a_whole_branch_that_ends_is_settled_through_its_root(family: Family) -> None:
    top, shell_job, work_job = job(10), job(20), job(30)
    root = family.add(10, 1, top)
    shell = family.add(20, 10, shell_job, used=2)
    worker = family.add(30, 20, work_job, used=60)
    family.settle([root, shell, worker], set())
    root.reaped = (2 + 65, 0, 0)
    family.settle([root], family.end(shell, worker))
    assert (top.user, shell_job.user, work_job.user) == (0, 2, 65)
    assert not work_job.is_unattributed


def test_an_orphan_is_found_with_whoever_adopts_it(family: Family) -> None:
    init_job, top, work_job = job(1), job(10), job(20)
    init = family.add(1, 0, init_job)
    parent = family.add(10, 1, top, used=1)
    worker = family.add(20, 10, work_job, used=30)
    family.settle([init, parent, worker], set())
    init.reaped = (1 + 34, 0, 0)  # the parent ended without waiting; init reaped both
    family.settle([init], family.end(parent, worker))
    assert (init_job.user, work_job.user) == (0, 34)


def test_a_deaf_parent_flags_the_job(family: Family) -> None:
    deaf_job, work_job = job(10), job(20)
    parent = family.add(10, 1, deaf_job)
    worker = family.add(20, 10, work_job, used=30)
    idle = family.add(21, 10, work_job)
    family.settle([parent, worker, idle], set())
    family.deaf.add(10)
    family.settle([], family.end(worker))
    assert work_job.is_unattributed
    assert work_job.user == 30


def test_a_deaf_parent_is_also_noticed_for_a_child_that_had_used_nothing_yet(family: Family) -> None:
    work_job = job(20)
    family.add(10, 1, job(10))
    idle = family.add(20, 10, work_job)
    family.deaf.add(10)
    family.settle([], family.end(idle))
    assert work_job.is_unattributed


def test_a_child_reaped_between_two_reads_is_not_counted_twice(family: Family) -> None:
    """It was on the list and had been read; then its parent waited for it, and was read with a rise."""
    top = job(10)
    parent, child = family.add(10, 1, top), family.add(20, 10, top, used=50)
    other = family.add(21, 10, top, used=5)
    family.settle([parent, child, other], set())
    parent.reaped = (7, 0, 0)  # of the other child
    family.again[10] = (7 + 52, 0, 0)  # and, when read again, of this one too
    family.end(child)
    gone = family.settle([parent], family.end(other))
    assert gone == {child, other}
    assert top.user == 59


def test_one_whose_reaper_cannot_show_it_yet_is_left_for_the_next_sample(family: Family) -> None:
    top = job(10)
    parent, child = family.add(10, 1, top), family.add(20, 10, top, used=50)
    family.settle([parent, child], set())
    parent.reaped = (3, 0, 0)
    family.end(child)
    assert family.settle([parent], set()) == set()
    assert not top.is_unattributed
    parent.reaped = (3 + 50, 0, 0)
    assert family.settle([parent], {child}) == {child}
    assert top.user == 53


def test_two_busy_jobs_that_end_together_are_flagged(family: Family) -> None:
    shell_job, one_job, other_job = job(10), job(20), job(30)
    shell = family.add(10, 1, shell_job)
    one, other = family.add(20, 10, one_job, used=50), family.add(30, 10, other_job, used=50)
    family.settle([shell, one, other], set())
    shell.reaped = (150, 0, 0)
    family.settle([shell], family.end(one, other))
    assert (one_job.user, other_job.user, shell_job.user) == (50, 50, 0)
    assert one_job.is_unattributed
    assert other_job.is_unattributed


def test_a_sleeper_that_ends_beside_a_busy_one_makes_no_doubt(family: Family) -> None:
    one_job, other_job = job(20), job(30)
    shell = family.add(10, 1, job(10))
    busy, idle = family.add(20, 10, one_job, used=90), family.add(30, 10, other_job)
    family.settle([shell, busy, idle], set())
    shell.reaped = (120, 0, 0)
    family.settle([shell], family.end(busy, idle))
    assert (one_job.user, other_job.user) == (120, 0)
    assert not one_job.is_unattributed


def test_bytes_that_went_through_the_parents_counters_count_once(family: Family) -> None:
    shell_job, work_job = job(10), job(20)
    shell, worker = family.add(10, 1, shell_job), family.add(20, 10, work_job)
    shell.moved, worker.moved = (0, 100), (5, 1000)
    family.settle([shell, worker], set())
    shell.moved = (6, 100 + 1200)
    family.settle([shell], family.end(worker))
    assert (shell_job.write, work_job.write, work_job.read) == (100, 1200, 6)


@pytest.mark.parametrize("seed", range(40))
def test_no_tick_is_lost_or_counted_twice_whatever_ends_when(family: Family, seed: int) -> None:
    """One job, so that all is attributable: its total is what all members ever used."""
    chance = random.Random(seed)
    one_job = job(10)
    root = family.add(10, 1, one_job)
    truth = {10: 0}
    seen = {root}
    for step in range(60):
        living = [process for process in family.by_pid.values() if process.pid not in family.dead]
        if chance.random() < 0.5:
            pid = 100 + step
            seen.add(family.add(pid, chance.choice(living).pid, one_job))
            truth[pid] = 0
        looked = []
        for process in living:
            spent = chance.choice([0, 0, 1, 30])
            truth[process.pid] += spent
            process.used = (process.used[0] + spent, 0, 0)
            looked.append(process)
        vanished = set()
        leaves = [
            p
            for p in living
            if p is not root and not any(c.pid not in family.dead for c in family.children.get(p.pid, ()))
        ]
        for process in chance.sample(leaves, k=min(len(leaves), chance.choice([0, 0, 1, 2]))):
            tail = chance.choice([0, 2, 40])
            parent = family.by_pid[process.ppid]
            total = process.used[0] + process.reaped[0] + tail
            if process in looked:  # it is gone before it could be read: what it spent is in the tail
                looked.remove(process)
                process.used = process.counted
            truth[process.pid] += tail
            parent.reaped = (parent.reaped[0] + total, 0, 0)
            vanished |= family.end(process)
        family.settle(looked, vanished)
        assert not one_job.is_unattributed
    assert one_job.user == sum(truth.values())
