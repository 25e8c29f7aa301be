"""Adds up the threads of a process as they end, and makes its account when the last one has."""

from typing import NamedTuple

from vmsonar.collectors.process.wire import Account
from vmsonar.companion.taskstats import FORKED, LAST, SIGNALLED, Ending, Task

_US = 1000
_KIB = 1024
# Threads that are ended with their main thread are gone within this time, unless the machine is busy.
_TOGETHER_US = 20_000
# When a group began is known as well as records are fresh; one that began later by more is another process.
_SLACK_NS = 2_000_000_000


class Moment(NamedTuple):
    """When records were received; CLOCK_MONOTONIC, by which the kernel measures lives."""

    #: Nothing was left to receive then, and these came after it.
    after: int
    until: int
    #: To be added for CLOCK_BOOTTIME.
    offset: int
    #: The machine has not slept since.
    awake_since: int


class Cpu(NamedTuple):
    """CPU time of a task until its exit began: the scheduler's sum is as old as the last tick or switch."""

    low: int
    high: int | None
    best: int


class Used(NamedTuple):
    """What a process used, all threads together; the figures are in the order of `_figures`."""

    cpu: Cpu
    figures: list[int]
    threads: int
    is_whole: bool


def cpu_of(task: Task, tick: int) -> Cpu:
    """What a task can have used, given the length of a tick."""
    low = task.ran
    high = max(low, task.elapsed_us * _US - task.waited)
    if low:
        high = min(high, low + tick)
    if not task.sleeps:
        return Cpu(low, high, high)  # whoever never slept ran whenever it did not wait for a processor
    # Half of what may be missing, which is what it ran since the last switch or tick.
    stretch = (low + tick // 2) // (task.sleeps + task.preemptions + 1)
    return Cpu(low, high, min(high, low + min(tick, stretch) // 2))


class _Sums:
    """What the threads of one process used that have ended so far."""

    __slots__ = ("began", "doubt", "figures", "high", "leader", "leader_elapsed", "others_left", "threads")

    def __init__(self, began: int) -> None:
        #: The earliest moment at which it can have begun, as far as its records tell.
        self.began = began
        self.figures = [0] * 10
        #: How far the best figure and the upper bound lie above the scheduler's sum.
        self.doubt = 0
        self.high = 0
        self.threads = 0
        self.leader: Task | None = None
        self.leader_elapsed = 0
        #: A thread left by itself after the main thread had.
        self.others_left = False

    def add(self, task: Task, tgid: int, elapsed: int, tick: int) -> None:
        low, high, best = cpu_of(task, tick)
        self.figures = [a + b for a, b in zip(self.figures, _figures(task), strict=True)]
        self.doubt += best - low
        self.high += (low if high is None else high) - low
        self.threads += 1
        if task.pid == tgid:
            self.leader, self.leader_elapsed = task, elapsed
        elif self.leader is not None and not task.flags & SIGNALLED:
            self.others_left = True

    def status(self, last: Task, elapsed: int) -> int | None:
        """The wait status, where the main thread's own is it (exit_group(2), pthread_exit(3))."""
        leader = self.leader
        if leader is None:
            return None
        # It came last, or ended with the others by a signal or with a code, which only exit_group() gives it.
        if leader is last or leader.exit_code or leader.flags & SIGNALLED:
            return leader.exit_code
        # It returned 0 and took the others with it, or it left alone and the others decided later.
        is_together = not self.others_left and elapsed - self.leader_elapsed <= _TOGETHER_US
        return leader.exit_code if is_together else None


class ThreadGroups:
    """Running sums of the processes whose threads end one by one."""

    def __init__(self, tick: int, listening_since: int, most: int = 10_000) -> None:
        self._tick = tick
        self._most = most
        self._open: dict[int, _Sums] = {}
        self._whole_since = listening_since

    def lose(self, now: int) -> None:
        """Records were lost: no process that was alive before now is known as a whole."""
        self._whole_since = now

    def add(self, ending: Ending, moment: Moment) -> Account | None:
        """Takes a record; returns the account of a process that has ended with it."""
        task, tgid, elapsed, group_ran = ending
        if group_ran is None and (tgid is None or task.flags & LAST):
            return self._single(task, moment, is_process=tgid is not None or _is_leader(task))
        assert tgid is not None
        if elapsed is None:
            # Before Linux 5.19 the threads that ended earlier cannot be told from processes.
            sums = _Sums(0)
            sums.add(task, tgid, task.elapsed_us, self._tick)
            life = task.elapsed_us if task.pid == tgid else None
            return _group(ending, sums, moment, life, is_whole=False)
        sums = self._sums(tgid, moment.after - elapsed * _US)
        sums.add(task, tgid, elapsed, self._tick)
        if group_ran is None:
            return None
        del self._open[tgid]
        return _group(ending, sums, moment, elapsed, is_whole=sums.began > self._whole_since)

    def _sums(self, tgid: int, began: int) -> _Sums:
        sums = self._open.get(tgid)
        if sums is None or abs(sums.began - began) > _SLACK_NS:
            if len(self._open) >= self._most:
                oldest = self._open.pop(next(iter(self._open)))
                self._whole_since = max(self._whole_since, oldest.began + _SLACK_NS)
            sums = self._open[tgid] = _Sums(began)
        sums.began = max(sums.began, began)
        return sums

    def _single(self, task: Task, moment: Moment, is_process: bool) -> Account:
        used = Used(cpu_of(task, self._tick), _figures(task), threads=1, is_whole=True)
        status = task.exit_code if is_process else None
        return _account(task, task, moment, task.elapsed_us, status, used, is_process)


def _group(ending: Ending, sums: _Sums, moment: Moment, elapsed_us: int | None, *, is_whole: bool) -> Account:
    last, ran = ending.task, ending.group_ran or 0
    # Of threads that were not seen the kernel's sum has the time, and nothing says how old that was.
    cpu = Cpu(ran, ran + sums.high if is_whole else None, ran + sums.doubt)
    used = Used(cpu, sums.figures, sums.threads, is_whole)
    status = sums.status(last, elapsed_us or 0)
    return _account(last, sums.leader or last, moment, elapsed_us, status, used, True, ending.tgid)


def _account(
    last: Task,
    leader: Task,
    moment: Moment,
    elapsed_us: int | None,
    status: int | None,
    used: Used,
    is_process: bool,
    tgid: int | None = None,
) -> Account:
    user, system, waited, minor, major, read, written, cancelled, read_chars, write_chars = used.figures
    cpu = used.cpu
    # As the kernel itself divides the scheduler's sum by the tick's samples (cputime_adjust()).
    system_ns = cpu.best * system // (user + system) if system else 0
    elapsed = elapsed_us * _US if elapsed_us is not None else None
    if elapsed is not None and moment.after - elapsed < moment.awake_since:
        elapsed = None
    return Account(
        last.pid if tgid is None else tgid,
        last.ppid,
        last.uid,
        leader.name.partition(b"\0")[0].decode(errors="replace"),
        moment.after + moment.offset,
        moment.until + moment.offset,
        elapsed,
        status,
        cpu.best - system_ns,
        system_ns,
        cpu.low,
        cpu.high,
        waited,
        minor,
        major,
        last.peak_kib * _KIB or None,
        read,
        written,
        cancelled,
        read_chars,
        write_chars,
        used.threads,
        bool(leader.flags & FORKED),
        used.is_whole,
        is_process,
    )


def _is_leader(task: Task) -> bool:
    """Whether it certainly was no mere thread: only a main thread's record has a code or says that it was forked."""
    return bool(task.exit_code or task.flags & FORKED)


def _figures(task: Task) -> list[int]:
    return [
        task.user_us,
        task.system_us,
        task.waited,
        task.minor_faults,
        task.major_faults,
        task.read_bytes,
        task.write_bytes,
        task.cancelled_write_bytes,
        task.read_chars,
        task.write_chars,
    ]
