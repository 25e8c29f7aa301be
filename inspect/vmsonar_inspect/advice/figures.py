"""The figures that rules compare: how each is written, and what it is for a machine, job, container or GPU."""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec.structs import asdict

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.jobs import JobContext
from vmsonar_inspect.facts.model import (
    ContainerUse,
    Coverage,
    FilesystemUse,
    GpuUse,
    JobUse,
    Machine,
    NodeUse,
    ProgramEnds,
    StepUse,
    Use,
)
from vmsonar_inspect.facts.network import LinkUse, ShareContext, ShareUse
from vmsonar_inspect.facts.queries import total

Figures = Mapping[str, float | None]
#: What stands before a figure that is not exact, by its name.
Marks = Mapping[str, str]
NO_MARKS: Marks = {}
GIB = 2**30

_BY_WRITER: dict[units.Writer, str] = {
    units.count: """
        cpus runnable_mean runnable_median runnable_p95 threads_mean threads_p95 threads_peak
        workers processes_started processes_unseen processes_peak births_per_minute forks_per_second swap_rate
        major_faults_per_second oom_kills machine_oom_kills gpus gpu_errors samples killed_below_limit
        killed_at_limit forks_refused processes_limit inodes_total inodes_free_least ends failed failed_in_a_row
        machine_gpus short_jobs share_operations share_operations_rate share_waiting_mean share_timeouts
        strays allocated_gpus used_gpus untouched_gpus share_retransmissions link_exceeded link_drops link_errors
        batch_machines cut_short given_nodes tasks
    """,
    units.cores: """
        cores_mean cores_median cores_p95 cores_peak others_cores_mean quota_cores wanted_cores short_cores_mean
        allocated_cpus given_cores_used busiest_machine_cores
    """,
    units.share: """
        cores_share_mean cores_share_p95 node_busy_mean steal_share_mean pressure_cpu_mean
        pressure_memory_mean pressure_io_mean top_worker_share short_lived_share
        memory_share_p95 memory_share_peak machine_memory_share_peak memory_limit_share_p95 io_share throttled_share
        gpu_memory_peak_share gpu_memory_p95_share coverage
        disk_free_share disk_free_share_least inodes_free_share_least fill_share fill_fit
        open_files_share tasks_share connections_share
        memory_share_median saturated_share paired_share waited_share short_share
        share_metadata_share share_retransmitted_share share_traffic_share blocked_share
        link_dropped_share link_throttled_share allocated_cpus_share allocated_memory_share time_limit_share
        busiest_machine_share task_balance
    """,
    units.size: """
        memory_median memory_p95 memory_peak memory_total memory_limit memory_charged_peak gpu_memory_peak
        disk_total disk_free disk_free_least share_bytes_per_operation share_bytes home_write_bytes
        disk_write_bytes job_write_bytes allocated_memory given_memory_used
    """,
    units.rate: "io_rate_mean fill_rate late_fill_rate",
    units.percent: "gpu_util_mean gpu_util_p95 machine_gpu_util_mean",
    units.duration: """
        seconds fill_seconds seconds_to_full failed_seconds failed_gap idle_seconds short_runtime_median time_limit
        runtime outlived_seconds task_cpu_mean task_cpu_peak
    """,
    units.latency: "share_operation_seconds share_slowest_seconds process_cpu_mean",
    units.quantity: """
        core_hours waited_core_hours idle_core_hours failed_core_hours short_core_hours held_gib_hours free_gib_hours
        idle_gpu_hours machine_gpu_hours stray_core_hours held_core_hours
    """,
}
#: What a rule may say that is no figure.
WORDS = ("takers",)
#: How a figure is written, by its name; docs/inspect.md explains each.
WRITERS = {name: write for write, names in _BY_WRITER.items() for name in names.split()}

_PLACE = re.compile(r"\{(\w+)(?:\|([a-zA-Z ]+))?\}")


def written(name: str, value: float | None, marks: Marks = NO_MARKS) -> str:
    """One figure with its unit, and its mark where it is not exact."""
    return (marks.get(name, "") if value is not None else "") + WRITERS.get(name, units.count)(value)


