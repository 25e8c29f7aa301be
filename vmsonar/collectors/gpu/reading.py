"""What a source of GPUs hands over: rows, uses by processes, events, and why something is missing."""

from dataclasses import dataclass, field

from vmsonar_archive.records import EventRow, GpuRow

from vmsonar.collectors.gpu.faults import GpuFault


@dataclass(slots=True)
class Use:
    """What one process uses of one GPU."""

    gpu_uuid: str
    pid: int
    usages: list[str] = field(default_factory=list)
    memory: int | None = None
    gpu_util: float | None = None
    memory_util: float | None = None
    util_source: str | None = None
    engine_time: int | None = None


@dataclass(slots=True)
class Reading:
    """What one source said at one tick."""

    rows: list[GpuRow] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    #: Why the source as a whole could not be read.
    fault: GpuFault | None = None
    #: What else could not be read: a stable word, and the rest in words.
    troubles: list[tuple[str, str]] = field(default_factory=list)
