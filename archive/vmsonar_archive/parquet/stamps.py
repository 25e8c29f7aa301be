"""The samples that a set of tables is made from, each stamp kept once, and which series began among them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from vmsonar_archive.parquet.schema import Key, arrow
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet, Span

if TYPE_CHECKING:
    import pyarrow as pa

# Nanoseconds by which a start may seem too early: a tick is coarser than the boot clock.
_COARSENESS = 20_000_000


class Stamps:
    """Numbers stamps in the order they come; a record met before gets no number."""

    def __init__(self, accepts: Callable[[Stamp], bool] | None = None) -> None:
        self._accepts = accepts
        # Runs and boots are kept as codes, which rise from 0.
        self._runs: dict[str, int] = {}
        self._boots: dict[str, int] = {}
        self._run: list[int] = []
        self._boot: list[int] = []
        self._seq: list[int] = []
        self.time: list[datetime] = []
        self.boottime: list[int] = []
        self._seen = RecordSet()
        #: Whether every stamp came after the one before it of the same boot.
        self.ordered = True

    def add(self, stamp: Stamp) -> int | None:
        """The number of a new stamp; None for one that is known already or not wanted."""
        if self._accepts is not None and not self._accepts(stamp):
            return None
        if not self._seen.add(stamp):
            return None
        boot = self.boot_code(stamp.boot)
        if self._boot and (boot, stamp.boottime) < (self._boot[-1], self.boottime[-1]):
            self.ordered = False
        self._run.append(self._runs.setdefault(stamp.run, len(self._runs)))
        self._boot.append(boot)
        self._seq.append(stamp.seq)
        self.time.append(stamp.time)
        self.boottime.append(stamp.boottime)
        return len(self._seq) - 1

    def boot_code(self, boot: str) -> int:
        return self._boots.setdefault(boot, len(self._boots))

    @property
    def boots(self) -> list[str]:
        """The boot ids by their codes."""
        return list(self._boots)

    def previous(self) -> list[int | None]:
        """For every stamp the number of the one before it on the same boot's clock."""
        order = sorted(range(len(self._seq)), key=lambda n: (self._boot[n], self.boottime[n]))
        found: list[int | None] = [None] * len(order)
        for before, after in pairwise(order):
            if self._boot[before] == self._boot[after]:
                found[after] = before
        return found

    def same_run(self, one: int, other: int) -> bool:
        return self._run[one] == self._run[other]

    def first_clock(self, number: int) -> int:
        """The boot clock at the first sample of a stamp's boot."""
        return self._first_clocks[self._boot[number]]

    @cached_property
    def _first_clocks(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for boot, clock in zip(self._boot, self.boottime, strict=True):
            found[boot] = min(clock, found.get(boot, clock))
        return found

    def numbers(self) -> dict[tuple[str, str, int], int]:
        """The number of every stamp by its run, boot and seq."""
        runs, boots = list(self._runs), list(self._boots)
        codes = zip(self._run, self._boot, self._seq, strict=True)
        return {(runs[run], boots[boot], seq): number for number, (run, boot, seq) in enumerate(codes)}

    def spans(self) -> list[Span]:
        """The records as the fewest possible spans."""
        return sorted(self._seen, key=lambda span: (self._runs[span.run], self._boots[span.boot]))

    @cached_property
    def columns(self) -> "dict[str, pa.Array]":
        """The columns run, boot, seq, time and boottime, one entry per stamp; asked for when all are added."""
        pa = arrow()
        return {
            "run": _coded(self._run, self._runs),
            "boot": _coded(self._boot, self._boots),
            "seq": pa.array(self._seq, pa.int64()),
            "time": pa.array(self.time, pa.timestamp("us", "UTC")),
            "boottime": pa.array(self.boottime, pa.int64()),
        }


def _coded(codes: list[int], names: Iterable[str]) -> "pa.Array":
    pa = arrow()
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(names), pa.string()))


class Starts:
    """The starts of series: of jobs and processes by their ticks, of containers by their info rows."""

    def __init__(self, stamps: Stamps, ticks_per_second: float) -> None:
        self.stamps = stamps
        self.ticks_per_second = ticks_per_second
        self._containers: dict[str, set[datetime]] = {}
        #: The numbers of the stamps that have job rows.
        self.with_jobs: set[int] = set()

    def learn(self, rows: "pa.Table") -> None:
        """Takes in rows of container_info."""
        columns = (rows[name].to_pylist() for name in ("container_id", "started"))
        for container, started in zip(*columns, strict=True):
            if started is not None:
                self._containers.setdefault(container, set()).add(started)

    @cached_property
    def _previous(self) -> list[int | None]:
        return self.stamps.previous()

    def clocks_before(self, numbers: Iterable[int]) -> "pa.Array":
        """The boot clock at the sample before each of these."""
        before = (self._previous[number] for number in numbers)
        clocks = [None if number is None else self.stamps.boottime[number] for number in before]
        return arrow().array(clocks, arrow().int64())

    def first_clocks(self, numbers: Iterable[int]) -> "pa.Array":
        """The boot clock at the first sample of the boot of each of these."""
        clocks = [self.stamps.first_clock(number) for number in numbers]
        return arrow().array(clocks, arrow().int64())

    def of(self, table: str, key: Key, first: int) -> float | None:
        """The boot clock in seconds at which a series began to count; None unless that was after the sample before.

        `first` is the number of the first stamp of the series.
        """
        previous = self._previous[first]
        if previous is None:
            return None
        clock = self.stamps.boottime[previous]
        if table == "container":
            known = sorted(self._containers.get(key[1], ()))
            after = bisect_right(known, self.stamps.time[previous])
            is_between = after < len(known) and known[after] <= self.stamps.time[first]
            return clock / 1e9 if is_between else None
        if not isinstance(key[-1], int):
            return None
        start = key[-1] / self.ticks_per_second
        if start * 1e9 >= clock - _COARSENESS:
            return start
        # A group made by processes that were there before counts from where the recorder first had it.
        is_new = table == "job" and previous in self.with_jobs and self.stamps.same_run(previous, first)
        return clock / 1e9 if is_new else None
