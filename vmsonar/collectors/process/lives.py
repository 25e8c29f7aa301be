"""What is known of the lives and deaths between two samples; times are nanoseconds after boot."""

import os
from collections import Counter
from dataclasses import dataclass, field
from time import CLOCK_BOOTTIME, clock_gettime_ns
from typing import NamedTuple

from vmsonar.collectors.process.wire import Account
from vmsonar.host.proc_pid import Sizes

#: Nanoseconds in user mode, nanoseconds in the kernel, major faults.
Usage = tuple[int, int, int]
#: Bytes fetched from storage, bytes sent to storage.
Moved = tuple[int, int]

HERTZ = os.sysconf("SC_CLK_TCK")
#: Nanoseconds of a tick.
TICK = 10**9 // HERTZ
CPUS = os.cpu_count() or 1
#: Ends of processes that no sample saw, told of one by one in one sample; the rest is counted.
MOST_ENDS = 500
# Nanoseconds that ending may take beside freeing memory.
_LEAVING = 2 * 10**6
# Between a reading of stat and of the clock: two halves of ticks, and a while on a busy processor.
_APART = 5 * TICK
# Ticks between the start of a process and the word of it: 30 on a machine with many more busy processes than cores.
_LATE = HERTZ


@dataclass(slots=True)
class Look:
    """What was read of a process while it lived, to describe it after its end."""

    uid: int
    name: bytes
    cmdline: bytes
    cgroup: bytes
    session: int
    terminal: int


@dataclass(slots=True)
class Unseen:
    """Children of one process, in its group, that ended without a sample of them."""

    exits: int = 0
    #: Nanoseconds of CPU that glances saw.
    known: int = 0
    #: Nanoseconds that they can have used after that.
    open: int = 0
    #: The most memory that a glance saw of one.
    memory: int = 0

    def count(self, life: int) -> None:
        """One more, which lived so long and was never looked at."""
        self.exits += 1
        self.open += life

    def add(self, other: "Unseen") -> None:
        self.exits += other.exits
        self.known += other.known
        self.open += other.open
        self.memory = max(self.memory, other.memory)


class Move(NamedTuple):
    """A process left a group, between two looks at it."""

    pgid: int
    #: CPU time when it was last seen there and first seen elsewhere, and when that was.
    cpu_then: int
    cpu_now: int
    last: int
    first: int


@dataclass(slots=True, eq=False)
class Life:
    """A process that was born while we listened, or that is losing threads; times are nanoseconds after boot."""

    pid: int
    #: 0 if it was born before.
    born: int
    parent: int
    pgid: int
    #: The group it was born into.
    first_pgid: int = 0
    threads: int = 1
    most_threads: int = 1
    start_ticks: int = -1
    name: bytes = b""
    #: CPU time at the last glance, and when that was.
    cpu: int = 0
    glanced: int = 0
    due: int = 0
    #: The most memory that it had until its last glance, by its own mark, the most at a glance, and its file pages.
    memory: int = 0
    memory_low: int = 0
    files: int = 0
    look: Look | None = None
    #: Its real user, where it was looked at or became another one's; and whether it did the latter.
    uid: int | None = None
    is_others: bool = False
    #: At its end: it descended from the command that is recorded, if only one is.
    is_member: bool = True
    #: A sample shows it.
    is_sampled: bool = False
    #: Children of other jobs ended below it.
    has_others: bool = False
    #: It ignores SIGCHLD: the kernel adds its children's time to nobody. None before it was asked.
    is_deaf: bool | None = None
    #: Status of the main thread, where others outlived it.
    main_status: int | None = None
    main_ended: bool = False
    same_status: bool = True
    #: When its group was last looked up, and the groups it left.
    grouped: int = 0
    moves: list[Move] = field(default_factory=list)
    unseen: Unseen = field(default_factory=Unseen)
    #: What it was called when a nameless child of it first ended.
    comm: bytes = b""

    @property
    def is_young(self) -> bool:
        """Whether no sample can have shown it yet."""
        return bool(self.born) and not self.is_sampled

    def note_sizes(self, sizes: Sizes) -> None:
        """What a glance saw of its memory."""
        self.files = sizes.files
        self.memory = max(self.memory, sizes.mark - sizes.files + sizes.huge)
        self.memory_low = max(self.memory_low, sizes.anonymous + sizes.shmem + sizes.huge)

    def move(self, pgid: int) -> None:
        """Notes the group that it was found in; 0 for one that is gone."""
        if not pgid:
            return
        now = clock_gettime_ns(CLOCK_BOOTTIME)
        # One that nobody looked at since its birth was given its group at once, as shells do.
        if pgid != self.pgid and self.grouped > self.born:
            self.moves.append(Move(self.pgid, self.cpu, self.cpu_now(), self.grouped, now))
        self.pgid, self.grouped = pgid, now

    def cpu_now(self) -> int:
        """CPU time; of one that is gone what was known last."""
        spent = cpu_clock(self.pid)
        return self.cpu if spent is None else spent

    def is_of(self, start_ticks: int) -> bool:
        """Whether a process that started then is this one, as far as that is known."""
        return not self.born or self.may_be(start_ticks)

    def may_be(self, start_ticks: int) -> bool:
        """Whether a process that started then can be this one; a busy kernel tells births a little late."""
        if self.start_ticks >= 0:
            return self.start_ticks == start_ticks
        return bool(self.born) and -2 <= self.born // TICK - start_ticks <= _LATE


