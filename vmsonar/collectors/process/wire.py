"""What the accounts companion passes to the recorder: a row for each process that ended, and what was lost.

Times are nanoseconds; those of the clock are CLOCK_BOOTTIME. CPU time is that until the exit began: what the kernel
spends afterwards on freeing memory is in no record of taskstats, only in what the parent is told (wait4(2)).
"""

from collections.abc import Callable

import msgspec

from vmsonar.collectors.protocol import WireMessage, line_reader


class Account(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one process used from its birth to its end, by the kernel's own books (taskstats)."""

    #: The thread group, which is what everybody calls the process.
    pid: int
    ppid: int
    uid: int
    name: str
    #: It ended between these two moments.
    ended_after: int
    ended: int
    #: From its birth to its end; None where that is not known, or the machine may have slept meanwhile.
    elapsed: int | None
    #: As wait(2) would say it; None where a main thread ended before the others and took the status with it.
    exit_status: int | None
    #: The best figures, and the bounds of their sum: the kernel's last update is up to a tick old at the exit.
    user_ns: int
    system_ns: int
    cpu_low_ns: int
    cpu_high_ns: int | None
    #: How long its threads were ready to run and waited for a processor.
    waited_ns: int
    minor_faults: int
    major_faults: int
    #: Highest resident memory since its last exec; None for a kernel thread. Of a vfork that never ran a program
    #: of its own it is the parent's.
    peak_rss: int | None
    read_bytes: int
    write_bytes: int
    cancelled_write_bytes: int
    #: The kernel tells these two in whole KiB for each thread.
    read_chars: int
    write_chars: int
    threads: int
    #: Began as a copy of its parent and never became another program.
    is_forked: bool
    #: The record of every thread is in it; else faults and I/O are lower bounds, and only the CPU time is of all.
    is_whole: bool
    #: False where the kernel (before 5.19) does not say whether this was a process or one thread of one.
    is_process: bool

    def may_have_begun(self, start_ticks: int, hertz: int) -> bool:
        """Whether it can be the process of this id that began then, by /proc/PID/stat."""
        if self.elapsed is None:
            return True
        tick = 10**9 // hertz
        earliest, latest = self.ended_after - self.elapsed, self.ended - self.elapsed
        return earliest - tick <= start_ticks * tick <= latest


class AccountRows(WireMessage, kw_only=True, tag="accounts"):
    """Processes that ended."""

    rows: list[Account]


class Listening(WireMessage, kw_only=True, tag="listening"):
    """First of all: every end since then will be told."""

    since: int


class Lost(WireMessage, kw_only=True, tag="lost"):
    """Processes ended of which nothing is known."""

    since: int
    until: int
    detail: str


class Flush(WireMessage, kw_only=True, tag="flush"):
    """The recorder asks for all there is."""

    number: int


class Flushed(WireMessage, kw_only=True, tag="flushed"):
    """Whatever ended before that was asked has been told, unless the companion is behind."""

    number: int
    is_behind: bool = False


AnyMessage = AccountRows | Listening | Lost | Flushed

from_companion: Callable[[bytes], AnyMessage | None] = line_reader(AnyMessage)
from_recorder: Callable[[bytes], Flush | None] = line_reader(Flush)
