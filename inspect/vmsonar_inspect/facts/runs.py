"""What one command used, by the kernel's own totals and by the record of it; read without any tables."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import CommandRunRow, EventRow, JobRow, Sample
from vmsonar_archive.records.fields import about
from vmsonar_archive.system.errors import UsageError

from vmsonar_inspect.facts import quantities as q
from vmsonar_inspect.facts.energy import ESTIMATE, JOULES_PER_KWH, MEASURED, load_factor, provider_of
from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.queries import total
from vmsonar_inspect.facts.statuses import Status

#: Programs that are told one by one.
_PROGRAMS = 5
# Beyond this the record and wait4 do not tell of the same processes: a share, and seconds that ticks may hide.
_TOLERANCE, _TICKS = 0.01, 0.05
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)


class NoRun(UsageError):
    """An archive in which no command of `vmsonar run` is."""


class ProgramShare(q.AnswerPart):
    """One program within a command."""

    program: Annotated[str, q.TEXT]
    processes: Annotated[int, q.COUNT, about("least, where some are unnamed")]
    cpu_seconds: Annotated[float | None, q.BUSY, about("least: of what samples and ends told")] = None


class RunUse(q.AnswerPart):
    """One command that `vmsonar run` recorded."""

    command: Annotated[str | None, q.TEXT, titled("command")] = None
    archive: Annotated[str | None, q.TEXT, about("path of its record")] = None
    recording: Annotated[str | None, q.TEXT, about("id of its record, wherever copies of that are")] = None
    started: Annotated[datetime | None, q.TIME, titled("started")] = None
    ended: Annotated[datetime | None, q.TIME] = None
    elapsed_seconds: Annotated[float | None, q.ELAPSED, titled("elapsed", low="elapsed_seconds_low")] = None
    elapsed_seconds_low: Annotated[float | None, q.ELAPSED, about("of a job whose end nobody told")] = None
    exit_code: Annotated[int | None, q.NUMBER] = None
    exit_signal: Annotated[int | None, q.NUMBER] = None
    core_dumped: bool = False
    ended_by: Annotated[str | None, q.TEXT, titled("end"), about("in words, with the evidence")] = None
    cpu_seconds: Annotated[
        float | None,
        q.BUSY,
        titled("CPU time", bound="cpu_is_lower_bound", low="cpu_seconds_low", high="cpu_seconds_high"),
    ] = None
    cpu_seconds_low: Annotated[float | None, q.BUSY, about("where it is by the record")] = None
    cpu_seconds_high: Annotated[float | None, q.BUSY] = None
    cpu_is_lower_bound: bool = False
    cpu_source: Annotated[str | None, q.CHOICE, about("cgroup, wait4 or record")] = None
    wait4_cpu_seconds: Annotated[
        float | None, q.BUSY, about("by wait4: of it and of the descendants that were waited for")
    ] = None
    recorded_cpu_seconds: Annotated[float | None, q.BUSY, about("by the record")] = None
    recorded_cpu_seconds_low: Annotated[float | None, q.BUSY] = None
    recorded_cpu_seconds_high: Annotated[float | None, q.BUSY] = None
    cores: Annotated[
        float | None, q.CORES, titled("cores", like="cpu_seconds"), about("mean over its life")
    ] = None
    cores_available: Annotated[float | None, q.CORES, about("by affinity and control groups")] = None
    memory_peak_bytes: Annotated[
        float | None,
        q.BYTES,
        titled(
            "memory",
            low="memory_peak_low_bytes",
            high="memory_peak_high_bytes",
            bound="memory_peak_source=sampled",
            estimate="memory_source=estimate",
        ),
    ] = None
    memory_source: Annotated[
        str | None,
        q.CHOICE,
        about("of a job, how shared memory was resolved, the weakest; else in the bounds"),
    ] = None
    memory_peak_low_bytes: Annotated[float | None, q.BYTES] = None
    memory_peak_high_bytes: Annotated[float | None, q.BYTES] = None
    memory_peak_source: Annotated[
        str | None, q.CHOICE, about("sampled: a lower bound; accounts or high_water: between the bounds")
    ] = None
    memory_charged_peak_bytes: Annotated[
        float | None, q.BYTES, about("of its own control group, page cache included")
    ] = None
    resident_peak_bytes: Annotated[float | None, q.BYTES, about("of its largest process")] = None
    memory_total_bytes: Annotated[float | None, q.BYTES, about("the machine's")] = None
    memory_limit_bytes: Annotated[float | None, q.BYTES, about("of the control groups it is in")] = None
    read_bytes: Annotated[
        float | None,
        q.BYTES,
        titled("read", bound="io_is_lower_bound", low="read_bytes_low", high="read_bytes_high"),
    ] = None
    read_bytes_low: Annotated[float | None, q.BYTES] = None
    read_bytes_high: Annotated[float | None, q.BYTES] = None
    write_bytes: Annotated[
        float | None,
        q.BYTES,
        titled("written", bound="io_is_lower_bound", low="write_bytes_low", high="write_bytes_high"),
    ] = None
    write_bytes_low: Annotated[float | None, q.BYTES] = None
    write_bytes_high: Annotated[float | None, q.BYTES] = None
    io_is_lower_bound: bool = False
    received_bytes: Annotated[float | None, q.BYTES, about("by the machine meanwhile")] = None
    sent_bytes: Annotated[float | None, q.BYTES, about("by the machine meanwhile")] = None
    waited_cpu: Annotated[float | None, q.SHARE, about("of its time in which something waited")] = None
    waited_memory: Annotated[float | None, q.SHARE] = None
    waited_io: Annotated[float | None, q.SHARE] = None
    waited_source: Annotated[str | None, q.CHOICE, about("cgroup: its own; machine: all of it")] = None
    gpu_util: Annotated[float | None, q.PERCENT, titled("GPU"), about("mean of the machine's cards")] = None
    energy: Annotated[q.Energy, q.ENERGY, titled("energy")] = q.Energy()
    programs: list[ProgramShare] = msgspec.field(default_factory=list)
    programs_cpu_seconds: Annotated[
        float | None, q.BUSY, about("least: of all programs, as far as samples told of each")
    ] = None
    processes: Annotated[int | None, q.COUNT, about("that samples or ends told of")] = None
    unnamed_processes: Annotated[int, q.COUNT, about("of these, ended before their program was known")] = 0
    left_behind: Annotated[int | None, q.COUNT, about("ran on after its end")] = None
    samples: Annotated[int, q.COUNT] = 0
    trouble: Annotated[str | None, q.TEXT, about("why there is no record, or not all of it")] = None
    verdicts: Annotated[list[str], about("those that matter, in words")] = msgspec.field(default_factory=list)
    size: Annotated[str | None, q.TEXT, about("the machine that would have been enough")] = None

    @property
    def is_agreed(self) -> bool:
        """Whether the totals lie within what the record has, but for what ticks round off."""
        low, high = self.recorded_cpu_seconds_low, self.recorded_cpu_seconds_high
        exact = self.cpu_seconds
        if self.cpu_source == "record" or exact is None or low is None or high is None:
            return True
        slack = _TOLERANCE * exact + _TICKS
        return low - slack <= exact <= high + slack


def read_run(path: Path | None, totals: dict[str, Any] | None = None) -> RunUse:
    """The command that an archive or bundle of `vmsonar run` tells of, the last one if it holds several.

    Who waited for the command has its totals, whatever became of the record; without a path there is none.
    """
    records, provider = defaultdict[str, _Record](_Record), None
    if path is not None:
        with open_archive(path) as archive:
            for sample in archive.samples():
                records[sample.run].add(sample)
            provider = next((info.cloud_provider for info in archive.sysinfos()), None)
    latest = [*reversed(records.values()), _Record()]
    record = next((each for each in latest if each.row), latest[0])
    if totals is not None and (record.row is None or record.row.elapsed is None):
        row = record.row or CommandRunRow(pid=0)
        record.row = row = msgspec.structs.replace(row, totals_source="wait4", **totals)
        if row.started is not None and row.elapsed is not None:
            row.ended = row.started + timedelta(microseconds=row.elapsed // 1000)
    if record.row is None:
        raise NoRun(f"{path} tells of no command of vmsonar run; compare takes jobs of it as {path}#JOB")
    return record.use(record.row, None if path is None else str(path), provider)


class _Record:
    """What the samples of one command amount to."""

    def __init__(self) -> None:
        self.row: CommandRunRow | None = None
        self._first: Sample | None = None
        self._last: Sample | None = None
        self._count = 0
        self._jobs: dict[tuple[int, int], JobRow] = {}
        self._highest = self._surest = self._byte_seconds = 0.0
        self._names: dict[tuple[int, int], str] = {}
        self._ticks: dict[tuple[int, int], int] = {}
        self._ended: Counter[str] = Counter()
        self._util: list[float] = []
        self._exits: dict[int, EventRow] = {}

    def add(self, sample: Sample) -> None:
        """Takes a sample in; they come in order."""
        before, self._last = self._last or sample, sample
        self._first = self._first or sample
        self._count += 1
        for row in sample.command_run:
            self.row = row
        self._jobs.update({(job.pgid, job.start_ticks): job for job in sample.job})
        alive = [job for job in sample.job if job.processes]
        memory = sum(job.memory or 0 for job in alive)
        self._highest = max(self._highest, memory)
        self._surest = max(self._surest, sum(_known(job.memory_low, job.memory) for job in alive))
        self._byte_seconds += memory * (sample.boottime - before.boottime) / 1e9
        for info in sample.process_info:
            self._names[info.pid, info.start_ticks] = info.program or "unknown"
        for process in sample.process:
            key = process.pid, process.start_ticks
            self._ticks[key] = (process.user_ticks or 0) + (process.system_ticks or 0)
        for event in sample.event:
            if event.event_type == "exits_counted":
                self._ended[event.program or ""] += event.exits or 0
            elif event.event_type == "exit" and event.pid is not None:
                self._exits[event.pid] = event
        self._util += [card.gpu_util for card in sample.gpu if card.gpu_util is not None]

    def use(self, row: CommandRunRow, path: str | None, provider: str | None) -> RunUse:
        told: CommandRunRow | EventRow = row
        if (
            row.exit_code is None and row.exit_signal is None
        ):  # who waited for it was killed; the kernel told us
            told = self._exits.get(row.pid, row)
        dumped = bool(told.core_dumped)
        status = Status(row.ended or row.started or _UNKNOWN_TIME, told.exit_code, told.exit_signal, dumped)
        before = "the record ends" if row.elapsed is None else "vmsonar ended"
        use = RunUse(
            command=row.command,
            archive=path,
            recording=self._first.run if self._first else None,
            started=row.started,
            ended=row.ended,
            elapsed_seconds=None if row.elapsed is None else row.elapsed / 1e9,
            exit_code=told.exit_code,
            exit_signal=told.exit_signal,
            core_dumped=dumped,
            ended_by=status.words if status.is_known else f"not known: {before} before it",
            left_behind=row.left_behind,
            samples=self._count,
            gpu_util=sum(self._util) / len(self._util) if self._util else None,
        )
        self._set_cpu(use, row)
        self._set_memory(use, row)
        self._set_traffic(use, row)
        self._set_energy(use, provider)
        self._set_programs(use)
        return use

    def _node(self, name: str) -> Any:
        """A figure of the machine, in the last sample."""
        return next((getattr(row, name) for row in self._last.node), None) if self._last else None

    @property
    def _hertz(self) -> int:
        return self._node("ticks_per_second") or 100

    def _sum(self, value: Callable[[JobRow], int | None], figure: str = "") -> int | None:
        """Over all jobs; a bound, which only those have that are not exact, is else the figure of that name."""
        values = ((job, value(job)) for job in self._jobs.values())
        found = [getattr(job, figure) if each is None and figure else each for job, each in values]
        known = [each for each in found if each is not None]
        return sum(known) if known else None

    def _seconds(self, bound: str = "") -> float | None:
        """The CPU time by the record, or a bound of it where there is one."""

        def ticks(job: JobRow) -> int | None:
            if bound and (limit := getattr(job, bound)) is not None:
                return int(limit)
            return None if job.user_ticks is None else job.user_ticks + (job.system_ticks or 0)

        return None if (found := self._sum(ticks)) is None else found / self._hertz

    def _set_cpu(self, use: RunUse, row: CommandRunRow) -> None:
        use.recorded_cpu_seconds = best = self._seconds()
        use.recorded_cpu_seconds_low = self._seconds("cpu_ticks_low")
        use.recorded_cpu_seconds_high = self._seconds("cpu_ticks_high")
        waited = None if row.user_time is None else (row.user_time + (row.system_time or 0)) / 1e9
        use.wait4_cpu_seconds = waited
        if row.group_cpu_time is not None:
            use.cpu_seconds, use.cpu_source = row.group_cpu_time / 1e9, "cgroup"
        elif waited is not None and (best or 0.0) <= waited * (1 + _TOLERANCE) + _TICKS:
            use.cpu_seconds, use.cpu_source = waited, "wait4"
        elif best is not None:
            # Some descendants were never waited for; what the others used is in the record too.
            use.cpu_seconds, use.cpu_source = best, "record"
            use.cpu_seconds_low, use.cpu_seconds_high = (
                use.recorded_cpu_seconds_low,
                use.recorded_cpu_seconds_high,
            )
            use.cpu_is_lower_bound = any(job.unattributed for job in self._jobs.values())
        if use.cpu_seconds is not None and use.elapsed_seconds:
            use.cores = use.cpu_seconds / use.elapsed_seconds
        allowed = [row.cpus_available, None if row.cpu_quota is None else row.cpu_quota / 1e6]
        use.cores_available = min((each for each in allowed if each is not None), default=None)

    def _set_memory(self, use: RunUse, row: CommandRunRow) -> None:
        jobs = self._jobs.values()
        # By the alphabet the weakest is the last. A group that no sample read has no peak, and says sampled.
        use.memory_peak_source = max((job.memory_peak_source or "sampled" for job in jobs), default=None)
        peak = low = high = None
        if peaks := [job.memory_peak for job in jobs if job.memory_peak is not None]:
            lows = (_known(job.memory_peak_low, job.memory_peak) for job in jobs)
            peak = max(self._highest, *peaks)
            low = min(peak, max(self._surest, *lows))
        if use.memory_peak_source == "sampled":
            peak = low  # an estimate without an upper bound
        elif jobs:
            high = sum(_known(job.memory_peak_high, job.memory_peak) for job in jobs)
            peak, low = (high, 0.0) if peak is None else (peak, low)
            high = max(peak, high)
        use.memory_peak_bytes, use.memory_peak_low_bytes, use.memory_peak_high_bytes = peak, low, high
        use.memory_charged_peak_bytes = row.group_memory_peak
        use.resident_peak_bytes = row.resident_peak
        use.memory_limit_bytes = row.memory_limit
        use.memory_total_bytes = self._node("memory_total")

    def _set_traffic(self, use: RunUse, row: CommandRunRow) -> None:
        use.read_bytes, use.write_bytes = row.group_read_bytes, row.group_write_bytes
        if use.read_bytes is None:
            use.io_is_lower_bound = any(job.io_partial for job in self._jobs.values())
            for name in ("read_bytes", "write_bytes"):
                for part in (name, f"{name}_low", f"{name}_high"):
                    setattr(use, part, self._sum(lambda job, part=part: getattr(job, part), name))  # type: ignore[misc]
                if any(
                    job.io_partial and getattr(job, f"{name}_high") is None for job in self._jobs.values()
                ):
                    setattr(use, f"{name}_high", None)
        use.received_bytes = self._rise(lambda each: _traffic(each, "received_bytes"))
        use.sent_bytes = self._rise(lambda each: _traffic(each, "sent_bytes"))
        use.waited_source = "machine" if row.waited_cpu is None else "cgroup"
        span = self._rise(lambda each: each.boottime) if row.waited_cpu is None else row.elapsed
        for name in ("cpu", "memory", "io"):
            waited = getattr(row, f"waited_{name}")
            if row.waited_cpu is None:
                waited = self._rise(lambda each, name=name: _pressure(each, name))  # type: ignore[misc]
            if waited is not None and span:
                setattr(use, f"waited_{name}", min(1.0, waited * 1000 / span))

    def _rise(self, value: Callable[[Sample], float | None]) -> float | None:
        """How much a counter of the machine rose."""
        if self._first is None or self._last is None or self._first is self._last:
            return None
        first, last = value(self._first), value(self._last)
        return None if first is None or last is None or last < first else last - first

    def _set_energy(self, use: RunUse, provider: str | None) -> None:
        if use.cpu_seconds is None:
            return
        averages, metered = provider_of(provider), self._rise(_package_joules)
        cpus = self._node("cpus_online")
        joules, source = averages.used(use.cpu_seconds, self._byte_seconds), ESTIMATE
        if metered is not None and cpus and use.elapsed_seconds:
            joules = metered * min(1.0, use.cpu_seconds / (cpus * use.elapsed_seconds))
            source = MEASURED
        kwh = joules / JOULES_PER_KWH
        grams = kwh * load_factor(None).at(use.started) * averages.pue
        use.energy = q.Energy(joules=joules, kwh=kwh, source=source, grams_co2e=grams)

    def _set_programs(self, use: RunUse) -> None:
        seen, spent = Counter[str](), Counter[str]()
        for key, ticks in self._ticks.items():
            seen[self._names.get(key, "unknown")] += 1
            spent[self._names.get(key, "unknown")] += ticks
        number = seen | self._ended  # of each the larger: most that ended were in a sample too
        use.programs_cpu_seconds = sum(spent.values()) / self._hertz if spent else None
        use.processes = sum(number.values()) or None
        use.unnamed_processes = number.pop("", 0)
        use.programs = [
            ProgramShare(
                program=name,
                processes=number[name],
                cpu_seconds=spent[name] / self._hertz if name in spent else None,
            )
            for name in sorted(number, key=lambda each: (-spent[each], -number[each]))[:_PROGRAMS]
        ]


def _known(bound: float | None, figure: float | None) -> float:
    """A bound, which is only recorded where it is apart from the figure."""
    return (figure or 0.0) if bound is None else bound


def _traffic(sample: Sample, name: str) -> float | None:
    """Of the interfaces that lead outward, as the tables count them."""
    physical = [row for row in sample.net if row.interface_kind == "physical"]
    outward = physical or [row for row in sample.net if row.default_route]
    return total(getattr(row, name) for row in outward)


def _pressure(sample: Sample, resource: str) -> float | None:
    return total(row.some_time for row in sample.pressure if row.resource == resource)


def _package_joules(sample: Sample) -> float | None:
    meters = (row for row in sample.energy if row.meter.startswith("rapl:package") and "/" not in row.meter)
    return total(None if row.energy is None else row.energy / 1e6 for row in meters)
