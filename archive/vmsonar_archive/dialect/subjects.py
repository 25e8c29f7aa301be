"""What metrics are about (disks, jobs, containers, …) as one sample after the other shows them.

A subject's labels never name a process or a command line, and how many subjects of a kind there are over time is
bounded (places.py). Counters are passed on raw, with the moment at which they began; but for energy meters, which
wrap.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec
from msgspec import field

from vmsonar_archive import records
from vmsonar_archive.dialect.exposition import Family, label_text
from vmsonar_archive.dialect.metrics import Labels, Metric, ViewRow, info_help, info_name, table
from vmsonar_archive.dialect.places import PLACES, Carried, Key, Meters, Places
from vmsonar_archive.records import KINDS, SERIES_KEYS, JobRow, Sample, Stamp, SysInfo

#: What is told rarely, or for the last time, is shown for this long (filesystem rows come once a minute).
HOLD_SECONDS = 90

#: Of which kinds there may be very many: where those are counted that are not shown, and what decides who gets a
#: place: the counters that rose most lately, or a size.
_RANKED: dict[str, tuple[str, tuple[str, ...]]] = {
    "job": ("jobs_not_shown", ("user_ticks", "system_ticks")),
    "container": ("containers_not_shown", ("cpu_time",)),
    "cgroup": ("units_not_shown", ("cpu_time",)),
    "net": ("interfaces_not_shown", ("received_bytes", "sent_bytes")),
    "disk": ("disks_not_shown", ("read_sectors", "write_sectors")),
    "netfs": ("shares_not_shown", ("server_read_bytes", "server_write_bytes", "read_bytes", "write_bytes")),
    "filesystem": ("filesystems_not_shown", ("bytes_total",)),
}
#: Kinds whose last row tells the end; the same thing may live again.
LIVES = ("job", "container", "cgroup")
#: Kinds that are not in every sample.
_RARE = ("filesystem", "netfs")
#: Kinds whose counters begin with the boot, as far as anybody knows.
_SINCE_BOOT = ("node", "cpu", "disk", "net", "pressure")
#: Kinds whose counters may begin anew without saying when.
_MAY_FALL = ("disk", "net", "netfs", "fabric", "gpu", "container", "cgroup", "cost")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 2**63 - 1
# The clock was set, where it is this much off from where it was since the boot; less is the time between two readings.
_SET_NS = 10_000_000
_RARE_NS = HOLD_SECONDS * 1_000_000_000
# What describes jobs and containers that are gone is forgotten when there is this much of it.
_SLACK = 1000
# A share's age is told in whole seconds.
_AGE_NS = 2_000_000_000
# As many beginnings are remembered that no row tells.
_MOST_STARTS = 1000


class Described(Stamp, kw_only=True):
    """The part of a sample that later ones need: cheap to decode."""

    container_info: list[records.ContainerInfoRow] = field(default_factory=list)
    job_info: list[records.JobInfoRow] = field(default_factory=list)


class Observed(Described, kw_only=True):
    """The part of a sample that metrics are made of: cheaper to decode than all of it."""

    node: list[records.NodeRow] = field(default_factory=list)
    cpu: list[records.CpuRow] = field(default_factory=list)
    disk: list[records.DiskRow] = field(default_factory=list)
    filesystem: list[records.FilesystemRow] = field(default_factory=list)
    netfs: list[records.NetfsRow] = field(default_factory=list)
    net: list[records.NetRow] = field(default_factory=list)
    fabric: list[records.FabricRow] = field(default_factory=list)
    pressure: list[records.PressureRow] = field(default_factory=list)
    energy: list[records.EnergyRow] = field(default_factory=list)
    gpu: list[records.GpuRow] = field(default_factory=list)
    container: list[records.ContainerRow] = field(default_factory=list)
    cgroup: list[records.CgroupRow] = field(default_factory=list)
    job: list[records.JobRow] = field(default_factory=list)
    cost: list[records.CostRow] = field(default_factory=list)


#: What tells the rows of each kind apart. A disk has its name alone: another one there goes on with its series.
_KEYS = {kind: SERIES_KEYS.get(kind, ()) for kind in KINDS if kind in Observed.__annotations__} | {
    "disk": ("device",)
}


class Subject:
    """One disk, job, … with its row in the last sample that had one."""

    __slots__ = ("about", "end", "kind", "labels", "row", "seen", "start", "text")

    def __init__(self, kind: str, row: msgspec.Struct, about: msgspec.Struct | None) -> None:
        self.kind = kind
        self.row = row
        #: The row that describes it, where there is one.
        self.about = about
        self.labels = _labels(table().labels.get(kind, ()), row, about)
        #: The labels as they stand in the text.
        self.text = label_text(self.labels)
        #: When its counters began (0: nobody knows), and when it ended if this is its last row: nanoseconds since 1970.
        self.start = 0
        self.end: int | None = None
        #: CLOCK_BOOTTIME of its row.
        self.seen = 0

    def raw(self, metric: Metric) -> Any:
        """What a field says of it; None for what is unknown, and for the gauges of what has ended."""
        if self.end is not None and not metric.is_counter:
            return None
        value = getattr(self.row if metric.source == self.kind else self.about, metric.field, None)
        return self.start if metric.role == "start" and value is not None else value

    def info(self) -> Labels:
        """All that describes it."""
        return (*self.labels, *_labels(table().infos.get(self.kind, ()), self.row, self.about))

    def attributes(self, *, with_info: bool = False) -> Labels:
        """Its labels by their names in OpenTelemetry."""
        known = table()
        infos = known.infos.get(self.kind, ()) if with_info else ()
        return _labels((*known.labels.get(self.kind, ()), *infos), self.row, self.about, "convention")


def _labels(
    metrics: Sequence[Metric], row: msgspec.Struct, about: msgspec.Struct | None, name: str = "name"
) -> Labels:
    values = ((one, getattr(row if one.source == one.kind else about, one.field, None)) for one in metrics)
    return tuple((getattr(one, name), str(value)) for one, value in values if value is not None)


class Observer:
    """Fed with every record in order; shows the subjects of the last sample."""

    def __init__(self, places: int = PLACES, hold_seconds: float = 0) -> None:
        """`hold_seconds`: how long to show what is told rarely, or for the last time, after the sample that told it."""
        self._places = {kind: Places(places) for kind in _RANKED}
        self._hold = int(hold_seconds * 1e9)
        self._meters = Meters({})
        self._boot, self._booted = "", 0
        self._run, self._boottime = "", 0
        #: Whether samples come that were told before: who was shown stays.
        self._is_told = False
        #: When those counters began of which no row tells it (again): they fell in this boot.
        self._starts: dict[tuple[str, Key], int] = {}
        self._infos: dict[str, dict[Key, msgspec.Struct]] = {"job": {}, "container": {}, "gpu": {}}
        #: The subjects of every kind by what tells them apart, those of a while ago too.
        self._known: dict[str, dict[Key, Subject]] = {}
        self.machine: SysInfo | None = None
        self.ticks_per_second = 100
        #: When the present sample was taken, and the one before: nanoseconds since 1970.
        self.time = self.before = 0
        #: The present subjects of each kind; of a container that was started again, its earlier life too.
        self.subjects: dict[str, list[Subject]] = {}
        #: Those whose counters fell, as they were in the sample before.
        self.fallen: list[Subject] = []

    @property
    def carried(self) -> Carried:
        """What another Observer needs to go on after this sample."""
        seats = {kind: places.seats for kind, places in self._places.items() if places.seats}
        starts = [(*of, start) for of, start in self._starts.items()]
        return Carried(self._boot, self._booted, self._meters.carried(), starts, seats)

    def resume(self, carried: Carried, last: Iterable[Observed | Sample]) -> None:
        """Goes on where another one was, having learned what it did; `last` are the samples that it saw last."""
        self._meters = Meters(carried.meters)
        if self._boot not in ("", carried.boot):
            self._meters.begin_boot()
            return
        self._boot, self._booted = carried.boot, carried.booted
        self._starts = {(kind, key): start for kind, key, start in carried.starts}
        for kind, seats in carried.seats.items():
            self._places[kind].begin(seats)
        self._is_told = True
        for sample in last:
            if sample.boot == carried.boot:
                self.observe(sample)
        self._is_told = False

    def learn_machine(self, info: SysInfo) -> None:
        """Takes in a sysinfo record."""
        self.machine = info
        self.ticks_per_second = info.ticks_per_second or self.ticks_per_second
        self._infos["gpu"] = {(card.gpu_uuid,): card for card in info.cards or ()}

    def learn(self, sample: Described | Sample) -> None:
        """Takes in what a sample says once, for those after it."""
        booted = max(0, nanoseconds(sample.time) - sample.boottime)
        if abs(booted - self._booted) > _SET_NS:
            self._booted = booted
        if sample.boot != self._boot:
            self._boot, self._booted = sample.boot, booted
            self._infos["job"] = {}
            self._known.clear()
            self._starts.clear()
            self._meters.begin_boot()
            for places in self._places.values():
                places.begin()
        if sample.run != self._run:
            self._run = sample.run
            self._known.pop("cost", None)
        for job in sample.job_info:
            self._infos["job"][job.pgid, job.start_ticks] = job
        for container in sample.container_info:
            self._infos["container"][container.container_id,] = container

    def observe(self, sample: Observed | Sample) -> None:
        """Makes a sample the present one."""
        self.learn(sample)
        self.before, self.time = self.time, nanoseconds(sample.time)
        self._boottime = sample.boottime
        if sample.node and sample.node[0].ticks_per_second:
            self.ticks_per_second = sample.node[0].ticks_per_second
        view = ViewRow(
            sample_time=self.time // 1000,
            interval=self.machine.interval if self.machine else None,
            boot_time=self._booted // 1000,
            jobs=sum(row.processes != 0 for row in sample.job) if sample.job else None,
        )
        self.fallen = []
        shown = {kind: self._present(kind, self._rows(kind, sample, view), sample.boottime) for kind in _KEYS}
        shown["sysinfo"] = [Subject("sysinfo", self.machine, None)] if self.machine else []
        shown["view"] = [Subject("view", view, None)]
        self._forget(sample.boottime)
        self.subjects = shown

    def _rows(self, kind: str, sample: Observed | Sample, view: ViewRow) -> list[tuple[Key, Any]]:
        """The rows of a kind that are shown, each with what tells it apart."""
        fields, now = _KEYS[kind], sample.boottime
        rows = [(tuple([getattr(row, name) for name in fields]), row) for row in getattr(sample, kind)]
        if kind == "energy":
            return [(key, self._meters.unwrapped(row, now)) for key, row in rows]
        if kind not in _RANKED:
            return rows
        if kind == "job":
            # Without the row that describes it there is nothing to call a job.
            rows = [(key, row) for key, row in rows if key in self._infos["job"]]
        known = self._known.get(kind, {}) if kind in _RARE else {}
        every = [*((key, one.row) for key, one in known.items() if now - one.seen < _RARE_NS), *rows]
        not_shown, counters = _RANKED[kind]
        totals = {key: float(sum(getattr(row, name) or 0 for name in counters)) for key, row in every}
        chosen = self._places[kind].choose(totals, now, may_change=not self._is_told)
        if totals:
            setattr(view, not_shown, len(totals) - len(chosen))
        return [(key, row) for key, row in rows if key in chosen]

    def _present(self, kind: str, rows: list[tuple[Key, Any]], now: int) -> list[Subject]:
        known, infos = self._known.setdefault(kind, {}), self._infos.get(kind, {})
        found: dict[tuple[str, int | None], Subject] = {}
        if kind in LIVES:
            # The end of one life comes before the next one, where a sample tells both.
            rows.sort(key=lambda item: self._ended(kind, item[1]) is None)
        for key, row in rows:
            subject, about = known.get(key), infos.get(key)
            begun = self._begun(kind, key, row, subject, about)
            if subject is not None and subject.end is None and subject.start != begun:
                self.fallen.append(self._as_it_was(subject))
            if subject is None or subject.about is not about or subject.end is not None:
                subject = known[key] = Subject(kind, row, about)
            subject.start, subject.row, subject.seen = max(0, begun), row, now
            subject.end = self._ended(kind, row)
            # Two with the same labels would be two values of one series.
            found.setdefault((subject.text, subject.end), subject)
        held = (one for one in known.values() if 0 < now - one.seen <= self._hold)
        for one in held:
            if (kind in _RARE or one.end is not None) and (one.text, None) not in found:
                found.setdefault((one.text, None), one)
        return list(found.values())

    def _as_it_was(self, subject: Subject) -> Subject:
        """Just before its counters began anew, which is at the sample before, or later."""
        last = copy(subject)
        last.seen, last.end = self._boottime, self.before - 1_000_000
        return last

    def _begun(self, kind: str, key: Key, row: Any, known: Subject | None, about: Any) -> int:
        """When the counters in a row began to count; 0 where nobody knows."""
        if known is not None and not _is_anew(kind, known.row, row):
            return known.start
        if isinstance(row, JobRow):
            return self._at(row.start_ticks * 1_000_000_000 // self.ticks_per_second)
        if kind == "container" and row.start_boottime is not None:
            return self._at(row.start_boottime)
        if about is not None and getattr(about, "started", None) is not None:
            return min(nanoseconds(about.started), self.time)
        if kind == "netfs" and row.age is not None:
            mounted = max(0, self.time - int(row.age) * 1_000_000_000)
            start = self._starts.get((kind, key), 0)
            return start if abs(mounted - start) < _AGE_NS else self._remembered(kind, key, mounted)
        if known is not None:
            return self._remembered(kind, key, self.before)
        if 0 < (start := self._starts.get((kind, key), 0)) < self.time:
            return start
        return self._booted if kind in _SINCE_BOOT else 0

    def _remembered(self, kind: str, key: Key, start: int) -> int:
        self._starts[kind, key] = start
        if len(self._starts) > _MOST_STARTS:
            del self._starts[next(iter(self._starts))]
        return start

    def _at(self, boottime: int) -> int:
        """A moment of CLOCK_BOOTTIME in nanoseconds since 1970."""
        return self._booted + boottime

    def _ended(self, kind: str, row: Any) -> int | None:
        """When what a row is about ended; None if it goes on."""
        if kind not in LIVES or (row.processes != 0 if kind == "job" else row.end_boottime is None):
            return None
        died = self.time if row.end_boottime is None else self._at(row.end_boottime)
        # In order with the sample before, whose time may be of a clock that was set since.
        return min(max(died, self.before + 1_000_000), self.time)

    def _forget(self, now: int) -> None:
        for kind, known in self._known.items():
            old = [key for key, one in known.items() if not 0 <= now - one.seen <= _RARE_NS]
            for key in old:
                del known[key]
            if kind in ("job", "container") and len(self._infos[kind]) > 2 * len(known) + _SLACK:
                infos = self._infos[kind]
                self._infos[kind] = {key: infos[key] for key in known if key in infos}

    def readings(self, ended: bool | None = None) -> Iterator[tuple[Metric, Subject, float]]:
        """What the present sample says, in the order of the table: all, or only of what ended or fell, or did not."""
        per_second = self.ticks_per_second
        for metric in table().metrics:
            fallen = (one for one in self.fallen if ended and one.kind == metric.kind)
            for one in chain(self.subjects.get(metric.kind, ()), fallen):
                # What ended earlier is only held for whoever looks rarely.
                is_told = one.end is None or one.seen == self._boottime
                is_told = is_told and ended in (None, one.end is not None)
                if is_told and (raw := one.raw(metric)) is not None:
                    yield metric, one, metric.value(raw, per_second)

    def families(self) -> Iterator[Family]:
        """Everything there is to say now, a family after the other, in the order of the table."""
        now = {kind: {one.text: one for one in subjects} for kind, subjects in self.subjects.items()}
        infos = {info_name(kind): now.get(kind, {}).values() for kind in table().infos}
        named = table().by_name()
        for family in heads():
            for one in infos.get(family.name, ()):
                if one.end is None:
                    family.samples.append((label_text(one.info()), 1))
            for metric in named.get(family.name, ()):
                more = label_text(metric.labels)
                for text, subject in now.get(metric.kind, {}).items():
                    if (raw := subject.raw(metric)) is not None:
                        labels = f"{text},{more}" if text and more else text or more
                        family.samples.append((labels, metric.value(raw, self.ticks_per_second)))
            yield family


def heads() -> Iterator[Family]:
    """Every family there can be, without samples."""
    for kind in table().infos:
        yield Family(info_name(kind), "info", info_help(kind))
    for name, metrics in table().by_name().items():
        first = metrics[0]
        yield Family(name, "counter" if first.is_counter else "gauge", help_of(metrics), first.unit)


def help_of(metrics: Sequence[Metric]) -> str:
    """What a name means: what its field does, or what each of its fields does."""
    if len(metrics) == 1:
        return metrics[0].help
    told: dict[str, list[str]] = {}
    said = ""
    for metric in metrics:
        meaning = metric.help.partition(";")[0]
        said = said if meaning == "the same" else meaning
        told.setdefault(said, []).extend(value for _, value in metric.labels)
    return "; ".join(f"{', '.join(values)}: {said}" for said, values in told.items())


def nanoseconds(time: datetime) -> int:
    """Since 1970; a clock that is off by centuries gives the first or last time that fits everywhere."""
    return min(max(0, (time - _EPOCH) // timedelta(microseconds=1) * 1000), _LATEST)


def _is_anew(kind: str, before: Any, now: Any) -> bool:
    """Whether a row's counters are not those of the row before: another life, or a counter that fell."""
    if kind == "container" and before.start_boottime != now.start_boottime:
        return True
    for name in _COUNTERS.get(kind, ()):
        old, new = getattr(before, name), getattr(now, name)
        if old is not None and new is not None and new < old:
            return True
    return False


_COUNTERS = {
    kind: tuple(metric.field for metric in table().metrics if metric.source == kind and metric.is_counter)
    for kind in _MAY_FALL
}