def filled_in(
    template: str, figures: Figures, marks: Marks = NO_MARKS, words: Mapping[str, str] | None = None
) -> str:
    """Fills every {figure}, or {figure|noun} with the noun in singular or plural; nothing else has a meaning."""

    def fill(match: re.Match[str]) -> str:
        if match[1] in WORDS or match[1] in (words or {}):
            return (words or {}).get(match[1], "others")
        value = figures.get(match[1])
        noun = "" if match[2] is None else f" {match[2]}" + ("" if value == 1 else "s")
        return written(match[1], value, marks) + noun

    return _PLACE.sub(fill, template)


def places(template: str) -> list[str]:
    """The figures that a template shows."""
    return [match[1] for match in _PLACE.finditer(template) if match[1] not in WORDS]


def ratio(part: float | None, whole: float | None) -> float | None:
    """A share; None where either is unknown or the whole is zero."""
    return part / whole if part is not None and whole else None


def _spread(name: str, use: Use) -> Figures:
    """The four figures of a use."""
    return {f"{name}_{part}": value for part, value in asdict(use).items()}


def _pressures(told: NodeUse | JobContext) -> Figures:
    return {f"pressure_{of}_mean": getattr(told, f"pressure_{of}") for of in ("cpu", "memory", "io")}


def _hours(times: float | None, seconds: float | None) -> float | None:
    """So many of something for so many seconds, in hours of it."""
    return None if times is None or seconds is None else max(0.0, times) * seconds / 3600


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part


def machine_figures(machine: Machine, coverage: Coverage, use: NodeUse, limit_kills: int) -> Figures:
    """What rules about the machine compare."""
    cpus, memory = use.cpus or machine.cpus, use.memory_total_bytes or machine.memory_bytes
    read, wrote = use.disk_read_rate.mean, use.disk_write_rate.mean
    seconds, queued = coverage.covered_seconds, _less(use.runnable.mean, cpus)
    waited = max((each for each in (use.pressure_cpu, queued) if each is not None), default=None)
    return {
        "waited_core_hours": _hours(waited, seconds),
        "idle_core_hours": _hours(_less(cpus, use.cores.mean), seconds),
        "free_gib_hours": _hours(ratio(_less(memory, use.memory_bytes.peak), GIB), seconds),
        "saturated_share": use.saturated_share,
        "paired_share": use.paired_share,
        "samples": coverage.samples,
        "seconds": seconds,
        "coverage": coverage.coverage,
        "cpus": cpus,
        **_spread("cores", use.cores),
        "cores_share_mean": ratio(use.cores.mean, cpus),
        "cores_share_p95": ratio(use.cores.p95, cpus),
        **_spread("memory", use.memory_bytes),
        "memory_total": memory,
        "memory_share_p95": ratio(use.memory_bytes.p95, memory),
        "memory_share_peak": ratio(use.memory_bytes.peak, memory),
        "steal_share_mean": use.steal_share,
        **_pressures(use),
        **_spread("runnable", use.runnable),
        "forks_per_second": use.forks_per_second,
        "swap_rate": use.swap_rate,
        "major_faults_per_second": use.major_faults_per_second,
        "oom_kills": use.oom_kills,
        "open_files_share": use.open_files_share,
        "tasks_share": use.tasks_share,
        "connections_share": use.connections_share,
        "machine_oom_kills": None if use.oom_kills is None else max(0, use.oom_kills - limit_kills),
        "io_rate_mean": None if read is None else read + (wrote or 0),
        "gpus": machine.gpus,
        **_spread("gpu_util", use.gpu_util),
    }


