"""What a driver returns: rows, use by processes, events; energy is integrated where it reports only power."""

from dataclasses import dataclass, field

from vmsonar_archive.records import EventRow, GpuRow

from vmsonar.collectors.gpu.faults import GpuFault


@dataclass(slots=True)
class GpuUse:
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
    uses: list[GpuUse] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    #: Why the source as a whole could not be read.
    fault: GpuFault | None = None
    #: What else could not be read: a stable word, and the rest in words.
    troubles: list[tuple[str, str]] = field(default_factory=list)


# A longer pause, such as a suspend, says nothing about what was drawn in it.
_LONGEST = 900 * 1_000_000_000


class Integrator:
    """Sums power over CLOCK_BOOTTIME; begins at 0 with the first reading."""

    __slots__ = ("_before", "_joules")

    def __init__(self) -> None:
        self._joules = 0.0
        self._before: tuple[int, float] | None = None

    def add(self, boottime: int, watts: float | None) -> int | None:
        """Microjoules since the first reading; None without a reading of power."""
        if watts is None:
            self._before = None
            return None
        if self._before is not None and 0 < boottime - self._before[0] <= _LONGEST:
            elapsed = (boottime - self._before[0]) / 1e9
            self._joules += elapsed * (watts + self._before[1]) / 2
        self._before = (boottime, watts)
        return round(self._joules * 1e6)
