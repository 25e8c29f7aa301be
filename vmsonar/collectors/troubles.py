"""What a collector sees but cannot read in full: said when it begins, and again in each new segment."""

from collections.abc import Iterable
from datetime import datetime

from vmsonar_archive.records import GapRow

from vmsonar.collectors.base import Rows, Tick

Trouble = tuple[str, str | None]


class Troubles:
    """The troubles of one collector, each a stable word and the rest in words."""

    def __init__(self, collector: str) -> None:
        self._collector = collector
        self._since: dict[Trouble, datetime] = {}

    def tell(self, troubles: Iterable[Trouble], tick: Tick, rows: Rows) -> None:
        """Adds the gap rows that are due; a trouble that is not among these is over."""
        before, self._since = self._since, {}
        for trouble in troubles:
            if trouble in self._since:
                continue
            self._since[trouble] = before.get(trouble, tick.time)
            if trouble not in before:
                rows.add("gap", self._row(trouble, None))
            elif tick.fresh:
                rows.add("gap", self._row(trouble, before[trouble]))

    def _row(self, trouble: Trouble, since: datetime | None) -> GapRow:
        reason, detail = trouble
        return GapRow(collector=self._collector, reason=reason, detail=detail, since=since)
