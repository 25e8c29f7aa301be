"""Keeps one collector from harming the others: failures become values, and what may block runs apart."""

import errno
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from vmsonar.clock import Clock
from vmsonar.collectors.base import Collector, Rows, Tick

# How long a wait lasts before it is asked again whether we are in a hurry, and what a hurry leaves of it.
_SLICE = 0.05
_HURRIED = 0.2
# Rows of a collector that answered too late are of the past, except those that are said only once.
_SAID_ONCE = ("event", "gap", "container_info", "job_info", "process_info")


class Outcome(NamedTuple):
    """What became of one collector at one tick: rows, or the reason why there are none."""

    rows: Rows
    reason: str | None = None
    detail: str | None = None


def failure(error: Exception) -> Outcome:
    """An exception as a stable word and a detail."""
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
    return Outcome(Rows(), reason, f"{type(error).__name__}: {error}"[:200])


def _collect(collector: Collector, tick: Tick) -> Outcome:
    try:
        return Outcome(collector.collect(tick))
    except Exception as error:
        return failure(error)


class Guard(ABC):
    """Runs one collector."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    @abstractmethod
    def start(self, tick: Tick) -> None:
        """Begins collecting."""

    @abstractmethod
    def finish(self, hurry: Callable[[], bool]) -> Outcome:
        """What came of it."""

    def close(self) -> None:
        self.collector.close()


class DirectGuard(Guard):
    """For a collector that does not block: it runs right here."""

    _outcome = Outcome(Rows())

    def start(self, tick: Tick) -> None:
        self._outcome = _collect(self.collector, tick)

    def finish(self, hurry: Callable[[], bool]) -> Outcome:
        return self._outcome


class ThreadGuard(Guard):
    """For a collector that may block: it runs on a thread of its own and is given up after its time limit.

    While it hangs it is not asked again; there is never more than one thread for it.
    """

    def __init__(self, collector: Collector, limit: float, clock: Clock) -> None:
        super().__init__(collector)
        self._limit = limit
        self._clock = clock
        self._tick: Tick | None = None
        self._began = 0
        self._outcome = Outcome(Rows())
        self._late = Rows()
        self._given_up = False
        self._ended = False
        self._asked = threading.Semaphore(0)
        self._done = threading.Event()
        self._done.set()
        self._thread: threading.Thread | None = None

    def start(self, tick: Tick) -> None:
        if not self._done.is_set():
            return
        if self._given_up:
            self._late = _only_said_once(self._outcome.rows)
            self._given_up = False
        self._began = self._clock.monotonic_ns()
        self._tick = tick
        self._done.clear()
        self._asked.release()
        if self._thread is None:
            name = f"vmsonar-{self.collector.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def finish(self, hurry: Callable[[], bool]) -> Outcome:
        if self._given_up or not self._answered(hurry):
            self._given_up = True
            waited = (self._clock.monotonic_ns() - self._began) / 1e9
            return Outcome(Rows(), "timeout", f"no answer after {waited:.1f} s")
        late, self._late = self._late, Rows()
        self._outcome.rows.merge(late)
        return self._outcome

    def close(self) -> None:
        """Ends the thread; a collector that hangs is left to it."""
        self._ended = True
        self._asked.release()
        if self._done.is_set():
            self.collector.close()

    def _answered(self, hurry: Callable[[], bool]) -> bool:
        left = self._left(self._limit)
        while not self._done.wait(min(left, _SLICE)):
            if left <= 0:
                return False
            left = self._left(min(self._limit, _HURRIED) if hurry() else self._limit)
        return True

    def _left(self, limit: float) -> float:
        return max(0.0, limit - (self._clock.monotonic_ns() - self._began) / 1e9)

    def _run(self) -> None:
        while self._asked.acquire() and not self._ended:
            assert self._tick is not None
            self._outcome = _collect(self.collector, self._tick)
            self._done.set()


def _only_said_once(rows: Rows) -> Rows:
    kept = Rows()
    for kind in _SAID_ONCE:
        kept.extend(kind, rows.by_kind.get(kind, []))
    return kept


def guard(collector: Collector, interval: float, clock: Clock) -> Guard:
    """The guard that a collector needs; none may take more than half of an interval."""
    if collector.time_limit is None:
        return DirectGuard(collector)
    return ThreadGuard(collector, min(collector.time_limit, interval / 2), clock)