def job_figures(job: JobUse, context: JobContext, machine: Machine, use: NodeUse, oom_kills: int) -> Figures:
    """What rules about a job compare."""
    seconds = job.observed_seconds
    moved = total((job.read_bytes, job.write_bytes))
    mean = job.cores.mean
    others = None if context.node_cores is None or mean is None else max(0.0, context.node_cores - mean)
    started = total((job.processes_seen, job.processes_unseen))
    born = None if started is None else started - (job.processes_peak or 0)
    cpus = use.cpus or machine.cpus
    seen = ratio(context.seen_cpu_seconds, job.cpu_seconds)
    missed = _less(context.wanted_cores, mean)
    return {
        "core_hours": _hours(mean, seconds),
        "held_gib_hours": _hours(ratio(job.memory_bytes.mean, GIB), seconds),
        "machine_gpu_hours": _hours(machine.gpus, seconds),
        "waited_core_hours": _hours(missed, seconds),
        "idle_gpu_hours": _idle_gpu_hours(job, [job]),
        **_lived(job),
        "wanted_cores": context.wanted_cores,
        "waited_share": None if missed is None else ratio(max(0.0, missed), context.wanted_cores) or 0.0,
        "saturated_share": context.saturated_share,
        "idle_seconds": context.idle_seconds,
        "machine_gpus": machine.gpus,
        "machine_gpu_util_mean": use.gpu_util.mean,
        "memory_share_median": ratio(job.memory_bytes.median, use.memory_total_bytes),
        "samples": job.samples,
        "seconds": seconds,
        "coverage": _coverage(job),
        "cpus": cpus,
        **_spread("cores", job.cores),
        "others_cores_mean": others,
        "node_busy_mean": ratio(context.node_cores, cpus),
        **_pressures(context),
        "runnable_mean": context.runnable,
        **_spread("threads", job.threads),
        "workers": context.workers,
        "top_worker_share": context.top_worker_share,
        "processes_started": started,
        "processes_unseen": job.processes_unseen,
        "processes_peak": job.processes_peak,
        "births_per_minute": ratio(born, None if seconds is None else seconds / 60),
        "process_cpu_mean": ratio(job.cpu_seconds, started),
        # CPU time that no sampled process accounts for.
        "short_lived_share": None if seen is None else max(0.0, 1 - seen),
        "forks_per_second": context.forks,
        **_spread("memory", job.memory_bytes),
        "memory_total": use.memory_total_bytes,
        "machine_memory_share_peak": ratio(use.memory_bytes.peak, use.memory_total_bytes),
        "major_faults_per_second": ratio(job.major_faults, seconds),
        "oom_kills": oom_kills,
        "io_rate_mean": ratio(moved, seconds),
        "io_share": ratio(moved, context.disk_bytes),
        "gpus": len(job.gpus) or None,
        **_spread("gpu_util", job.gpu_util),
        "gpu_memory_peak": job.gpu_memory_bytes.peak,
        "forks_refused": job.forks_refused,
        "processes_limit": job.processes_limit,
    }


#: The fields of a job whose marks its figures have.
_MARKED_LIKE = {
    "cpu_seconds": ("cores_mean", "cores_median", "cores_p95", "cores_peak", "given_cores_used"),
    "memory_bytes.median": ("memory_mean", "memory_median", "memory_p95"),
    "memory_bytes.peak": ("memory_peak", "given_memory_used"),
    "write_bytes": ("io_rate_mean", "io_share"),
}


def job_marks(job: JobUse) -> Marks:
    """The marks of the figures that are not exact."""
    found = {field: shown_field(JobUse, field).mark(job) for field in _MARKED_LIKE}
    return {name: found[field] for field, names in _MARKED_LIKE.items() if found[field] for name in names}


def _coverage(job: JobUse) -> float | None:
    """The share of the time between its first and last sample that was seen."""
    if job.first is None or job.last is None or job.observed_seconds is None:
        return None
    span = (job.last - job.first).total_seconds()
    return min(1.0, job.observed_seconds / span) if span > 0 else 1.0


def container_figures(container: ContainerUse, limit_share: float | None, cpus: int | None) -> Figures:
    """What rules about a container compare."""
    return {
        "core_hours": _hours(container.cpu_seconds, 1),
        "samples": container.samples,
        "seconds": container.observed_seconds,
        "coverage": 1.0,
        "cpus": cpus,
        **_spread("cores", container.cores),
        "quota_cores": container.quota_cores,
        "throttled_share": container.throttled_share,
        **_spread("memory", container.memory_bytes),
        "memory_charged_peak": container.memory_charged_peak_bytes,
        "memory_limit": container.memory_limit_bytes,
        "killed_below_limit": float(container.killed_below_limit),
        "killed_at_limit": float(container.killed_at_limit),
        "memory_limit_share_p95": limit_share,
        "oom_kills": container.oom_kills,
        "forks_refused": container.forks_refused,
        "processes_limit": container.processes_limit,
    }


