"""Brings the records of several segments into one order, each record once."""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from vmsonar_archive.records import Stamp

Stamped = tuple[Stamp, bytes]
#: The lowest number that a segment can hold, and what opens it.
Waiting = tuple[int, Callable[[], Iterator[Stamped]]]

# Each one open costs a frame in memory; with more of them the order suffers, but nothing is lost.
_MAX_OPEN = 8
# A record not in the row of those before it begins a new range; so many are remembered.
_MAX_RANGES = 100_000


class Seen:
    """Which records were met before, by their identity: run, boot and seq."""

    def __init__(self) -> None:
        #: First and last numbers of unbroken rows, sorted, for each run and boot.
        self._ranges: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        self._count = 0

    def add(self, stamp: Stamp) -> bool:
        """Takes in a record; False when it was there before."""
        firsts, lasts = self._ranges.setdefault((stamp.run, stamp.boot), ([], []))
        seq = stamp.seq
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
            self._count -= 1
        elif follows:
            lasts[place - 1] = seq
        elif precedes:
            firsts[place] = seq
        elif self._count < _MAX_RANGES:
            firsts.insert(place, seq)
            lasts.insert(place, seq)
            self._count += 1


def in_order(segments: Sequence[Waiting]) -> Iterator[bytes]:
    """The lines of all segments by their numbers; one is opened when its turn comes, mostly alone."""
    waiting = sorted(segments, key=lambda segment: segment[0], reverse=True)
    heap: list[tuple[int, int, Stamped, Iterator[Stamped]]] = []
    seen = Seen()
    while waiting or heap:
        while waiting and (not heap or (len(heap) < _MAX_OPEN and waiting[-1][0] <= heap[0][0])):
            _, opened = waiting.pop()
            stream = opened()
            if (found := next(stream, None)) is not None:
                # The second figure is one of its kind: what follows it is never compared.
                heapq.heappush(heap, (found[0].seq, -len(waiting), found, stream))
        if not heap:
            return
        _, order, (stamp, line), stream = heap[0]
        if seen.add(stamp):
            yield line
        if (found := next(stream, None)) is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (found[0].seq, order, found, stream))
