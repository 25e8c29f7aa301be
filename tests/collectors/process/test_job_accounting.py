"""The rules of attribution, on made-up families: each tick once, to the right job, or flagged."""

import random
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest
from msgspec.structs import replace
from vmsonar_archive.records.ids import SeriesIds

from tests.collectors.process.family import SECOND, Family, bounds, is_doubtful, job, ticks
from vmsonar.collectors.base import Tick
from vmsonar.collectors.process.books import Ledger
from vmsonar.collectors.process.departures import Departures
from vmsonar.collectors.process.exits import Exits
from vmsonar.collectors.process.jobs import JobTable
from vmsonar.collectors.process.lives import TICK, Death, Interval, Life, Reading, Unseen
from vmsonar.collectors.process.model import Process
from vmsonar.collectors.process.wire import Account


@pytest.fixture
def family() -> Family:
    return Family()


def test_the_rest_of_a_childs_time_goes_to_the_childs_job(family: Family) -> None:
    shell_job, work_job = job(10), job(20)
    shell = family.add(10, 1, shell_job, used=3)
    worker = family.add(20, 10, work_job, used=50)
    family.settle([shell, worker], set())
    shell.reaped = ticks(57)
    family.settle([shell], family.end(worker))
    assert (shell_job.user, work_job.user) == (3 * TICK, 57 * TICK)


def test_children_never_seen_belong_to_the_parents_job(family: Family) -> None:
    script_job = job(10)
    script = family.add(10, 1, script_job, used=1)
    family.settle([script], set())
    script.reaped = ticks(40, 2)
    family.settle([script], set())
    assert (script_job.user, script_job.system) == (41 * TICK, 2 * TICK)


def test_a_whole_branch_that_ends_is_settled_through_its_root(family: Family) -> None:
    top, shell_job, work_job = job(10), job(20), job(30)
    root = family.add(10, 1, top)
    shell = family.add(20, 10, shell_job, used=2)
    worker = family.add(30, 20, work_job, used=60)
    family.settle([root, shell, worker], set())
    root.reaped = ticks(2 + 65)
    family.settle([root], family.end(shell, worker))
    assert bounds(work_job) == (60, 60, 65)
    assert bounds(shell_job) == (2, 2, 7)
    assert bounds(top) == (0, 5, 5)  # whose the last ticks were cannot be told


def test_an_orphan_is_found_with_whoever_adopts_it(family: Family) -> None:
    init_job, top, work_job = job(1), job(10), job(20)
    init = family.add(1, 0, init_job)
    parent = family.add(10, 1, top, used=1)
    worker = family.add(20, 10, work_job, used=30)
    family.settle([init, parent, worker], set())
    init.reaped = ticks(1 + 34)  # the parent ended without waiting; init reaped both
    family.settle([init], family.end(parent, worker))
    assert (bounds(init_job), bounds(work_job)) == ((0, 4, 4), (30, 30, 34))


def test_a_deaf_parent_flags_the_job(family: Family) -> None:
    deaf_job, work_job = job(10), job(20)
    parent = family.add(10, 1, deaf_job)
    worker = family.add(20, 10, work_job, used=30)
    idle = family.add(21, 10, work_job)
    family.settle([parent, worker, idle], set())
    family.deaf.add(10)
    family.settle([], family.end(worker))
    assert is_doubtful(work_job)
    assert work_job.user == 30 * TICK


def test_a_deaf_parent_is_also_noticed_for_a_child_that_had_used_nothing_yet(family: Family) -> None:
    work_job = job(20)
    family.add(10, 1, job(10))
    idle = family.add(20, 10, work_job)
    family.deaf.add(10)
    family.settle([], family.end(idle))
    assert is_doubtful(work_job)


def test_a_child_reaped_between_two_reads_is_not_counted_twice(family: Family) -> None:
    """It was on the list and had been read; then its parent waited for it, and was read with a rise."""
    top = job(10)
    parent, child = family.add(10, 1, top), family.add(20, 10, top, used=50)
    other = family.add(21, 10, top, used=5)
    family.settle([parent, child, other], set())
    parent.reaped = ticks(7)  # of the other child
    family.again[10] = ticks(7 + 52)  # and, when read again, of this one too
    family.end(child)
    gone = family.settle([parent], family.end(other))
    assert gone == {child, other}
    assert top.user == 59 * TICK


