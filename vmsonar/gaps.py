"""Remembers what cannot be read, so that it is said once when it begins and again in each new segment."""

from datetime import datetime
from typing import NamedTuple

from vmsonar_archive.records import GapRow

from vmsonar.collectors.base import Tick
from vmsonar.log import Log


class _State(NamedTuple):
    reason: str
    since: datetime


class GapBook:
    """The collectors that fail at present."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._states: dict[str, _State] = {}

    def note(self, collector: str, reason: str | None, detail: str | None, tick: Tick) -> GapRow | None:
        """Takes in how a collector fared; returns the row that is due, if one is."""
        state = self._states.get(collector)
        if reason is None:
            if state is not None:
                del self._states[collector]
                self._log.info(f"collector {collector} works again")
            return None
        if state is None or state.reason != reason:
            self._states[collector] = _State(reason, tick.time)
            self._log.warning(f"collector {collector}: {reason}: {detail}")
            return GapRow(collector=collector, reason=reason, detail=detail)
        if tick.fresh:
            return GapRow(collector=collector, reason=reason, detail=detail, since=state.since)
        return None
