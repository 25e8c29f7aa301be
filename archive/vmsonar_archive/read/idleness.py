"""Whether a machine did anything lately, judged by its last samples; what is not known is no idleness."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import median_low

from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import NodeRow, Sample

#: More than this is work: cores busy, per cent of a GPU, bytes a second through the network or to and from disks.
_CORES, _GPU, _NET, _DISK = 0.15, 2.0, 100_000, 1_000_000
# Work that comes in short bursts shows in a piece of the time, not in the whole.
_PIECE = timedelta(minutes=5)
_SECTOR = 512
# So many intervals without a sample are a hole.
_HOLE = 3
_LEAST_HOLE = timedelta(seconds=60)
_BUSY = ("user_ticks", "nice_ticks", "system_ticks", "irq_ticks", "softirq_ticks")
# What these cannot read may be work.
_NEEDED = ("node", "gpu", "net", "disk")


class Activity(StrEnum):
    """What a machine did."""

    IDLE = "idle"
    ACTIVE = "active"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Idleness:
    """The answer, and what it rests on."""

    activity: Activity
    why: str
    #: The busiest piece of five minutes.
    cores: float | None = None


def idleness(root: Path, span: timedelta, now: datetime) -> Idleness:
    """Whether the machine did nothing from `now - span` on."""
    with open_archive(root) as archive:
        # One sample before, from which the first difference is taken.
        samples = list(archive.samples(since=now - span - _LEAST_HOLE, until=now + _LEAST_HOLE))
    if (missing := _missing(samples, span, now)) is not None:
        return Idleness(Activity.UNKNOWN, missing)
    busiest = 0.0
    for first, last in _pieces(samples, span):
        cores = _cores(first, last)
        if cores is None:
            return Idleness(Activity.UNKNOWN, "how busy its CPUs were is not recorded")
        busiest = max(busiest, cores)
        for rate, limit, what in (
            (cores, _CORES, "cores were busy"),
            (_rate(first, last, _bytes_moved), _NET, "bytes a second through the network"),
            (_rate(first, last, _bytes_on_disks), _DISK, "bytes a second to and from disks"),
        ):
            if rate is None:
                return Idleness(Activity.UNKNOWN, f"the {what} are not recorded all the time", busiest)
            if rate > limit:
                when = f"from {first.time:%H:%M:%S} to {last.time:%H:%M:%S} UTC"
                return Idleness(Activity.ACTIVE, f"{rate:.3g} {what} {when}", busiest)
    used = [row.gpu_util for sample in samples for row in sample.gpu]
    if any(util is None for util in used) or any(row.error for sample in samples for row in sample.gpu):
        return Idleness(Activity.UNKNOWN, "how busy its GPUs were is not recorded", busiest)
    most = max((util or 0.0 for util in used), default=0.0)
    if most > _GPU:
        return Idleness(Activity.ACTIVE, f"a GPU was busy {most:.0f} %", busiest)
    return Idleness(Activity.IDLE, f"at most {busiest:.2f} cores were busy", busiest)


def _missing(samples: list[Sample], span: timedelta, now: datetime) -> str | None:
    """What keeps the samples from telling of all of the time."""
    begin = now - span
    if len(samples) < 2:
        return f"nothing is recorded since {begin:%H:%M:%S} UTC"
    steps = [later.time - earlier.time for earlier, later in pairwise(samples)]
    hole = max(_HOLE * median_low(steps), _LEAST_HOLE)
    for earlier, later in pairwise([begin, *(sample.time for sample in samples), now]):
        if later - earlier > hole:
            return f"nothing is recorded from {earlier:%H:%M:%S} to {later:%H:%M:%S} UTC"
    if len({sample.boot for sample in samples}) > 1:
        return "it was started in that time"
    blind = {gap.collector for sample in samples for gap in sample.gap if gap.collector in _NEEDED}
    return f"{' and '.join(sorted(blind))} could not be read all the time" if blind else None


def _pieces(samples: list[Sample], span: timedelta) -> Iterator[tuple[Sample, Sample]]:
    first = samples[0]
    for sample in samples[1:]:
        if sample.time - first.time >= min(_PIECE, span) or sample is samples[-1]:
            yield first, sample
            first = sample


def _cores(first: Sample, last: Sample) -> float | None:
    """Busy cores on average; None where a figure is missing or a counter was reset."""
    if not (first.node and last.node):
        return None
    before, after = _busy(first.node[0]), _busy(last.node[0])
    if before is None or after is None or after < before:
        return None
    per_second = last.node[0].ticks_per_second or 100
    return (after - before) / per_second / _seconds(first, last)


def _busy(row: NodeRow) -> int | None:
    ticks = [getattr(row, name) for name in _BUSY]
    return None if ticks[0] is None or ticks[2] is None else sum(value or 0 for value in ticks)


Totals = dict[str, int | None]


def _bytes_moved(sample: Sample) -> Totals:
    physical = (row for row in sample.net if row.interface_kind != "loopback" and row.interface != "lo")
    return {row.interface: _sum(row.received_bytes, row.sent_bytes) for row in physical}


def _bytes_on_disks(sample: Sample) -> Totals:
    return {row.device: _sum(row.read_sectors, row.write_sectors, unit=_SECTOR) for row in sample.disk}


def _sum(*counters: int | None, unit: int = 1) -> int | None:
    known = [count for count in counters if count is not None]
    return sum(known) * unit if len(known) == len(counters) else None


def _rate(first: Sample, last: Sample, totals: Callable[[Sample], Totals]) -> float | None:
    """Bytes a second; None where a counter is missing, was reset, or went with what it counted."""
    before, after, moved = totals(first), totals(last), 0
    for name in before.keys() | after.keys():
        begin, end = before.get(name, 0), after.get(name)
        if begin is None or end is None or end < begin:
            return None
        moved += end - begin
    return moved / _seconds(first, last)


def _seconds(first: Sample, last: Sample) -> float:
    return max((last.boottime - first.boottime) / 1e9, 1e-3)