def test_one_whose_reaper_cannot_show_it_yet_is_left_for_the_next_sample(family: Family) -> None:
    top = job(10)
    parent, child = family.add(10, 1, top), family.add(20, 10, top, used=50)
    family.settle([parent, child], set())
    parent.reaped = ticks(3)
    family.end(child)
    assert family.settle([parent], set()) == set()
    assert not is_doubtful(top)
    parent.reaped = ticks(3 + 50)
    assert family.settle([parent], {child}) == {child}
    assert top.user == 53 * TICK


def test_two_busy_jobs_that_end_together_have_bounds(family: Family) -> None:
    shell_job, one_job, other_job = job(10), job(20), job(30)
    shell = family.add(10, 1, shell_job)
    one, other = family.add(20, 10, one_job, used=50), family.add(30, 10, other_job, used=50)
    family.settle([shell, one, other], set())
    shell.reaped = ticks(150)
    family.settle([shell], family.end(one, other))
    assert bounds(one_job) == bounds(other_job) == (50, 50, 100)
    assert bounds(shell_job) == (0, 50, 50)


def test_what_two_jobs_of_another_user_used_stays_with_that_user(family: Family) -> None:
    root_job, one_job, other_job = job(10, uid=0), job(20), job(30)
    runner = family.add(10, 1, root_job)
    one, other = family.add(20, 10, one_job, used=50), family.add(30, 10, other_job, used=50)
    family.settle([runner, one, other], set())
    runner.reaped = ticks(150)
    family.settle([runner], family.end(one, other))
    assert bounds(root_job) == (0, 0, 0)
    assert bounds(family.strays[1000]) == (0, 50, 50)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_one_that_became_another_users_has_a_job_where_it_is_recorded(
    family: Family, is_recorded: bool
) -> None:
    life = Life(20, SECOND, 10, 20, uid=1000, is_others=True, is_member=is_recorded)
    departures = Departures(None, None, family, JobTable(None), None, None)  # type: ignore[arg-type]
    users: list[int] = []
    departures.place_unseen(
        [Death(life, 2 * SECOND, 1, 0)], lambda _: None, lambda uid: users.append(uid) or job(0)
    )
    assert users == ([1000] if is_recorded else [])


def test_what_jobs_used_that_are_not_recorded_makes_no_job_of_their_user(family: Family) -> None:
    root_job, one_job, other_job = job(10, uid=0), job(20), job(30)
    one_job.is_shown = False
    runner = family.add(10, 1, root_job)
    one, other = family.add(20, 10, one_job, used=50), family.add(30, 10, other_job, used=50)
    family.settle([runner, one, other], set())
    runner.reaped = ticks(150)
    family.settle([runner], family.end(one, other))
    assert not family.strays
    assert bounds(other_job) == (50, 50, 100)


def ends(process: Process, after: float, family: Family, status: int = 0, **more: object) -> Death:
    """The kernel said that it ended so many seconds after the last sample."""
    life = Life(process.pid, 0, process.ppid, process.job.pgid if process.job else 0)
    death = Death(life, family.now + int(after * SECOND), process.ppid, status, **more)  # type: ignore[arg-type]
    process.death = death
    return death


def test_nobody_has_more_than_its_life_after_the_last_look(family: Family) -> None:
    shell_job, one_job, other_job = job(10), job(20), job(30)
    shell = family.add(10, 1, shell_job)
    one, other = family.add(20, 10, one_job, used=90), family.add(30, 10, other_job, used=5)
    family.settle([shell, one, other], set())
    ends(one, 5, family)
    ends(other, 0.1, family)
    shell.reaped = ticks(95 + 400)
    family.settle([shell], family.end(one, other))
    assert bounds(one_job) == (90 + 388, 90 + 388, 490)
    assert bounds(other_job) == (5, 5, 17)
    assert bounds(shell_job) == (0, 12, 12)


def test_children_that_end_one_after_the_other_are_told_apart(family: Family) -> None:
    shell_job, one_job, other_job = job(10), job(20), job(30)
    shell = family.add(10, 1, shell_job)
    one, other = family.add(20, 10, one_job, used=10), family.add(30, 10, other_job, used=10)
    family.settle([shell, one, other], set())
    first, second = ends(one, 3, family), ends(other, 6, family)
    reading = Reading(10, shell.start_ticks, ticks(10 + 200), None, [first], Unseen(), 0)
    shell.reaped = ticks(210 + 10 + 500)
    interval = Interval(is_whole=True, deaths=[second], readings=[reading])
    family.settle([shell], family.end(one, other), interval)
    assert bounds(one_job) == (210, 210, 210)
    assert bounds(other_job) == (510, 510, 510)
    assert bounds(shell_job) == (0, 0, 0)