def filesystem_figures(disk: FilesystemUse) -> Figures:
    """What rules about a file system compare."""
    return {
        "samples": disk.samples,
        "seconds": disk.seconds,
        "coverage": 1.0,
        "disk_total": disk.total_bytes,
        "disk_free": disk.free_bytes,
        "disk_free_share": ratio(disk.free_bytes, disk.total_bytes),
        "disk_free_least": disk.least_free_bytes,
        "disk_free_share_least": ratio(disk.least_free_bytes, disk.total_bytes),
        "inodes_total": disk.inodes_total,
        "inodes_free_least": disk.least_inodes_free,
        "inodes_free_share_least": ratio(disk.least_inodes_free, disk.inodes_total),
        "fill_rate": disk.fill_rate,
        "late_fill_rate": disk.late_fill_rate,
        "fill_fit": disk.fill_fit,
        "fill_share": ratio(disk.filled_bytes, disk.total_bytes),
        "fill_seconds": disk.fill_seconds,
        "seconds_to_full": disk.seconds_to_full,
    }


_SAME_OF_SHARE = (
    *("operations", "operations_rate", "metadata_share", "bytes_per_operation", "operation_seconds"),
    *("slowest_seconds", "timeouts", "retransmissions"),
)


def share_figures(share: ShareUse) -> Figures:
    """What rules about a network file system compare."""
    return {
        **_seen(share),
        **{f"share_{name}": getattr(share, name) for name in _SAME_OF_SHARE},
        "share_waiting_mean": share.waiting.mean,
        "share_retransmitted_share": ratio(share.retransmissions, share.operations),
    }


def share_context_figures(job: JobUse, context: ShareContext, disk_bytes: float | None) -> Figures:
    """What rules about a job compare of what happened on shares while it ran, by whomever."""
    return {
        **asdict(context),
        "share_traffic_share": ratio(context.share_bytes, total((context.share_bytes, disk_bytes))),
        "job_write_bytes": job.write_bytes,
    }


def link_figures(link: LinkUse) -> Figures:
    """What rules about an interface or a port compare."""
    same = ("exceeded", "throttled_share", "drops", "errors")
    figures = {f"link_{name}": getattr(link, name) for name in same}
    return {**_seen(link), **figures, "link_dropped_share": ratio(link.drops, link.packets)}


def _seen(use: ShareUse | LinkUse) -> Figures:
    return {"samples": use.samples, "seconds": use.seconds, "coverage": 1.0}


def program_figures(ends: ProgramEnds) -> Figures:
    """What rules about the ends of a program, or of a container that is started again, compare."""
    return {
        "ends": ends.ended,
        "failed": ends.failed,
        "failed_core_hours": _hours(1, ends.failed_seconds),
        "failed_seconds": ends.failed_seconds,
        "failed_in_a_row": ends.failed_in_a_row,
        "failed_gap": ends.failed_gap_seconds,
    }


#: A job that ran for less is a short one, in seconds.
_SHORT = 60


def _idle_gpu_hours(job: JobUse, parts: Sequence[JobUse], given: float | None = None) -> float | None:
    """Of the GPUs that it was given, or was seen on where nobody said so."""
    gpus = max(sum(len(part.gpus) for part in parts), given or 0)
    seconds = job.observed_seconds
    if not gpus or seconds is None:
        return None
    return max(0.0, gpus * seconds - sum(part.gpu_seconds or 0.0 for part in parts)) / 3600


def _lived(job: JobUse) -> Figures:
    """What a batch job had of its time."""
    return {
        "runtime": job.runtime_seconds if job.ended else None,
        "time_limit": job.time_limit_seconds,
        "time_limit_share": ratio(job.runtime_seconds, job.time_limit_seconds) if job.ended else None,
        "cut_short": float(not (job.job_state in _WHOLE or (job.job_state == "RUNNING" and not job.ended))),
        "outlived_seconds": job.outlived_seconds,
    }


def given_figures(job: JobUse, parts: Sequence[JobUse], machines: Mapping[str, Machine]) -> Figures:
    """What a batch job was given, beside what it used of it on all its nodes.

    Slurm need not have divided it evenly: unless all of them were opened nothing is said.
    """
    nodes = job.nodes or 1
    if len(parts) != nodes or len({part.hostname for part in parts}) != nodes:
        return {}
    cores = _sum(part.cores.p95 for part in parts)
    memory = _sum(part.memory_bytes.peak for part in parts)
    most_memory = _sum(part.memory_peak_high_bytes or part.memory_bytes.peak for part in parts)
    # Without a card that was read nobody knows who used one.
    is_seen = all(machines[part.archive or ""].gpus for part in parts)
    used_gpus = float(sum(len(part.gpus) for part in parts)) if is_seen else None
    return {
        "given_nodes": nodes,
        "allocated_cpus": job.allocated_cpus,
        "given_cores_used": cores,
        "allocated_cpus_share": ratio(cores, job.allocated_cpus),
        "held_core_hours": _hours(_less(job.allocated_cpus, cores), job.observed_seconds),
        "allocated_memory": job.allocated_memory_bytes,
        "given_memory_used": memory,
        "allocated_memory_share": ratio(most_memory, job.allocated_memory_bytes),
        "allocated_gpus": job.allocated_gpus,
        "used_gpus": used_gpus,
        "untouched_gpus": _less(job.allocated_gpus, used_gpus),
        "idle_gpu_hours": _idle_gpu_hours(job, parts, job.allocated_gpus),
    }


