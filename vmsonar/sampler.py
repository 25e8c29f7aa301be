"""Runs all collectors for one tick and puts their rows together."""

from collections.abc import Callable, Sequence

from vmsonar.clock import Clock
from vmsonar.collectors.base import Collector, Rows, Tick
from vmsonar.gaps import GapBook
from vmsonar.guards import guard
from vmsonar.log import Log


def _no_hurry() -> bool:
    return False


class Sampler:
    """Asks the collectors in their order; those on threads work while the others do."""

    def __init__(self, collectors: Sequence[Collector], interval: float, clock: Clock, log: Log) -> None:
        self.collectors = collectors
        self._guards = [guard(collector, interval, clock) for collector in collectors]
        self._gaps = GapBook(log)

    def sample(self, tick: Tick, hurry: Callable[[], bool] = _no_hurry) -> Rows:
        """The rows of one tick; never raises for what a collector does."""
        rows = Rows()
        for one in self._guards:
            one.start(tick)
        for one in self._guards:
            outcome = one.finish(hurry)
            rows.merge(outcome.rows)
            gap = self._gaps.note(one.collector.name, outcome.reason, outcome.detail, tick)
            if gap is not None:
                rows.add("gap", gap)
        return rows

    def companions(self) -> list[int]:
        """The helper processes that run now."""
        pids = [collector.companion_pid for collector in self.collectors]
        return [pid for pid in pids if pid is not None]

    def close(self) -> None:
        for one in self._guards:
            one.close()