def test_final_figures_leave_no_doubt(family: Family) -> None:
    one_job, other_job = job(20), job(30)
    shell = family.add(10, 1, job(10))
    one, other = family.add(20, 10, one_job, used=10), family.add(30, 10, other_job, used=10)
    family.settle([shell, one, other], set())
    ends(one, 3, family, final=(ticks(70, 5), ticks(0)))
    ends(other, 3, family)
    shell.reaped = ticks(70 + 40, 5)
    family.settle([shell], family.end(one, other))
    assert (bounds(one_job), bounds(other_job)) == ((75, 75, 75), (40, 40, 40))


def test_short_children_of_the_parents_own_group_bound_what_others_can_have(family: Family) -> None:
    shell_job, sleep_job = job(10), job(20)
    shell, sleeper = family.add(10, 1, shell_job), family.add(20, 10, sleep_job)
    family.settle([shell, sleeper], set())
    ends(sleeper, 8, family)
    shell.reaped = ticks(600)
    interval = Interval(is_whole=True, unseen={10: Unseen(20, 0, 7 * SECOND)})
    family.settle([shell], family.end(sleeper), interval)
    assert bounds(sleep_job) == (0, 0, 600)
    assert bounds(shell_job) == (0, 600, 600)


def test_a_member_that_changed_its_group_leaves_its_time_behind(family: Family) -> None:
    old, new = job(10), job(20)
    process = family.add(10, 1, old, used=10)
    family.settle([process], set())
    new.join(process)
    process.left_jobs = [(old, 30 * TICK, 5 * TICK)]
    process.used = ticks(10 + 100)
    family.settle([process], set())
    assert bounds(old) == (40, 40, 45)
    assert bounds(new) == (65, 70, 70)


SAMPLES = Interval(is_whole=False)


def test_without_the_lifeline_who_was_busy_is_taken_to_have_gone_on(family: Family) -> None:
    shell_job, one_job, other_job = job(10), job(20), job(30)
    shell = family.add(10, 1, shell_job)
    busy, idle = family.add(20, 10, one_job, used=90), family.add(30, 10, other_job)
    family.settle([shell, busy, idle], set(), SAMPLES)
    shell.reaped = ticks(120)
    family.settle([shell], family.end(busy, idle), SAMPLES)
    assert bounds(one_job) == (90, 120, 120)
    assert bounds(other_job) == (0, 0, 30)
    assert bounds(shell_job) == (0, 0, 30)
    assert one_job.source == "samples"


def test_without_the_lifeline_nobody_knows_whose_unseen_children_were(family: Family) -> None:
    script_job = job(10)
    script = family.add(10, 1, script_job, used=1)
    family.settle([script], set(), SAMPLES)
    script.reaped = ticks(40, 2)
    family.settle([script], set(), SAMPLES)
    assert bounds(script_job) == (1, 43, 43)


def test_bytes_that_went_through_the_parents_counters_count_once(family: Family) -> None:
    shell_job, work_job = job(10), job(20)
    shell, worker = family.add(10, 1, shell_job), family.add(20, 10, work_job)
    shell.moved, worker.moved = (0, 100), (5, 100_000)
    family.settle([shell, worker], set())
    shell.moved = (6, 100 + 120_000)
    family.settle([shell], family.end(worker))
    assert (shell_job.write, work_job.write, work_job.read) == (100, 120_000, 6)
    assert (work_job.io_low_gap, shell_job.io_high_gap) == ((1, 20_000), (1, 20_000))


@pytest.mark.parametrize("moved", [(0, 120_000), None], ids=["read", "too late"])
def test_bytes_of_a_zombie_of_which_only_the_times_were_read_may_be_its_parents(
    family: Family, moved: tuple[int, int] | None
) -> None:
    shell_job, work_job = job(10), job(20)
    shell, worker = family.add(10, 1, shell_job), family.add(20, 10, work_job)
    shell.moved = (0, 100)
    family.settle([shell, worker], set())
    worker.death = Death(
        Life(20, 5 * SECOND, 10, 20), 15 * SECOND, 10, 0, final=(ticks(3), ticks(0)), moved=moved
    )
    shell.moved, shell.reaped = (0, 100 + 120_000), ticks(3)
    family.settle([shell], family.end(worker))
    is_known = moved is not None
    assert (work_job.write + shell_job.write) == 120_100
    assert bool(work_job.io_low_gap[1] or shell_job.io_low_gap[1]) is not is_known


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
            process.used = (process.used[0] + spent * TICK, 0, 0)
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
            total = process.used[0] + process.reaped[0] + tail * TICK
            if process in looked:  # it is gone before it could be read: what it spent is in the tail
                looked.remove(process)
                process.used = process.counted
            truth[process.pid] += tail
            parent.reaped = (parent.reaped[0] + total, 0, 0)
            vanished |= family.end(process)
        family.settle(looked, vanished)
        assert not is_doubtful(one_job)
    assert one_job.user == sum(truth.values()) * TICK


