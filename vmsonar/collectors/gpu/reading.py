"""What a driver returns: rows, events, or a fault; energy is integrated where it reports only power."""

from dataclasses import dataclass, field

from vmsonar_archive.records import EventRow, GpuProcessRow, GpuRow


class GpuFault(Exception):
    """A failure of a driver, with the stable word that stands in rows and gaps."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


class ValueFault(GpuFault):
    """This value cannot be had."""


class UnsupportedFault(ValueFault):
    """Asking for this value again is pointless until the driver is opened anew."""


class DeviceFault(GpuFault):
    """This device cannot be read; the others can."""


class DriverFault(GpuFault):
    """No device can be read."""


@dataclass(slots=True)
class Reading:
    """What one source said at one tick."""

    rows: list[GpuRow] = field(default_factory=list)
    #: What each process uses of each GPU; who the process is gets filled in later.
    uses: list[GpuProcessRow] = field(default_factory=list)
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
