"""Sets of records: exact ones as spans of seq numbers, and `Taken`, what somebody was sent before."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import inf

import msgspec

from vmsonar_archive.records.ids import StampId
from vmsonar_archive.records.sample import Stamp

#: Bounds what a reader of strangers' files holds; records beyond it count as new.
MAX_SPANS = 100_000


class Span(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Records of one run and boot without a hole in their numbers."""

    run: StampId
    boot: StampId
    first: int
    last: int


def size(spans: Iterable[Span]) -> int:
    """How many records they are."""
    return sum(span.last - span.first + 1 for span in spans)


class RecordSet:
    """A set of records by their identity: run, boot and number."""

    def __init__(self, spans: Iterable[Span] = (), max_spans: float = inf) -> None:
        #: First and last numbers of unbroken rows, sorted, for each run and boot.
        self._ranges: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        self._left = max_spans
        self.update(spans)

    def add(self, stamp: Stamp) -> bool:
        """Adds a record; False when it was there before."""
        key, seq = (stamp.run, stamp.boot), stamp.seq
        ranges = self._ranges.get(key)
        if ranges is None:
            if self._left <= 0:
                return True
            ranges = self._ranges[key] = [], []
        firsts, lasts = ranges
        if lasts and seq == lasts[-1] + 1:
            lasts[-1] = seq
            return True
        place = bisect_right(firsts, seq)
        if place and seq <= lasts[place - 1]:
            return False
        self._insert(firsts, lasts, place, seq)
        return True

    def _insert(self, firsts: list[int], lasts: list[int], place: int, seq: int) -> None:
        follows = place > 0 and lasts[place - 1] + 1 == seq
        precedes = place < len(firsts) and firsts[place] == seq + 1
        if follows and precedes:
            lasts[place - 1] = lasts.pop(place)
            firsts.pop(place)
            self._left += 1
        elif follows:
            lasts[place - 1] = seq
        elif precedes:
            firsts[place] = seq
        elif self._left > 0:
            firsts.insert(place, seq)
            lasts.insert(place, seq)
            self._left -= 1

    def update(self, spans: Iterable[Span]) -> None:
        added: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for span in spans:
            added.setdefault((span.run, span.boot), []).append((span.first, span.last))
        for key, ranges in added.items():
            known = zip(*self._ranges.get(key, ([], [])), strict=True)
            joined = _joined([*known, *ranges])
            self._ranges[key] = [first for first, _ in joined], [last for _, last in joined]

    def __contains__(self, stamp: Stamp) -> bool:
        firsts, lasts = self._ranges.get((stamp.run, stamp.boot), ([], []))
        place = bisect_right(firsts, stamp.seq)
        return place > 0 and stamp.seq <= lasts[place - 1]

    def misses(self, stamp: Stamp) -> bool:
        return stamp not in self

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[Span]:
        for (run, boot), ranges in sorted(self._ranges.items()):
            yield from (Span(run, boot, first, last) for first, last in zip(*ranges, strict=True))

    def common(self, spans: Iterable[Span]) -> list[Span]:
        """Those parts of the spans that are in here."""
        return [
            Span(span.run, span.boot, max(first, span.first), min(last, span.last))
            for span in spans
            for first, last in zip(*self._ranges.get((span.run, span.boot), ((), ())), strict=True)
            if first <= span.last and last >= span.first
        ]

    def holds_numbers(self, first: int, last: int) -> bool:
        """Whether every number from first to last is in here, whatever its run."""
        place = first
        for low, high in _joined([(span.first, span.last) for span in self]):
            if low <= place <= high:
                place = high + 1
        return place > last


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges; those that touch or overlap become one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


class Taken(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The records that somebody has: all up to a number that the journal vouches for, then those of known runs.

    A power cut can undo records after the last sealed one, and the next run gives their numbers to others: up
    there a number alone proves nothing; a number together with its run does.
    """

    up_to: int = 0
    #: The last number of each run; it has all of the run's records up to there.
    runs: dict[str, int] = {}

    def has(self, stamp: Stamp) -> bool:
        return stamp.seq <= self.up_to or stamp.seq <= self.runs.get(stamp.run, 0)

    @property
    def highest(self) -> int:
        return max(self.up_to, *self.runs.values(), 0)

    def add(self, run: str, seq: int, up_to: int) -> None:
        """Adds a record, when everything up to `up_to` was taken before it."""
        self.runs[run] = max(seq, self.runs.get(run, 0))
        if up_to > self.up_to:
            self.up_to = up_to
            self.runs = {run: last for run, last in self.runs.items() if last > up_to}
