"""What one command used, by the kernel's own totals and by the record of it; read without any tables."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import CommandRunRow, JobRow, Sample
from vmsonar_archive.records.fields import about
from vmsonar_archive.system.errors import AnswerIsNo

from vmsonar_inspect.facts.energy import ESTIMATE, JOULES_PER_KWH, MEASURED, load_factor, provider_of
from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.quantities import (
    BUSY,
    BYTES,
    CHOICE,
    CORES,
    COUNT,
    ENERGY,
    NUMBER,
    PERCENT,
    SECONDS,
    SHARE,
    TEXT,
    TIME,
    AnswerPart,
    Energy,
)  # fmt: skip
from vmsonar_inspect.facts.queries import total
from vmsonar_inspect.facts.statuses import Status

#: Programs that are told one by one.
_PROGRAMS = 5
# Beyond this the record and wait4 do not tell of the same processes: a share, and seconds that ticks may hide.
_TOLERANCE, _TICKS = 0.01, 0.05
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)


class ProgramShare(AnswerPart):
    """One program within a command."""

    program: Annotated[str, TEXT]
    processes: Annotated[int, COUNT]
    cpu_seconds: Annotated[float | None, BUSY, about("least: of what samples and ends told")] = None


class RunUse(AnswerPart):
    """One command that `vmsonar run` recorded."""

    command: Annotated[str | None, TEXT, titled("command")] = None
    archive: Annotated[str | None, TEXT, about("path of its record")] = None
    started: Annotated[datetime | None, TIME, titled("started")] = None
    ended: Annotated[datetime | None, TIME] = None
    elapsed_seconds: Annotated[float | None, SECONDS, titled("elapsed")] = None
    exit_code: Annotated[int | None, NUMBER] = None
    exit_signal: Annotated[int | None, NUMBER] = None
    core_dumped: bool = False
    ended_by: Annotated[str | None, TEXT, titled("end"), about("in words, with the evidence")] = None
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time")] = None
    cpu_source: Annotated[str | None, CHOICE, about("cgroup, wait4 or record")] = None
    recorded_cpu_seconds: Annotated[float | None, BUSY, about("by the record")] = None
    recorded_cpu_seconds_low: Annotated[float | None, BUSY] = None
    recorded_cpu_seconds_high: Annotated[float | None, BUSY] = None
    cores: Annotated[float | None, CORES, titled("cores"), about("mean over its life")] = None
    cores_available: Annotated[float | None, CORES, about("by affinity and control groups")] = None
    memory_peak_bytes: Annotated[float | None, BYTES, titled("memory")] = None
    memory_peak_low_bytes: Annotated[float | None, BYTES] = None
    memory_peak_high_bytes: Annotated[float | None, BYTES] = None
    memory_charged_peak_bytes: Annotated[
        float | None, BYTES, about("of its own control group, page cache included")
    ] = None
    resident_peak_bytes: Annotated[float | None, BYTES, about("of its largest process")] = None
    memory_total_bytes: Annotated[float | None, BYTES, about("the machine's")] = None
    memory_limit_bytes: Annotated[float | None, BYTES, about("of the control groups it is in")] = None
    read_bytes: Annotated[float | None, BYTES, titled("read")] = None
    write_bytes: Annotated[float | None, BYTES, titled("written")] = None
    io_is_lower_bound: bool = False
    received_bytes: Annotated[float | None, BYTES, about("by the machine meanwhile")] = None
    sent_bytes: Annotated[float | None, BYTES, about("by the machine meanwhile")] = None
    waited_cpu: Annotated[float | None, SHARE, about("of its time in which something waited")] = None
    waited_memory: Annotated[float | None, SHARE] = None
    waited_io: Annotated[float | None, SHARE] = None
    waited_source: Annotated[str | None, CHOICE, about("cgroup: its own; machine: all of it")] = None
    gpu_util: Annotated[float | None, PERCENT, titled("GPU"), about("mean of the machine's cards")] = None
    energy: Annotated[Energy, ENERGY, titled("energy")] = Energy()
    programs: list[ProgramShare] = msgspec.field(default_factory=list)
    processes: Annotated[int | None, COUNT, about("that samples or ends told of")] = None
    left_behind: Annotated[int | None, COUNT, about("ran on after its end")] = None
    samples: Annotated[int, COUNT] = 0
    trouble: Annotated[str | None, TEXT, about("why there is no record, or not all of it")] = None
    verdicts: Annotated[list[str], about("those that matter, in words")] = msgspec.field(default_factory=list)
    size: Annotated[str | None, TEXT, about("the machine that would have been enough")] = None


def read_run(path: Path | None, command: str | None = None, totals: dict[str, Any] | None = None) -> RunUse:
    """The command that an archive or bundle of `vmsonar run` tells of.

    Who waited for the command has its totals, whatever became of the record; without a path there is none.
    """
    record, provider = _Record(), None
    if path is not None:
        with open_archive(path) as archive:
            for sample in archive.samples():
                record.add(sample)
            provider = next((info.cloud_provider for info in archive.sysinfos()), None)
    if totals is not None and (record.row is None or record.row.elapsed is None):
        row = record.row or CommandRunRow(pid=0, command=command)
        record.row = msgspec.structs.replace(row, totals_source="wait4", **totals)
    if record.row is None:
        raise AnswerIsNo(f"{path} tells of no command: vmsonar run makes such a record")
    return record.use(None if path is None else str(path), provider)


class _Record:
    """What the samples of one command amount to."""

    def __init__(self) -> None:
        self.row: CommandRunRow | None = None
        self._samples: list[Sample] = []
        self._count = 0
        self._jobs: dict[tuple[int, int], JobRow] = {}
        self._highest = self._byte_seconds = 0.0
        self._names: dict[tuple[int, int], str] = {}
        self._ticks: dict[tuple[int, int], int] = {}
        self._ended: Counter[str] = Counter()
        self._util: list[float] = []

    def add(self, sample: Sample) -> None:
        """Takes a sample in; they come in order."""
        self._count += 1
        for row in sample.command_run:
            self.row = row
        before = self._samples[-1] if self._samples else sample
        # The first and the last sample hold the counters of the machine.
        self._samples = [*self._samples[:1], sample]
        self._jobs.update({(job.pgid, job.start_ticks): job for job in sample.job})
        memory = sum(job.memory or 0 for job in sample.job if job.processes)
        self._highest = max(self._highest, memory)
        self._byte_seconds += memory * (sample.boottime - before.boottime) / 1e9
        for info in sample.process_info:
            self._names[info.pid, info.start_ticks] = info.program or "unknown"
        for process in sample.process:
            key = process.pid, process.start_ticks
            self._ticks[key] = (process.user_ticks or 0) + (process.system_ticks or 0)
        for event in sample.event:
            if event.event_type == "exits_counted" and event.program:
                self._ended[event.program] += event.exits or 0
        self._util += [card.gpu_util for card in sample.gpu if card.gpu_util is not None]

    def use(self, path: str | None, provider: str | None) -> RunUse:
        row = self.row
        assert row is not None
        use = RunUse(archive=path, samples=self._count, trouble=None)
        for name in ("command", "started", "ended", "exit_code", "exit_signal", "left_behind"):
            setattr(use, name, getattr(row, name))
        use.core_dumped = bool(row.core_dumped)
        use.elapsed_seconds = None if row.elapsed is None else row.elapsed / 1e9
        status = Status(
            row.ended or row.started or _UNKNOWN_TIME, row.exit_code, row.exit_signal, use.core_dumped
        )
        use.ended_by = status.words if status.is_known else "not known: vmsonar was killed before it ended"
        self._set_cpu(use, row)
        self._set_memory(use, row)
        self._set_traffic(use, row)
        self._set_energy(use, provider)
        self._set_programs(use)
        use.gpu_util = sum(self._util) / len(self._util) if self._util else None
        return use

    def _node(self, name: str) -> Any:
        """A figure of the machine, in the last sample."""
        return next((getattr(row, name) for sample in self._samples[-1:] for row in sample.node), None)

    def _sum(self, value: Callable[[JobRow], int | None]) -> int | None:
        found = [each for job in self._jobs.values() if (each := value(job)) is not None]
        return sum(found) if found else None

    def _set_cpu(self, use: RunUse, row: CommandRunRow) -> None:
        hertz = self._node("ticks_per_second") or 100
        best, low, high = (
            None if ticks is None else ticks / hertz
            for ticks in (self._sum(_ticks), self._sum(_ticks_low), self._sum(_ticks_high))
        )
        use.recorded_cpu_seconds, use.recorded_cpu_seconds_low, use.recorded_cpu_seconds_high = (
            best,
            low,
            high,
        )
        waited = None if row.user_time is None else (row.user_time + (row.system_time or 0)) / 1e9
        if row.group_cpu_time is not None:
            use.cpu_seconds, use.cpu_source = row.group_cpu_time / 1e9, "cgroup"
        elif waited is not None and (best or 0.0) <= waited * (1 + _TOLERANCE) + _TICKS:
            use.cpu_seconds, use.cpu_source = waited, "wait4"
        elif best is not None:
            # Some descendants were never waited for; what the others used is in the record too.
            use.cpu_seconds, use.cpu_source = best, "record"
        if use.cpu_seconds is not None and use.elapsed_seconds:
            use.cores = use.cpu_seconds / use.elapsed_seconds
        allowed = [row.cpus_available, None if row.cpu_quota is None else row.cpu_quota / 1e6]
        use.cores_available = min((each for each in allowed if each is not None), default=None)

    def _set_memory(self, use: RunUse, row: CommandRunRow) -> None:
        peaks = [job.memory_peak for job in self._jobs.values() if job.memory_peak is not None]
        if peaks:
            use.memory_peak_bytes = max(self._highest, *peaks)
            highs = self._sum(lambda job: job.memory_peak_high or job.memory_peak)
            use.memory_peak_low_bytes = min(
                use.memory_peak_bytes,
                max(
                    self._highest,
                    *(job.memory_peak_low or job.memory_peak or 0 for job in self._jobs.values()),
                ),
            )
            use.memory_peak_high_bytes = max(use.memory_peak_bytes, highs or 0)
        use.memory_charged_peak_bytes = row.group_memory_peak
        use.resident_peak_bytes = row.resident_peak
        use.memory_limit_bytes = row.memory_limit
        use.memory_total_bytes = self._node("memory_total")

    def _set_traffic(self, use: RunUse, row: CommandRunRow) -> None:
        use.read_bytes, use.write_bytes = row.group_read_bytes, row.group_write_bytes
        if use.read_bytes is None:
            use.read_bytes = self._sum(lambda job: job.read_bytes)
            use.write_bytes = self._sum(lambda job: job.write_bytes)
            use.io_is_lower_bound = any(job.io_partial for job in self._jobs.values())
        use.received_bytes = self._rise(lambda each: _traffic(each, "received_bytes"))
        use.sent_bytes = self._rise(lambda each: _traffic(each, "sent_bytes"))
        span = row.elapsed / 1000 if row.elapsed else None
        use.waited_source = "machine" if row.waited_cpu is None else "cgroup"
        for name in ("cpu", "memory", "io"):
            waited = getattr(row, f"waited_{name}")
            if row.waited_cpu is None:
                waited = self._rise(lambda each, name=name: _pressure(each, name))  # type: ignore[misc]
            setattr(use, f"waited_{name}", None if waited is None or not span else min(1.0, waited / span))

    def _rise(self, value: Callable[[Sample], float | None]) -> float | None:
        """How much a counter of the machine rose."""
        if len(self._samples) < 2:
            return None
        first, last = map(value, self._samples)
        return None if first is None or last is None or last < first else last - first

    def _set_energy(self, use: RunUse, provider: str | None) -> None:
        averages, factor = provider_of(provider), load_factor(None)
        metered = self._rise(_package_joules)
        cpus = self._node("cpus_online")
        if use.cpu_seconds is None:
            return
        joules, source = averages.used(use.cpu_seconds, self._byte_seconds), ESTIMATE
        if metered is not None and cpus and use.elapsed_seconds:
            joules = metered * min(1.0, use.cpu_seconds / (cpus * use.elapsed_seconds))
            source = MEASURED
        kwh = joules / JOULES_PER_KWH
        grams = kwh * factor.at(use.started) * averages.pue
        use.energy = Energy(joules=joules, kwh=kwh, source=source, grams_co2e=grams)

    def _set_programs(self, use: RunUse) -> None:
        hertz = self._node("ticks_per_second") or 100
        seen, spent = Counter[str](), Counter[str]()
        for key, ticks in self._ticks.items():
            seen[self._names.get(key, "unknown")] += 1
            spent[self._names.get(key, "unknown")] += ticks
        number = seen | self._ended  # of each the larger: most that ended were in a sample too
        use.processes = sum(number.values()) or None
        use.programs = [
            ProgramShare(
                program=name,
                processes=number[name],
                cpu_seconds=spent[name] / hertz if name in spent else None,
            )
            for name in sorted(number, key=lambda each: (-spent[each], -number[each]))[:_PROGRAMS]
        ]


def _ticks(job: JobRow) -> int | None:
    return None if job.user_ticks is None else job.user_ticks + (job.system_ticks or 0)


def _ticks_low(job: JobRow) -> int | None:
    return _ticks(job) if job.cpu_ticks_low is None else job.cpu_ticks_low


def _ticks_high(job: JobRow) -> int | None:
    return _ticks(job) if job.cpu_ticks_high is None else job.cpu_ticks_high


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
