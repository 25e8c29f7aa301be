"""The samples that a set of tables is made from, each stamp kept once."""

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from vmsonar_archive.parquet.schema import arrow
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet, Span

if TYPE_CHECKING:
    import pyarrow as pa


class Stamps:
    """Numbers stamps in the order they come; a record met before gets no number."""

    def __init__(self, accepts: Callable[[Stamp], bool] | None = None) -> None:
        self._accepts = accepts
        self._runs: dict[str, int] = {}
        self._boots: dict[str, int] = {}
        self._run: list[int] = []
        self._boot: list[int] = []
        self._seq: list[int] = []
        self._time: list[datetime] = []
        self.boottime: list[int] = []
        self._seen = RecordSet()
        #: Whether every stamp came after the one before it of the same boot.
        self.ordered = True

    def __len__(self) -> int:
        return len(self._seq)

    def add(self, stamp: Stamp) -> int | None:
        """The number of a new stamp; None for one that is known already or not wanted."""
        if self._accepts is not None and not self._accepts(stamp):
            return None
        if not self._seen.add(stamp):
            return None
        run = self._runs.setdefault(stamp.run, len(self._runs))
        boot = self.boot_code(stamp.boot)
        if self._boot and (
            boot < self._boot[-1] or (boot == self._boot[-1] and stamp.boottime < self.boottime[-1])
        ):
            self.ordered = False
        self._run.append(run)
        self._boot.append(boot)
        self._seq.append(stamp.seq)
        self._time.append(stamp.time)
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
        order = sorted(range(len(self)), key=lambda n: (self._boot[n], self.boottime[n]))
        found: list[int | None] = [None] * len(self)
        for before, after in pairwise(order):
            if self._boot[before] == self._boot[after]:
                found[after] = before
        return found

    def identities(self) -> list[tuple[str, str, int]]:
        """Run, boot and number of every stamp."""
        runs, boots = list(self._runs), list(self._boots)
        return [
            (runs[run], boots[boot], seq)
            for run, boot, seq in zip(self._run, self._boot, self._seq, strict=True)
        ]

    def time(self, number: int) -> datetime:
        return self._time[number]

    def spans(self) -> list[Span]:
        """The records as the fewest possible spans."""
        return sorted(self._seen, key=lambda span: (self._runs[span.run], self._boots[span.boot]))

    def columns(self) -> "dict[str, pa.Array]":
        """The columns run, boot, seq, time and boottime, one entry per stamp."""
        pa = arrow()
        return {
            "run": _coded(self._run, self._runs),
            "boot": _coded(self._boot, self._boots),
            "seq": pa.array(self._seq, pa.int64()),
            "time": pa.array(self._time, pa.timestamp("us", "UTC")),
            "boottime": pa.array(self.boottime, pa.int64()),
        }


def _coded(codes: list[int], names: Iterable[str]) -> "pa.Array":
    pa = arrow()
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(names), pa.string()))