def task_figures(steps: Sequence[StepUse]) -> Figures:
    """How evenly the tasks of the busiest step worked, as far as they were seen."""
    several = (step.tasks for step in steps if len(step.tasks) > 1)
    used = max(([task.cpu_seconds or 0.0 for task in tasks] for tasks in several), key=sum, default=[])
    if not used:
        return {}
    mean, most = sum(used) / len(used), max(used)
    told = len(used), mean, most, ratio(mean, most)
    return dict(zip(("tasks", "task_cpu_mean", "task_cpu_peak", "task_balance"), told, strict=True))


def _sum(values: Iterable[float | None]) -> float | None:
    """Of all; None where one is not known."""
    found = list(values)
    return None if None in found else sum(value or 0.0 for value in found)


#: States of a job that ended by itself or had all its time: its use is what it needs.
_WHOLE = ("COMPLETED", "TIMEOUT")


def batch_figures(job: JobUse, parts: Sequence[JobUse]) -> Figures:
    """A batch job on one machine beside all that it ran on, as far as they were opened."""
    busiest = max((part.cores.mean or 0.0 for part in parts), default=0.0)
    return {
        "batch_machines": len(parts),
        "busiest_machine_cores": busiest,
        "busiest_machine_share": ratio(job.cores.mean, busiest),
    }


def _strays(jobs: Sequence[JobUse]) -> Figures:
    """What an ordinary user ran beside the batch jobs of a node."""
    strays = [job for job in jobs if job.job_source == "process_group" and _is_person(job.user_id or 0)]
    return {"strays": len(strays), "stray_core_hours": sum(job.cpu_seconds or 0.0 for job in strays) / 3600}


def _is_person(user_id: int) -> bool:
    """From 1000 on, as login.defs(5) gives out, and directories without an end; 65534 is nobody."""
    return user_id >= 1000 and user_id != 65534


def user_figures(jobs: Sequence[JobUse], coverage: Coverage, has_batch_jobs: bool = False) -> Figures:
    """What rules about a user compare."""
    whole = [job for job in jobs if job.is_one_job]
    short = [job for job in whole if job.ended and (job.runtime_seconds or 0.0) < _SHORT]
    used, all_used = (sum(job.cpu_seconds or 0.0 for job in some) for some in (short, jobs))
    return {
        "samples": coverage.samples,
        "seconds": coverage.covered_seconds,
        "coverage": coverage.coverage,
        **(_strays(whole) if has_batch_jobs else {}),
        "short_jobs": len(short),
        "short_runtime_median": median(job.runtime_seconds or 0.0 for job in short) if short else None,
        "short_share": ratio(used, all_used),
        "short_cores_mean": ratio(used, coverage.covered_seconds),
        "short_core_hours": _hours(used, 1),
    }


def gpu_figures(gpu: GpuUse, coverage: Coverage) -> Figures:
    """What rules about a GPU compare."""
    return {
        "idle_gpu_hours": _hours(_less(1, ratio(gpu.gpu_util.mean, 100)), gpu.observed_seconds),
        "samples": gpu.samples,
        "seconds": gpu.observed_seconds,
        "coverage": coverage.coverage,
        **_spread("gpu_util", gpu.gpu_util),
        "gpu_memory_peak": gpu.memory_bytes.peak,
        "gpu_memory_peak_share": ratio(gpu.memory_bytes.peak, gpu.memory_total_bytes),
        "gpu_memory_p95_share": ratio(gpu.memory_bytes.p95, gpu.memory_total_bytes),
        "gpu_errors": gpu.errors,
    }