@dataclass(slots=True, eq=False)
class Death:
    """The end of a process."""

    life: Life
    ended: int
    #: Who waits for it: its parent at the end, and that parent's life if it is known.
    reaper: int
    #: As wait(2) gives it; None where the kernel did not tell.
    status: int | None
    reaper_life: Life | None = None
    #: Who told that: connector or pidfd; None where neither did.
    source: str | None = None
    #: The name of its parent, where its own is not known.
    starter: bytes = b""
    #: All it ever used, where that could be read before it was waited for: own and waited-for.
    final: tuple[Usage, Usage] | None = None
    moved: Moved | None = None
    #: What the kernel's own books say of it.
    account: Account | None = None
    #: Where only the books told: it ended after this moment.
    after: int = 0


@dataclass(slots=True)
class Reading:
    """What a process had of waited-for time and of I/O at a moment, and who was waited for until then."""

    pid: int
    start_ticks: int
    reaped: Usage
    moved: Moved | None
    deaths: list[Death]
    unseen: Unseen
    moment: int


@dataclass(slots=True)
class Interval:
    """What happened since the last sample."""

    #: False if something may be missing.
    is_whole: bool
    #: Waited for, and in no reading.
    deaths: list[Death] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    #: By the parent.
    unseen: dict[int, Unseen] = field(default_factory=dict)
    #: Failures, and those who led a group.
    ends: list[Death] = field(default_factory=list)
    #: How many of these, and of those that were only counted for their number, no sample saw.
    unknown_ends: int = 0
    #: How many others ended well, or failed beyond what is told one by one: by name, failure, process group, and the
    #: name of who started them where their own is not known.
    counted: Counter[tuple[bytes, bool, int, bytes]] = field(default_factory=Counter)

    def has_event(self, death: Death, is_known: bool) -> bool:
        """Whether an end is told on its own; a storm of the unknown hides no end of a process that samples saw.

        Of one that is older than our listening and was waited for at once, samples know the group.
        """
        if death.status == 0 and death.life.pgid not in (death.life.pid, 0):
            return False
        self.unknown_ends += not is_known
        return is_known or self.unknown_ends <= MOST_ENDS

    def glanced(self) -> dict[int, int]:
        """Those with children that no sample saw, and the most memory that one of these had at a glance."""
        unseen = [*self.unseen.items(), *((one.pid, one.unseen) for one in self.readings)]
        pairs = sorted((some.memory, pid) for pid, some in unseen if some.exits)
        return {pid: memory for memory, pid in pairs}


def all_deaths(interval: Interval) -> list[Death]:
    """Of those that were waited for, whenever their parents were read."""
    return [*interval.deaths, *(death for reading in interval.readings for death in reading.deaths)]


def used(fields: list[bytes], user: int, system: int, major: int) -> Usage:
    """What some fields of stat say, which are cut to whole ticks."""
    return int(fields[user]) * TICK, int(fields[system]) * TICK, int(fields[major])


def cpu_clock(pid: int) -> int | None:
    """Nanoseconds that a process or zombie has run, all threads; None if there is none of that pid."""
    try:
        return clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return None


def exact(cut: Usage, clock: int | None) -> Usage:
    """A usage whose two halves were cut to ticks, with what the clock showed of their sum right afterwards."""
    if clock is None or not 0 <= clock - cut[0] - cut[1] <= _APART:
        return cut  # another process has the pid by now
    return clock - cut[1], cut[1], cut[2]


def known_and_open(death: Death, seen: int = 0) -> tuple[int, int]:
    """Nanoseconds of CPU that are certain, and those it can have used besides, after it was last looked at."""
    if death.final is not None:
        return sum(death.final[0][:2]), 0
    if (account := death.account) is not None:
        best = account.user_ns + account.system_ns
        # The exit itself is in no account: freeing a GiB takes 80 ms.
        leaving = _LEAVING + (account.peak_rss or 0) // 12
        return account.cpu_low_ns, max(best, account.cpu_high_ns or best) - account.cpu_low_ns + leaving
    life = death.life
    since = max(life.glanced or life.born, seen)
    return life.cpu, max(0, death.ended - since) * min(max(1, life.most_threads), CPUS)
