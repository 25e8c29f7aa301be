"""Sets of records, as spans of numbers per run and boot."""

from collections.abc import Iterable, Iterator

from vmsonar_archive.parquet.stamps import Span
from vmsonar_archive.records import Stamp


class SpanSet:
    """The records that are already taken in."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._known: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.add(spans)

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._known.setdefault((span.run, span.boot), []).append((span.first, span.last))
        for key, ranges in self._known.items():
            self._known[key] = list(_joined(sorted(ranges)))

    def __contains__(self, stamp: Stamp) -> bool:
        ranges = self._known.get((stamp.run, stamp.boot), ())
        return any(first <= stamp.seq <= last for first, last in ranges)

    def __bool__(self) -> bool:
        return bool(self._known)

    def misses(self, stamp: Stamp) -> bool:
        """Whether a record is not in here."""
        return stamp not in self

    def __iter__(self) -> Iterator[Span]:
        for (run, boot), ranges in sorted(self._known.items()):
            yield from (Span(run, boot, first, last) for first, last in ranges)

    def common(self, spans: Iterable[Span]) -> list[Span]:
        """Those parts of the spans that are in here."""
        return [
            Span(span.run, span.boot, max(first, span.first), min(last, span.last))
            for span in spans
            for first, last in self._known.get((span.run, span.boot), ())
            if first <= span.last and last >= span.first
        ]

    def holds_numbers(self, first: int, last: int) -> bool:
        """Whether every number from first to last is in here, whatever its run."""
        place = first
        for low, high in _joined(sorted(one for ranges in self._known.values() for one in ranges)):
            if low <= place <= high:
                place = high + 1
        return place > last


def size(spans: Iterable[Span]) -> int:
    """How many records they are."""
    return sum(span.last - span.first + 1 for span in spans)


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    current: tuple[int, int] | None = None
    for first, last in ranges:
        if current is not None and first <= current[1] + 1:
            current = (current[0], max(current[1], last))
            continue
        if current is not None:
            yield current
        current = (first, last)
    if current is not None:
        yield current
