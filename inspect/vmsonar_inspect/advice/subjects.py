"""The figures of each subject, the verdicts on it, and the size that would have done."""

from functools import partial
from typing import TypedDict

from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio, spread
from vmsonar_inspect.advice.rules import RuleBook, Sizes
from vmsonar_inspect.advice.verdicts import enough, fitting, judge
from vmsonar_inspect.facts.jobs import JobContext
from vmsonar_inspect.facts.model import (
    Advice,
    ContainerUse,
    Coverage,
    GpuUse,
    JobUse,
    Machine,
    NodeUse,
    Size,
    Verdict,
)

Numbers = dict[str, float | None]


class _Gain(TypedDict, total=False):
    larger_would_help: bool
    larger_why: str


_WHY = {
    "cores": "more cores would have been used",
    "memory": "it ran short of memory",
    "disk": "a faster disk, not a larger machine",
}


def machine_figures(
    machine: Machine, coverage: Coverage, use: NodeUse, containers: list[ContainerUse]
) -> Numbers:
    """What rules about the machine compare."""
    cpus, memory = use.cpus or machine.cpus, use.memory_total_bytes or machine.memory_bytes
    moved = (
        None if use.disk_read_rate.mean is None else use.disk_read_rate.mean + (use.disk_write_rate.mean or 0)
    )
    return {
        "samples": coverage.samples,
        "seconds": coverage.covered_seconds,
        "coverage": coverage.coverage,
        "cpus": cpus,
        **spread("cores", use.cores),
        "cores_share_mean": ratio(use.cores.mean, cpus),
        "cores_share_p95": ratio(use.cores.p95, cpus),
        **spread("memory", use.memory_bytes),
        "memory_total": memory,
        "memory_share_p95": ratio(use.memory_bytes.p95, memory),
        "memory_share_peak": ratio(use.memory_bytes.peak, memory),
        "steal_share_mean": use.steal_share,
        "pressure_cpu_mean": use.pressure_cpu,
        "pressure_memory_mean": use.pressure_memory,
        "pressure_io_mean": use.pressure_io,
        **spread("runnable", use.runnable),
        "forks_per_second": use.forks_per_second,
        "swap_rate": use.swap_rate,
        "major_faults_per_second": use.major_faults_per_second,
        "oom_kills": use.oom_kills,
        "container_oom_kills": sum(container.oom_kills or 0 for container in containers),
        "io_rate_mean": moved,
        "gpus": machine.gpus,
        **spread("gpu_util", use.gpu_util),
    }


def job_figures(job: JobUse, context: JobContext, machine: Machine, use: NodeUse, oom_kills: int) -> Numbers:
    """What rules about a job compare."""
    seconds = job.observed_seconds
    moved = (
        None
        if job.read_bytes is None and job.write_bytes is None
        else (job.read_bytes or 0) + (job.write_bytes or 0)
    )
    mean = job.cores.mean
    others = None if context.node_cores is None or mean is None else max(0.0, context.node_cores - mean)
    born = None if job.processes_seen is None else job.processes_seen - (job.processes_peak or 0)
    cpus = use.cpus or machine.cpus
    return {
        "samples": job.samples,
        "seconds": seconds,
        "coverage": _coverage(job),
        "cpus": cpus,
        **spread("cores", job.cores),
        "others_cores_mean": others,
        "node_busy_mean": ratio(context.node_cores, cpus),
        "pressure_cpu_mean": context.pressure_cpu,
        "pressure_memory_mean": context.pressure_memory,
        "pressure_io_mean": context.pressure_io,
        "runnable_mean": context.runnable,
        **spread("threads", job.threads),
        "workers": context.workers,
        "top_worker_share": context.top_worker_share,
        "processes_seen": job.processes_seen,
        "processes_peak": job.processes_peak,
        "births_per_minute": ratio(born, None if seconds is None else seconds / 60),
        "short_lived_share": _unseen(job.cpu_seconds, context.seen_cpu_seconds),
        "forks_per_second": context.forks,
        **spread("memory", job.memory_bytes),
        "memory_total": use.memory_total_bytes,
        "major_faults_per_second": ratio(job.major_faults, seconds),
        "oom_kills": oom_kills,
        "io_rate_mean": ratio(moved, seconds),
        "io_share": ratio(moved, context.disk_bytes),
        "gpus": len(job.gpus) or None,
        **spread("gpu_util", job.gpu_util),
        "gpu_memory_peak": job.gpu_memory_bytes.peak,
    }


def _unseen(used: float | None, seen: float | None) -> float | None:
    """The share of a job's CPU time that no sampled process accounts for."""
    share = ratio(seen, used)
    return None if share is None else max(0.0, 1 - share)


def _coverage(job: JobUse) -> float | None:
    """The share of the time between its first and last sample that was seen."""
    if job.first is None or job.last is None or job.observed_seconds is None:
        return None
    span = (job.last - job.first).total_seconds()
    return min(1.0, job.observed_seconds / span) if span > 0 else 1.0


