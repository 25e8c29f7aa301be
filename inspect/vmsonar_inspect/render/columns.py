"""The columns of every table: title, how a row is written, and how early a column goes when space is short."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from vmsonar_inspect import units
from vmsonar_inspect.model import Energy, JobUse
from vmsonar_inspect.text import plain


@dataclass(frozen=True, slots=True)
class Column:
    """One column; the lower its rank, the longer it stays."""

    title: str
    write: Callable[[Any], str]
    rank: int
    right: bool = True
    widest: int = 60
    least: int = 8
    #: Left out where nothing is known of it in any row.
    optional: bool = False


def clock(zone: tzinfo) -> Callable[[datetime | None], str]:
    """Writes a time in a zone."""

    def write(moment: datetime | None) -> str:
        return units.UNKNOWN if moment is None else f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}"

    return write


def short_clock(zone: tzinfo) -> Callable[[datetime | None], str]:
    """Writes a time to the minute in a zone."""

    def write(moment: datetime | None) -> str:
        return units.UNKNOWN if moment is None else f"{moment.astimezone(zone):%m-%d %H:%M}"

    return write


def bound(text: str, is_lower_bound: bool) -> str:
    """Marks what is only known to be at least that much."""
    return f"≥{text}" if is_lower_bound and text != units.UNKNOWN else text


def energy(value: Energy) -> str:
    """Energy, an estimate marked as such."""
    text = units.energy(value.joules)
    return f"~{text}" if value.source == "estimate" else text


def _io(read: float | None, write: float | None) -> str:
    if read is None and write is None:
        return units.UNKNOWN
    return f"{units.size(read)} / {units.size(write)}"


def job_columns(zone: tzinfo, many: bool) -> list[Column]:
    """Jobs."""
    host = [Column("machine", lambda job: plain(job.hostname), 1, right=False, widest=24)] if many else []
    return [
        *host,
        Column("job", lambda job: plain(job.job) if is_a_job(job) else "no group", 0, right=False, widest=16),
        Column("user", lambda job: plain(job.user), 2, right=False, widest=16),
        Column("program", lambda job: plain(job.program), 3, right=False, widest=20),
        Column("started", lambda job: short_clock(zone)(_started(job)), 10, right=False),
        Column("runtime", lambda job: units.duration(job.runtime_seconds), 4),
        Column("CPU time", lambda job: bound(units.hours(job.cpu_seconds), job.cpu_is_lower_bound), 1),
        Column("cores 50 %", lambda job: units.cores(job.cores.median), 11),
        Column("cores 95 %", lambda job: units.cores(job.cores.p95), 5),
        Column("cores peak", lambda job: units.cores(job.cores.peak), 12),
        Column("memory 50 %", lambda job: units.size(job.memory_bytes.median), 14),
        Column("memory peak", lambda job: units.size(job.memory_bytes.peak), 6),
        Column("GPU time", lambda job: units.hours(job.gpu_seconds) if job.gpus else "", 7),
        Column("GPU 95 %", lambda job: units.percent(job.gpu_util.p95) if job.gpus else "", 13),
        Column("read / written", lambda job: bound(_io(job.read_bytes, job.write_bytes), job.io_is_lower_bound), 15),
        Column("energy", lambda job: energy(job.energy), 16),
        Column("container", lambda job: plain(job.container, ""), 17, right=False, widest=20),
        Column("state", lambda job: "ended" if job.ended else "running", 18, right=False),
        Column("command", lambda job: plain(job.command), 8, right=False, least=12),
    ]  # fmt: skip


def is_a_job(job: JobUse) -> bool:
    """Group 0 is what the kernel shows of groups beyond a PID namespace: whatever they are, they are not one job."""
    return job.pgid != 0


def _started(job: JobUse) -> datetime | None:
    return job.started or job.first


def container_columns(zone: tzinfo, many: bool) -> list[Column]:
    """Containers."""
    host = [Column("machine", lambda box: plain(box.hostname), 1, right=False, widest=24)] if many else []
    return [
        *host,
        Column("container", lambda box: plain(box.name or box.container_id[:12]), 0, right=False, widest=28),
        Column("user", lambda box: plain(box.user), 6, right=False, widest=16),
        Column("image", lambda box: plain(box.image), 9, right=False, widest=36),
        Column("runtime", lambda box: units.duration(box.runtime_seconds), 4),
        Column("CPU time", lambda box: units.hours(box.cpu_seconds), 1),
        Column("cores 95 %", lambda box: units.cores(box.cores.p95), 3),
        Column("quota", lambda box: _limit(units.cores(box.quota_cores)), 10),
        Column("throttled", lambda box: units.share(box.throttled_share), 11),
        Column("memory peak", lambda box: units.size(box.memory_bytes.peak), 2),
        Column("limit", lambda box: _limit(units.size(box.memory_limit_bytes)), 5),
        Column("killed", lambda box: units.count(box.oom_kills), 7),
        Column("exit", lambda box: "" if box.exit_code is None else str(box.exit_code), 8),
        Column("read / written", lambda box: _io(box.read_bytes, box.write_bytes), 13),
        Column("received / sent", lambda box: _io(box.received_bytes, box.sent_bytes), 14),
        Column("energy", lambda box: energy(box.energy), 15),
        Column("seen from", lambda box: short_clock(zone)(box.first), 12, right=False),
    ]


def _limit(text: str) -> str:
    return "none" if text == units.UNKNOWN else text


def gpu_columns(many: bool) -> list[Column]:
    """GPUs."""
    host = [Column("machine", lambda gpu: plain(gpu.hostname), 1, right=False, widest=24)] if many else []
    return [
        *host,
        Column("GPU", lambda gpu: plain(gpu.gpu) if gpu.index is None else str(gpu.index), 0, right=False),
        Column("model", lambda gpu: plain(gpu.model), 6, right=False, widest=28),
        Column("busy 50 %", lambda gpu: units.percent(gpu.gpu_util.median), 3),
        Column("busy 95 %", lambda gpu: units.percent(gpu.gpu_util.p95), 1),
        Column("busy peak", lambda gpu: units.percent(gpu.gpu_util.peak), 4),
        Column("GPU time", lambda gpu: units.hours(gpu.gpu_seconds), 2),
        Column("memory peak", lambda gpu: units.size(gpu.memory_bytes.peak), 5),
        Column("of", lambda gpu: units.size(gpu.memory_total_bytes), 7),
        Column("power", lambda gpu: units.watts(gpu.power_watts.mean), 8),
        Column("energy", lambda gpu: energy(gpu.energy), 9),
        Column("hottest", lambda gpu: _degrees(gpu.temperature.peak), 11),
        Column("errors", lambda gpu: units.count(gpu.errors), 10),
        Column("jobs", lambda gpu: plain(", ".join(gpu.jobs)), 12, right=False, widest=30),
        Column("uuid", lambda gpu: plain(gpu.gpu), 13, right=False, widest=44),
    ]


def _degrees(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f} °C"


def group_columns(what: str) -> list[Column]:
    """Users or programs."""
    return [
        Column(what, lambda group: plain(group.name), 0, right=False, widest=28),
        Column("jobs", lambda group: units.count(group.jobs), 3),
        *([Column("users", lambda group: units.count(group.users), 9)] if what == "program" else []),
        Column("CPU time", lambda group: bound(units.hours(group.cpu_seconds), group.cpu_is_lower_bound), 1),
        Column("GPU time", lambda group: units.hours(group.gpu_seconds), 4, optional=True),
        Column("runtime", lambda group: units.duration(group.runtime_seconds), 8),
        Column("memory 50 %", lambda group: units.size(group.memory_median_bytes), 7),
        Column("memory 95 %", lambda group: units.size(group.memory_p95_bytes), 6),
        Column("memory peak", lambda group: units.size(group.memory_peak_bytes), 2),
        Column("read / written", lambda group: _io(group.read_bytes, group.write_bytes), 10),
        Column("energy", lambda group: energy(group.energy), 5),
        Column("CO2e", lambda group: units.grams(group.energy.grams_co2e), 11),
        *([Column("tags", lambda group: plain(", ".join(group.tags)), 12, right=False)] if what == "program" else []),
    ]  # fmt: skip


def moment_columns(zone: tzinfo) -> list[Column]:
    """The timeline."""
    return [
        Column("from", lambda at: clock(zone)(at.time), 0, right=False),
        Column("cores", lambda at: units.cores(at.cores), 1),
        Column("peak", lambda at: units.cores(at.cores_peak), 8),
        Column("memory", lambda at: units.size(at.memory_bytes), 2),
        Column("GPU", lambda at: units.percent(at.gpu_util), 3, optional=True),
        Column("disk read", lambda at: units.rate(at.disk_read_rate), 4),
        Column("written", lambda at: units.rate(at.disk_write_rate), 5),
        Column("received", lambda at: units.rate(at.received_rate), 6),
        Column("sent", lambda at: units.rate(at.sent_rate), 7),
        Column("waited for CPU", lambda at: units.share(at.pressure_cpu), 9),
        Column("for memory", lambda at: units.share(at.pressure_memory), 10),
        Column("for I/O", lambda at: units.share(at.pressure_io), 11),
    ]


_KINDS = {"no_samples": "no samples", "not_read": "not read", "damage": "damage"}


def gap_columns(zone: tzinfo) -> list[Column]:
    """What was not seen."""
    return [
        Column("what", lambda gap: _KINDS.get(gap.kind, gap.kind), 0, right=False),
        Column("from", lambda gap: clock(zone)(gap.begin), 1, right=False),
        Column("to", lambda gap: clock(zone)(gap.end), 6, right=False),
        Column("for", lambda gap: "" if gap.seconds is None else units.duration(gap.seconds), 2),
        Column("collector", lambda gap: plain(gap.collector, ""), 4, right=False, widest=16),
        Column("reason", lambda gap: plain(gap.reason, ""), 3, right=False, widest=24),
        Column("times", lambda gap: units.count(gap.times), 8),
        Column("lost", lambda gap: "" if gap.samples_lost is None else units.count(gap.samples_lost), 7),
        Column("detail", lambda gap: plain(gap.detail, ""), 5, right=False, widest=90, least=10),
    ]


def event_columns(zone: tzinfo) -> list[Column]:
    """What happened."""
    return [
        Column("time", lambda event: clock(zone)(event.time), 0, right=False),
        Column("what", lambda event: plain(event.what), 1, right=False, least=20),
        Column("about", lambda event: plain(event.subject, ""), 2, right=False, widest=30),
        Column("detail", lambda event: plain(event.detail, ""), 3, right=False, least=10),
    ]
