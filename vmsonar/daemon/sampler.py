"""Runs all collectors for one tick, none harming the others: a failure is a gap row, what may block has a thread."""

import errno
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vmsonar.collectors.base import Collector, Rows, Tick, Troubles
from vmsonar.daemon.log import Log
from vmsonar.host.clock import Clock

# How long a wait lasts before it is asked again whether we are in a hurry, and what a hurry leaves of it.
_SLICE = 0.05
_HURRIED = 0.2
# Seconds to wait for a collector to close.
_CLOSING = 1.5
# Rows of a collector that answered too late are of the past, except those that are said only once.
_SAID_ONCE = ("event", "gap", "container_info", "job_info", "process_info")


def no_hurry() -> bool:
    return False


class Collected(NamedTuple):
    """What became of one collector at one tick: rows, or the reason why there are none."""

    rows: Rows
    reason: str | None = None
    detail: str | None = None


def failure(error: Exception) -> Collected:
    """The failure as a stable reason and a detail."""
    if isinstance(error, PermissionError):
        reason = "permission"
    elif isinstance(error, FileNotFoundError):
        reason = "missing"
    elif isinstance(error, OSError) and error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
        reason = "unsupported"
    elif isinstance(error, OSError):
        reason = "io_error"
    else:
        reason = "error"
    # A sentence of our own needs no name of an error.
    own = (
        error.strerror
        if reason == "unsupported" and isinstance(error, OSError) and not error.filename
        else None
    )
    return Collected(Rows(), reason, (own or f"{type(error).__name__}: {error}")[:200])


def _collect(collector: Collector, tick: Tick) -> Collected:
    try:
        return Collected(collector.collect(tick))
    except Exception as error:
        return failure(error)


class Guard:
    """Runs one collector: right here, or on a thread of its own if it may block.

    One that may block is given up after its time limit; while it hangs it is not asked again, and there is never more
    than one thread for it.
    """

    def __init__(self, collector: Collector, interval: float, clock: Clock, log: Log) -> None:
        """None may take more than half of an interval."""
        self.collector = collector
        self._limit = min(collector.time_limit or 0.0, interval / 2)
        self._clock = clock
        self._log = log
        self._troubles = Troubles(collector.name, by_reason=True)
        self._failing: str | None = None
        self._tick: Tick | None = None
        self._began = 0
        self._outcome = Collected(Rows())
        self._late = Rows()
        self._given_up = False
        self._ended = False
        self._asked = threading.Semaphore(0)
        self._done = threading.Event()
        self._done.set()
        self._thread: threading.Thread | None = None

    def start(self, tick: Tick) -> None:
        """Begins collecting."""
        if not self._done.is_set():
            return
        if self._given_up:
            for kind in _SAID_ONCE:
                self._late.extend(kind, self._outcome.rows.by_kind.get(kind, []))
            self._given_up = False
        if self.collector.time_limit is None or not self.collector.may_block():
            self._outcome = _collect(self.collector, tick)
            return
        self._began = self._clock.monotonic_ns()
        self._tick = tick
        self._done.clear()
        self._asked.release()
        if self._thread is None:
            name = f"vmsonar-{self.collector.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def finish(self, hurry: Callable[[], bool]) -> Collected:
        """What came of it."""
        if self._given_up or not self._answered(hurry):
            self._given_up = True
            waited = (self._clock.monotonic_ns() - self._began) / 1e9
            rows, detail = self.collector.overdue(waited)
            return Collected(rows, "timeout", detail)
        late, self._late = self._late, Rows()
        self._outcome.rows.merge(late)
        return self._outcome

    def add_to(self, rows: Rows, tick: Tick, hurry: Callable[[], bool]) -> None:
        """Adds what was collected, and the gap row that is due for a failure."""
        outcome = self.finish(hurry)
        rows.merge(outcome.rows)
        if outcome.reason is None and self._failing is None:
            return
        if outcome.reason is None:
            self._log.info(f"collector {self.collector.name} works again")
        elif outcome.reason != self._failing:
            self._log.warning(f"collector {self.collector.name}: {outcome.reason}: {outcome.detail}")
        self._failing = outcome.reason
        troubles = [] if outcome.reason is None else [(outcome.reason, outcome.detail)]
        self._troubles.tell(troubles, tick, rows)

    def close(self) -> None:
        """Ends the thread, which closes the collector, as that may block too; one that hangs is left to itself."""
        self._ended = True
        if self._thread is None:
            self.collector.close()
            return
        self._asked.release()
        if self._done.is_set():
            self._thread.join(_CLOSING)

    def _answered(self, hurry: Callable[[], bool]) -> bool:
        limit = self._limit
        while not self._done.is_set():
            left = max(0.0, limit - (self._clock.monotonic_ns() - self._began) / 1e9)
            if not self._done.wait(min(left, _SLICE)):
                if left <= 0:
                    return False
                limit = min(self._limit, _HURRIED) if hurry() else self._limit
        return True

    def _run(self) -> None:
        while self._asked.acquire() and not self._ended:
            assert self._tick is not None
            self._outcome = _collect(self.collector, self._tick)
            self._done.set()
        self.collector.close()


class Sampler:
    """Runs the collectors in their order; those on threads run beside the others."""

    def __init__(self, collectors: Sequence[Collector], interval: float, clock: Clock, log: Log) -> None:
        self.collectors = collectors
        self._guards = [Guard(collector, interval, clock, log) for collector in collectors]

    def sample(self, tick: Tick, hurry: Callable[[], bool] = no_hurry) -> Rows:
        """The rows of one tick; never raises for what a collector does."""
        rows = Rows()
        for one in self._guards:
            one.start(tick)
        for one in self._guards:
            one.add_to(rows, tick, hurry)
        return rows

    def companions(self) -> list[int]:
        """The helper processes that run now."""
        pids = [collector.companion_pid for collector in self.collectors]
        return [pid for pid in pids if pid is not None]

    def close(self) -> None:
        for one in self._guards:
            one.close()
