"""Merges the records of several segments into one order, each record once."""

import heapq
from collections.abc import Callable, Iterator, Sequence

from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import MAX_SPANS, RecordSet

Stamped = tuple[Stamp, bytes]
#: The lowest number that a segment can hold, and what opens it.
Waiting = tuple[int, Callable[[], Iterator[Stamped]]]

# Each one open costs a frame in memory; with more of them the order suffers, but nothing is lost.
_MAX_OPEN = 8


def merge_segments(segments: Sequence[Waiting]) -> Iterator[bytes]:
    """The lines of all segments by their numbers; a segment is opened when its turn comes, usually alone."""
    waiting = sorted(segments, key=lambda segment: segment[0], reverse=True)
    heap: list[tuple[int, int, Stamped, Iterator[Stamped]]] = []
    seen = RecordSet(max_spans=MAX_SPANS)
    while waiting or heap:
        while waiting and (not heap or (len(heap) < _MAX_OPEN and waiting[-1][0] <= heap[0][0])):
            _, opened = waiting.pop()
            stream = opened()
            if (found := next(stream, None)) is not None:
                # The second figure is unique, so that what follows it is never compared.
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
