"""What is summed up per series and day: an explicit list per table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """One quantity of a series: a counter, whose rises are summed and whose rate is judged, or a gauge."""

    name: str
    #: Fields that are added up; null when all of them are.
    fields: tuple[str, ...]
    counter: bool = False
    #: Whether the distribution is kept as well.
    histogram: bool = False
    #: The values are divided by this; None stands for ticks per second.
    divisor: float | None = 1.0
    #: A field that is taken off.
    less: str | None = None


def _counter(name: str, *fields: str, divisor: float | None = 1.0, histogram: bool = False) -> Measure:
    return Measure(name, fields or (name,), counter=True, histogram=histogram, divisor=divisor)


def _gauge(name: str, *fields: str, histogram: bool = False, less: str | None = None) -> Measure:
    return Measure(name, fields or (name,), histogram=histogram, less=less)


MEASURES: dict[str, tuple[Measure, ...]] = {
    "process": (
        _counter("cpu", "user_ticks", "system_ticks", divisor=None, histogram=True),
        _counter("read_bytes"),
        _counter("write_bytes"),
        _gauge("memory", "resident", less="shared", histogram=True),
    ),
    "job": (
        _counter("cpu", "user_ticks", "system_ticks", divisor=None, histogram=True),
        _counter("cpu_user", "user_ticks", divisor=None),
        _counter("cpu_system", "system_ticks", divisor=None),
        _counter("read_bytes", histogram=True),
        _counter("write_bytes", histogram=True),
        _counter("major_faults"),
        _gauge("memory", histogram=True),
        _gauge("processes"),
        _gauge("processes_seen"),
        _gauge("threads", histogram=True),
        _gauge("unattributed"),
        _gauge("io_partial"),
    ),
    "container": (
        _counter("cpu", "cpu_time", divisor=1e9, histogram=True),
        _counter("cpu_user", "cpu_user_time", divisor=1e9),
        _counter("cpu_system", "cpu_system_time", divisor=1e9),
        _counter("throttled", "throttled_time", divisor=1e9),
        _counter("oom_kills"),
        _counter("read_bytes"),
        _counter("write_bytes"),
        _counter("received_bytes"),
        _counter("sent_bytes"),
        _gauge("memory", "memory_used", less="memory_inactive_file", histogram=True),
        _gauge("memory_limit"),
        _gauge("cpu_quota"),
        _gauge("cpu_period"),
        _gauge("processes"),
        _gauge("network_shared"),
    ),
}

#: Tables whose counters begin at zero when they are reset, so that the value itself is the rise.
RESET_TO_ZERO = frozenset({"container"})
