"""What is known of the lives and deaths between two samples; times are nanoseconds after boot."""

import os
from collections import Counter
from dataclasses import dataclass, field

from vmsonar.collectors.process.wire import Account

#: User ticks, kernel ticks, major faults.
Usage = tuple[int, int, int]
#: Bytes fetched from storage, bytes sent to storage.
Moved = tuple[int, int]

HERTZ = os.sysconf("SC_CLK_TCK")
#: Nanoseconds of a tick.
TICK = 10**9 // HERTZ
CPUS = os.cpu_count() or 1
# Nanoseconds that ending may take beside freeing memory.
_LEAVING = 2 * 10**6
# Ticks between the start of a process and the word of it.
_LATE = HERTZ // 5


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

    def add(self, other: "Unseen") -> None:
        self.exits += other.exits
        self.known += other.known
        self.open += other.open


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
    look: Look | None = None
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
    #: Groups it left: the group, CPU time when last seen there, CPU time when first seen elsewhere.
    moves: list[tuple[int, int, int]] = field(default_factory=list)
    unseen: Unseen = field(default_factory=Unseen)

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
    #: Who waits for it: its parent at the end.
    reaper: int
    #: As wait(2) gives it; None where the kernel did not tell.
    status: int | None
    #: All it ever used, where that could be read before it was waited for: own and waited-for.
    final: tuple[Usage, Usage] | None = None
    moved: Moved | None = None
    #: What the kernel's own books say of it.
    account: Account | None = None


@dataclass(slots=True)
class Reading:
    """What a process had of waited-for time and of I/O at a moment, and who was waited for until then."""

    pid: int
    start_ticks: int
    reaped: Usage
    moved: Moved | None
    deaths: list[Death]
    unseen: Unseen


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
    #: How many others ended well, or failed beyond what is told one by one, by name and whether they failed.
    counted: Counter[tuple[bytes, bool]] = field(default_factory=Counter)


def known_and_open(death: Death, seen: int = 0) -> tuple[int, int]:
    """Nanoseconds of CPU that are certain, and those it can have used besides, after it was last looked at."""
    if death.final is not None:
        ticks = sum(death.final[0][:2])
        return ticks * TICK, 0
    if (account := death.account) is not None:
        best = account.user_ns + account.system_ns
        # The exit itself is in no account: freeing a GiB takes 80 ms.
        leaving = _LEAVING + (account.peak_rss or 0) // 12
        return best, max(0, (account.cpu_high_ns or best) - best) + leaving
    life = death.life
    since = max(life.glanced or life.born, seen)
    return life.cpu, max(0, death.ended - since) * min(max(1, life.most_threads), CPUS)
