"""The figures that rules compare: their names, how each is written, and where they come from."""

import re
from collections.abc import Callable, Mapping

from vmsonar_inspect import units
from vmsonar_inspect.model import Use

Writer = Callable[[float | None], str]

#: How a figure is written, by its name; docs/inspect.md explains each.
WRITERS: dict[str, Writer] = {
    "cpus": units.count,
    "cores_mean": units.cores,
    "cores_median": units.cores,
    "cores_p95": units.cores,
    "cores_peak": units.cores,
    "cores_share_mean": units.share,
    "cores_share_p95": units.share,
    "others_cores_mean": units.cores,
    "node_busy_mean": units.share,
    "steal_share_mean": units.share,
    "pressure_cpu_mean": units.share,
    "pressure_memory_mean": units.share,
    "pressure_io_mean": units.share,
    "runnable_mean": units.count,
    "runnable_median": units.count,
    "runnable_p95": units.count,
    "threads_mean": units.count,
    "threads_p95": units.count,
    "threads_peak": units.count,
    "workers": units.count,
    "top_worker_share": units.share,
    "processes_seen": units.count,
    "processes_peak": units.count,
    "births_per_minute": units.count,
    "short_lived_share": units.share,
    "forks_per_second": units.count,
    "memory_median": units.size,
    "memory_p95": units.size,
    "memory_peak": units.size,
    "memory_total": units.size,
    "memory_limit": units.size,
    "memory_share_p95": units.share,
    "memory_share_peak": units.share,
    "memory_limit_share_p95": units.share,
    "swap_rate": units.count,
    "major_faults_per_second": units.count,
    "oom_kills": units.count,
    "container_oom_kills": units.count,
    "io_rate_mean": units.rate,
    "io_share": units.share,
    "throttled_share": units.share,
    "quota_cores": units.cores,
    "gpus": units.count,
    "gpu_util_mean": units.percent,
    "gpu_util_p95": units.percent,
    "gpu_memory_peak": units.size,
    "gpu_memory_peak_share": units.share,
    "gpu_memory_p95_share": units.share,
    "gpu_errors": units.count,
    "samples": units.count,
    "seconds": units.duration,
    "coverage": units.share,
}

_PLACE = re.compile(r"\{(\w+)(?:\|([a-zA-Z ]+))?\}")


def written(name: str, value: float | None) -> str:
    """One figure with its unit."""
    return WRITERS.get(name, units.count)(value)


def filled_in(template: str, figures: Mapping[str, float | None]) -> str:
    """The template with every {figure}, or {figure|noun} in one or many, written out; nothing else has a meaning."""

    def fill(match: re.Match[str]) -> str:
        value = figures.get(match[1])
        noun = "" if match[2] is None else f" {match[2]}" + ("" if value == 1 else "s")
        return written(match[1], value) + noun

    return _PLACE.sub(fill, template)


def places(template: str) -> list[str]:
    """The figures that a template shows."""
    return [match[1] for match in _PLACE.finditer(template)]


def spread(name: str, use: Use) -> dict[str, float | None]:
    """The four figures of a use."""
    return {
        f"{name}_mean": use.mean,
        f"{name}_median": use.median,
        f"{name}_p95": use.p95,
        f"{name}_peak": use.peak,
    }


def ratio(part: float | None, whole: float | None) -> float | None:
    """A share; None where it would mean nothing."""
    return part / whole if part is not None and whole else None