def account(pid: int, begun: float, ended: float, seconds: float, peak_rss: int = 0) -> Account:
    """What the books say of a child of process 10; moments are seconds."""
    spent, born, moment = int(seconds * SECOND), int(begun * SECOND), int(ended * SECOND)
    return Account(
        pid, 10, 1000, "child", moment, moment, moment - born, 0, spent, 0, spent, spent, 0, 0, 0,
        peak_rss, 4096, 8192, 0, 0, 0, 1, False, True, True,
    )  # fmt: skip


def test_the_books_of_unseen_children_are_divided_by_when_their_parent_was_read(family: Family) -> None:
    """What ended before a reading is in its rise: no other child that ended until then can have used it."""
    shell_job, one_job = job(10), job(20)
    shell, one = family.add(10, 1, shell_job), family.add(20, 10, one_job, used=4)
    family.settle([shell, one], set())
    death = ends(one, 3, family)
    early, late = account(30, 12, 12.1, 0.04), account(31, 15, 15.1, 0.05)
    ledger = Ledger([account(20, 0.2, 13.9, 0.04), early, late])
    reading = Reading(10, shell.start_ticks, ticks(4 + 4), None, [death], Unseen(1, 0, SECOND), 14 * SECOND)
    interval = Interval(is_whole=True, readings=[reading], unseen={10: Unseen(1, 0, SECOND)})
    ledger.attach([death])
    ledger.credit_unseen(interval, family.by_pid.get)
    assert (reading.unseen.known, interval.unseen[10].known) == (0.04 * SECOND, 0.05 * SECOND)
    shell.reaped = ticks(4 + 4 + 5)
    family.settle([shell], family.end(one), interval)
    assert bounds(one_job) == (4, 4, 4)
    assert bounds(shell_job) == (9, 9, 9)


def test_bytes_that_a_reading_of_the_parent_has_are_not_credited_by_the_books_again(family: Family) -> None:
    shell_job = job(10)
    family.add(10, 1, shell_job)
    reading = Reading(10, 10, ticks(0), (4096, 8192), [], Unseen(1), 14 * SECOND)
    interval = Interval(is_whole=True, readings=[reading])
    Ledger([account(30, 12, 12.1, 0.04), account(31, 15, 15.1, 0.05)]).credit_unseen(
        interval, family.by_pid.get
    )
    assert (shell_job.read, shell_job.write) == (4096, 8192)  # of the later one


class LateBooks:
    """A companion that answers one sample late."""

    is_owing = True

    def __init__(self, *told: list[Account]) -> None:
        self._told = list(told)

    def take(self, is_last: bool) -> tuple[list[Account], bool]:
        return self._told.pop(0), True


@pytest.mark.parametrize("is_postponed", [False, True])
def test_bytes_in_an_account_that_comes_late_are_its_own_jobs(family: Family, is_postponed: bool) -> None:
    """Its death was heard in time; whoever reads its files may not, and its parent's job did nothing."""
    parent_job, own_job = job(10), job(20)
    family.add(10, 1, parent_job)
    one = family.add(20, 10, own_job)
    death = Death(Life(20, 12 * SECOND, 10, 20), 13 * SECOND, 10, 0)
    one.death = death
    books = LateBooks([], [account(20, 12, 13, 0.04)])
    departures = Departures(None, books, family, JobTable(None), None, None)  # type: ignore[arg-type]
    interval = Interval(is_whole=True, deaths=[death])
    departures.read_books(interval, set() if is_postponed else {one}, {one} if is_postponed else set(), False)
    departures.read_books(Interval(is_whole=True), {one} if is_postponed else set(), set(), False)
    assert death.account is not None
    if is_postponed:
        family.settle([], {one})
    assert (own_job.read, own_job.write) == (4096, 8192)
    departures._ledger.credit_unseen(Interval(is_whole=True), family.by_pid.get)
    assert (parent_job.read, parent_job.write) == (None, None)