def container_figures(container: ContainerUse, limit_share: float | None, cpus: int | None) -> Numbers:
    """What rules about a container compare."""
    return {
        "samples": container.samples,
        "seconds": container.observed_seconds,
        "coverage": 1.0,
        "cpus": cpus,
        **spread("cores", container.cores),
        "quota_cores": container.quota_cores,
        "throttled_share": container.throttled_share,
        **spread("memory", container.memory_bytes),
        "memory_limit": container.memory_limit_bytes,
        "memory_limit_share_p95": limit_share,
        "oom_kills": container.oom_kills,
    }


def gpu_figures(gpu: GpuUse, coverage: Coverage) -> Numbers:
    """What rules about a GPU compare."""
    return {
        "samples": gpu.samples,
        "seconds": gpu.observed_seconds,
        "coverage": coverage.coverage,
        **spread("gpu_util", gpu.gpu_util),
        "gpu_memory_peak": gpu.memory_bytes.peak,
        "gpu_memory_peak_share": ratio(gpu.memory_bytes.peak, gpu.memory_total_bytes),
        "gpu_memory_p95_share": ratio(gpu.memory_bytes.p95, gpu.memory_total_bytes),
        "gpu_errors": gpu.errors,
    }


def machine_advice(
    book: RuleBook,
    machine: Machine,
    coverage: Coverage,
    use: NodeUse,
    gpus: list[GpuUse],
    containers: list[ContainerUse],
) -> Advice:
    """The machine's use against what was there."""
    figures = machine_figures(machine, coverage, use, containers)
    name = plain(machine.hostname or machine.archive[:8])
    verdicts = judge(book, "machine", machine.archive, name, figures)
    known = enough(book.thin, figures)
    cards = [gpu for gpu in gpus if gpu.parent is None]
    busy = sum(1 for gpu in cards if _was_used(gpu)) if cards else None
    cpus = use.cpus or machine.cpus
    size = partial(_size, book.sizes if known else None, cpus=cpus, gpus=busy)
    return Advice(
        about="machine",
        subject=machine.archive,
        name=name,
        cpus=cpus,
        cores=use.cores,
        memory_total_bytes=use.memory_total_bytes or machine.memory_bytes,
        memory_bytes=use.memory_bytes,
        gpus=len(cards) or None,
        gpu_util=use.gpu_util,
        gpu_memory_total_bytes=sum(gpu.memory_total_bytes or 0 for gpu in cards) or None,
        gpu_memory_bytes=use.gpu_memory_bytes,
        disk_read_rate=use.disk_read_rate,
        disk_write_rate=use.disk_write_rate,
        received_rate=use.received_rate,
        sent_rate=use.sent_rate,
        enough_data=known,
        size_p95=size(use.cores.p95, use.memory_bytes.p95),
        size_peak=size(use.cores.peak, use.memory_bytes.peak),
        **_gain(verdicts, known),
        verdicts=verdicts,
    )


def _size(
    sizes: Sizes | None, cores: float | None, memory: float | None, cpus: int | None, gpus: int | None
) -> Size | None:
    """The size that would have done; None where too little was seen."""
    if cores is not None and cpus is not None:
        # No more cores were busy than there were, whatever ticks and clocks say of a short interval.
        cores = min(cores, float(cpus))
    return None if sizes is None else fitting(sizes, cores, memory, gpus)


def _was_used(gpu: GpuUse) -> bool:
    held = ratio(gpu.memory_bytes.peak, gpu.memory_total_bytes) or 0.0
    return (gpu.gpu_util.p95 or 0.0) > 1 or held > 0.02


def job_advice(book: RuleBook, job: JobUse, figures: Numbers, use: NodeUse) -> Advice:
    """A job's use against what was there."""
    name = job_name(job)
    verdicts = judge(book, "job", job.series_id, name, figures)
    known = enough(book.thin, figures)
    busy = None if not job.gpus else (len(job.gpus) if (job.gpu_util.p95 or 0) > 5 else 0)
    size = partial(_size, book.sizes if known else None, cpus=use.cpus, gpus=busy)
    return Advice(
        about="job",
        subject=job.series_id,
        name=name,
        cpus=use.cpus,
        cores=job.cores,
        memory_total_bytes=use.memory_total_bytes,
        memory_bytes=job.memory_bytes,
        gpus=len(job.gpus) or None,
        gpu_util=job.gpu_util,
        gpu_memory_bytes=job.gpu_memory_bytes,
        disk_read_rate=job.read_rate,
        disk_write_rate=job.write_rate,
        enough_data=known,
        size_p95=size(job.cores.p95, job.memory_bytes.p95),
        size_peak=size(job.cores.peak, job.memory_bytes.peak),
        **_gain(verdicts, known),
        verdicts=verdicts,
    )


def job_name(job: JobUse) -> str:
    """What a person calls a job."""
    return f"job {plain(job.job)} ({plain(job.command or job.program)})"


def _gain(verdicts: list[Verdict], known: bool) -> _Gain:
    """Whether a larger machine would have helped, and by which verdict."""
    gains = [verdict for verdict in verdicts if verdict.gain in _WHY]
    larger = [verdict for verdict in gains if verdict.gain != "disk"]
    if larger:
        return {"larger_would_help": True, "larger_why": f"{_WHY[larger[0].gain]} ({larger[0].rule})"}
    if not known:
        return {}
    why = f"{_WHY['disk']} ({gains[0].rule})" if gains else "nothing waited for cores or memory"
    return {"larger_would_help": False, "larger_why": why}
