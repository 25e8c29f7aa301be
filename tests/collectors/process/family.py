"""A made-up family of processes and its jobs, for the rules of attribution."""

from vmsonar.collectors.process.accounting import Accounting, ended_meanwhile
from vmsonar.collectors.process.lives import TICK, Interval, Usage
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.reader import CHANGED

SECOND = 10**9


class Family:
    """A table of processes that tests move by hand, the way the kernel would."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Process] = {}
        self.children: dict[int, set[Process]] = {}
        self.dead: set[int] = set()
        self.deaf: set[int] = set()
        self.again: dict[int, tuple[int, int, int]] = {}
        self.strays: dict[int, Job] = {}
        self.now = 10**9
        self.books = Accounting(self, lambda uid: self.strays.setdefault(uid, job(0)))

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
        process.used = ticks(used)
        process.start_ticks = pid
        job.join(process)
        self.by_pid[pid] = process
        self.children.setdefault(ppid, set()).add(process)
        return process

    def end(self, *processes: Process) -> set[Process]:
        self.dead |= {process.pid for process in processes}
        return set(processes)

    def encode_again(self, process: Process) -> None:
        pass

    def settle(
        self, looked: list[Process], vanished: set[Process], interval: Interval | None = None
    ) -> set[Process]:
        self.now += 10 * SECOND
        late = ended_meanwhile(self, looked, vanished)  # type: ignore[arg-type]
        gone = self.books.settle(self.now, looked, vanished, late, interval or Interval(is_whole=True))
        for process in gone:
            del self.by_pid[process.pid]
            self.children[process.ppid].discard(process)
        return gone


def ticks(user: int, system: int = 0) -> Usage:
    return user * TICK, system * TICK, 0


def job(number: int, uid: int = 1000) -> Job:
    return Job(number, number, str(number), is_shown=True, uid=uid)


def bounds(one: Job) -> tuple[int, int, int]:
    """The least, the value, and the most, in ticks."""
    total = one.user + one.system
    return (total - one.low_gap) // TICK, total // TICK, -(-(total + one.high_gap) // TICK)


def is_doubtful(one: Job) -> bool:
    return bool(one.low_gap or one.high_gap)
