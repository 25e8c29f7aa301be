"""When a series began, if that was after the sample before the one that shows it first."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from vmsonar_archive.parquet.chunks import Key
from vmsonar_archive.parquet.measures import RESET_TO_ZERO
from vmsonar_archive.parquet.schema import arrow
from vmsonar_archive.parquet.stamps import Stamps

if TYPE_CHECKING:
    import pyarrow as pa

# A tick is coarser than the boot clock: a start may seem to lie this much before it was.
_COARSENESS = 20_000_000


class Starts:
    """Knows the starts of jobs and processes by their ticks, those of containers by their info rows."""

    def __init__(self, ticks_per_second: float) -> None:
        self._ticks = ticks_per_second
        self._containers: dict[str, set[datetime]] = {}
        self._previous: list[int | None] = []
        self._stamps = Stamps()

    def learn(self, rows: "pa.Table") -> None:
        """Takes in rows of container_info."""
        columns = (rows[name].to_pylist() for name in ("container_id", "started"))
        for container, started in zip(*columns, strict=True):
            if started is not None:
                self._containers.setdefault(container, set()).add(started)

    def place(self, stamps: Stamps) -> None:
        """Tells which samples there are."""
        self._stamps = stamps
        self._previous = stamps.previous()

    def previous(self, table: str, numbers: Iterable[int]) -> "dict[str, pa.Array]":
        """The boot clock at the sample before each of these, as a column; for containers, which can begin again."""
        if table not in RESET_TO_ZERO:
            return {}
        clocks = [
            None if (before := self._previous[number]) is None else self._stamps.boottime[before]
            for number in numbers
        ]
        return {"previous": arrow().array(clocks, arrow().int64())}

    def of(self, table: str, keys: Sequence[tuple[Key, int]], firsts: Sequence[int]) -> list[float | None]:
        """For each series the boot clock in seconds from which its first row counts, None when that is unknown."""
        one = self._of_container if table == "container" else self._of_numbered
        return [
            None if self._previous[first] is None or len(key) < 2 else one(key, first, self._previous[first])
            for (key, _), first in zip(keys, firsts, strict=True)
        ]

    def _of_numbered(self, key: Key, first: int, previous: Any) -> float | None:
        if not isinstance(key[-1], int):
            return None
        start = key[-1] / self._ticks
        return start if start * 1e9 >= self._stamps.boottime[previous] - _COARSENESS else None

    def _of_container(self, key: Key, first: int, previous: Any) -> float | None:
        known = sorted(self._containers.get(key[1], ()))
        after = bisect_right(known, self._stamps.time(previous))
        if after < len(known) and known[after] <= self._stamps.time(first):
            return float(self._stamps.boottime[previous] / 1e9)
        return None
