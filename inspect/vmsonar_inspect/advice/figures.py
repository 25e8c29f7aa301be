"""The figures that rules compare: their names, how each is written, and where they come from."""

import re
from collections.abc import Mapping

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Use

_BY_WRITER: dict[units.Writer, str] = {
    units.count: """
        cpus runnable_mean runnable_median runnable_p95 threads_mean threads_p95 threads_peak
        workers processes_seen processes_peak births_per_minute forks_per_second swap_rate
        major_faults_per_second oom_kills container_oom_kills gpus gpu_errors samples
    """,
    units.cores: "cores_mean cores_median cores_p95 cores_peak others_cores_mean quota_cores",
    units.share: """
        cores_share_mean cores_share_p95 node_busy_mean steal_share_mean pressure_cpu_mean
        pressure_memory_mean pressure_io_mean top_worker_share short_lived_share
        memory_share_p95 memory_share_peak memory_limit_share_p95 io_share throttled_share
        gpu_memory_peak_share gpu_memory_p95_share coverage
    """,
    units.size: "memory_median memory_p95 memory_peak memory_total memory_limit gpu_memory_peak",
    units.rate: "io_rate_mean",
    units.percent: "gpu_util_mean gpu_util_p95",
    units.duration: "seconds",
}
#: How a figure is written, by its name; docs/inspect.md explains each.
WRITERS = {name: write for write, names in _BY_WRITER.items() for name in names.split()}

_PLACE = re.compile(r"\{(\w+)(?:\|([a-zA-Z ]+))?\}")


def written(name: str, value: float | None) -> str:
    """One figure with its unit."""
    return WRITERS.get(name, units.count)(value)


def filled_in(template: str, figures: Mapping[str, float | None]) -> str:
    """Fills every {figure}, or {figure|noun} with the noun in singular or plural; nothing else has a meaning."""

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
    """A share; None where either is unknown or the whole is zero."""
    return part / whole if part is not None and whole else None
