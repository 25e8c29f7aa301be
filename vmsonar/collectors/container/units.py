"""Control groups that are no containers but that people have names for: batch jobs, services, sessions, pods."""

import resource
from dataclasses import dataclass

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, CgroupRow

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, capability
from vmsonar.collectors.container.cgroup import Descriptors, Group, GroupReader, Hierarchies, end_row
from vmsonar.host.cgroups import Unit, batch_step

# Limits change by hand, if ever.
_RARELY_NS = 60_000_000_000
# More units than any machine has: what a user makes in a loop must not cost everybody the samples.
_MOST = 4096
# How often a group is looked for, and rarely from then on: with v1 a runtime makes one after the other, and accounting
# may be switched on.
_TRIES = 5
_ITEM = "CPU and memory of services and Slurm jobs"
_UNMOUNTED = ("no control groups are mounted", "mount cgroup2 on /sys/fs/cgroup")


@dataclass(slots=True)
class _Live:
    """One unit in which something runs, and when it was last read."""

    reader: GroupReader[CgroupRow]
    read_at: int


class UnitCollector(Collector):
    """A row per unit in which a process runs, of the kinds that are chosen."""

    name = "cgroup"
    kinds = ("cgroup",)

    def __init__(self, setup: Setup) -> None:
        self._wanted = frozenset(setup.config.cgroups.kinds)
        self._hierarchies = Hierarchies(setup.host)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._descriptors = Descriptors(soft // 8)
        self._live: dict[Unit, _Live] = {}
        #: Those whose group counts nothing, such as a service below v1 without accounting, and how often that was seen.
        self._uncounted: dict[Unit, int] = {}
        self._rarely_due = 0

    def collect(self, tick: Tick) -> Rows:
        """Reads every unit; one that ended has a last row that says so."""
        rows = Rows()
        if not tick.units and not self._live:
            return rows
        rare = tick.boottime >= self._rarely_due
        if rare:
            self._rarely_due = tick.boottime + _RARELY_NS
        seen = {unit: pids for unit, pids in tick.units.items() if unit.kind in self._wanted}
        self._uncounted = {unit: times for unit, times in self._uncounted.items() if unit in seen}
        for unit, live in self._live.items():
            if live.reader.settling and unit in seen:
                for group in self._groups(unit, seen[unit]):
                    live.reader.add(group)
        ended = [
            self._end(unit, live, tick.boottime)
            for unit, live in list(self._live.items())
            if unit not in seen or not self._read(live, tick.boottime, rare)
        ]
        rows.extend("cgroup", ended)
        for unit, pids in seen.items():
            is_due = rare or self._uncounted.get(unit, 0) < _TRIES
            if unit not in self._live and is_due and len(self._live) < _MOST:
                self._add(unit, pids, tick.boottime)
        for live in self._live.values() if tick.batch_numbers else ():
            if (number := tick.batch_numbers.get(live.reader.row.batch_job or "")) is not None:
                live.reader.put({"batch_job": number})
        rows.extend("cgroup", [live.reader.encoded() for live in self._live.values()])
        return rows

    def capabilities(self) -> list[Capability]:
        mode = self._hierarchies.mode
        return [
            capability(
                self.name, f"{_ITEM} (cgroup {mode})" if mode else _ITEM, *(() if mode else _UNMOUNTED)
            )
        ]

    def close(self) -> None:
        for live in self._live.values():
            live.reader.close()
        self._live.clear()

    def _add(self, unit: Unit, pids: set[int], now: int) -> None:
        groups = self._groups(unit, pids)
        if not groups:
            self._uncounted[unit] = self._uncounted.get(unit, 0) + 1
            return
        live = _Live(GroupReader(_row(unit), groups[0], self._descriptors), now)
        for group in groups[1:]:
            live.reader.add(group)
        if self._read(live, now, everything=True):
            self._live[unit] = live
        else:
            live.reader.close()

    def _groups(self, unit: Unit, pids: set[int]) -> list[Group]:
        """As its oldest and its youngest process see it: with v1 a daemon may be in some of its groups only."""
        found = (self._hierarchies.of_unit(pid, unit.path) for pid in {min(pids), max(pids)})
        return [group for group in found if group is not None]

    def _read(self, live: _Live, now: int, everything: bool) -> bool:
        is_there = live.reader.read(everything)
        if live.reader.counted:
            live.read_at = now
        return is_there

    def _end(self, unit: Unit, live: _Live, now: int) -> bytes:
        """The row of the end: its group may outlive its processes for a moment, and be read once more."""
        del self._live[unit]
        self._read(live, now, everything=False)
        row = end_row(live.reader.row, now, "final" if live.reader.counted else "reading", live.read_at)
        row.end_boottime = live.read_at
        live.reader.close()
        return encode_row(row)


def _row(unit: Unit) -> CgroupRow:
    """What does not change."""
    step = batch_step(unit.path) if unit.kind == "slurm" else None
    row = CgroupRow(cgroup=unit.path, cgroup_kind=unit.kind)
    if step is not None:
        row.batch_job, row.batch_step = step.job or step.sluid, step.step
    else:
        row.unit_name = unit.path.rpartition("/")[2]
    return row