def test_of_one_command_the_books_tell_no_ends_of_strangers(family: Family) -> None:
    shell = family.add(10, 1, job(10))
    stranger = family.add(12, 1, job(12))
    failed = replace(account(30, 12, 12.1, 0.04), exit_status=256)
    orphan, of_stranger = replace(failed, pid=31, ppid=99), replace(failed, pid=32, ppid=12)
    interval = Interval(is_whole=False)
    stranger.kept = False
    ledger = Ledger([failed, orphan, of_stranger, account(12, 0.12, 14, 1)])
    ledger.end([stranger])
    ledger.credit_unseen(interval, family.by_pid.get, is_one_command=True)
    assert [death.life.pid for death in interval.ends] == [30]
    assert stranger.death is not None
    tick = Tick(datetime(2026, 11, 16, tzinfo=UTC), 15 * SECOND, "b", fresh=False)
    rows = Exits(tick, JobTable(SeriesIds(uuid4()))).tell(interval, [shell, stranger])
    assert [msgspec.json.decode(row)["pid"] for row in rows] == [30]


def test_an_end_that_was_heard_is_not_told_by_the_books_again(family: Family) -> None:
    """The lifeline was deaf for a part of the interval only."""
    family.add(10, 1, job(10)).pgid = 10
    heard = Death(Life(30, 12 * SECOND, 10, 10), 13 * SECOND, 10, 256)
    interval = Interval(is_whole=False, ends=[heard])
    interval.counted[b"", False, 10, b"sh"] = 3
    failed = [replace(account(pid, 12, 13, 0.04), exit_status=256) for pid in (30, 31)]
    Ledger([*failed, *(account(pid, 12, 13, 0) for pid in range(40, 44))]).credit_unseen(
        interval, family.by_pid.get
    )
    assert [death.life.pid for death in interval.ends] == [30, 31]
    assert dict(interval.counted) == {(b"child", False, 10, b""): 4}


def test_an_account_is_that_of_an_end_though_much_memory_was_freed_in_between() -> None:
    death = Death(Life(20, 10 * SECOND, 10, 20), 25 * SECOND, 10, 0)
    older = Death(Life(21, 0, 10, 21), 25 * SECOND, 10, 0)
    another = Death(Life(22, 23 * SECOND, 10, 22), 25 * SECOND, 10, 0)
    Ledger(
        [account(20, 10, 22.5, 1), account(21, 1, 22.5, 1, peak_rss=500 << 20), account(22, 1, 22.5, 1)]
    ).attach([death, older, another])
    assert death.account is not None
    assert older.account is not None
    assert another.account is None  # of an earlier process with that pid


@pytest.mark.parametrize(
    "is_led", [True, False], ids=["the number was used again", "a daemon outlives its parent"]
)
def test_a_leader_that_ended_in_the_tick_in_which_a_job_began(is_led: bool) -> None:
    jobs = JobTable(SeriesIds(uuid4()))
    first = Process("20" if is_led else "21")
    first.pgid, first.start_ticks, first.looks = 20, 500, 1
    later = jobs.place(first, "boot")
    leader = Process("20")
    leader.pgid, leader.start_ticks = 20, 250
    leader.death = Death(Life(20, 250 * TICK, 10, 20), 500 * TICK + 1, 10, 0)
    jobs.place(leader, "boot")
    assert later is not None
    assert (leader.job is later) is not is_led


def test_orphans_that_nobody_knew_may_be_of_any_job_that_lost_a_child(family: Family) -> None:
    """A daemon's parent ends, process 1 waits for the daemon: samples alone cannot say whose that was."""
    init_job, shell_job, quiet_job = job(1), job(10), job(20)
    init, shell, quiet = (
        family.add(1, 0, init_job),
        family.add(10, 1, shell_job),
        family.add(20, 1, quiet_job),
    )
    family.settle([init, shell, quiet], set())
    init.reaped = ticks(50)
    shell.child_faults += 70
    young_job = job(30)
    young = family.add(30, 1, young_job)
    young.looks, young.child_faults, young.child_faults_seen = 1, 70, 70
    family.settle([init, shell, quiet, young], set(), Interval(is_whole=False))
    assert bounds(shell_job) == bounds(young_job) == (0, 0, 50)
    assert bounds(init_job) == (0, 50, 50)
    assert bounds(quiet_job) == (0, 0, 0)
