"""What is summed up of each series and day, and how: the one list of quantities behind `parquet/rollup.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """One quantity of a series: a counter, of which rises and rates are summarized, or a gauge."""

    name: str
    #: Fields that are added up; the sum is null where one of them is.
    fields: tuple[str, ...]
    counter: bool = False
    #: Whether the distribution is kept as well.
    histogram: bool = False
    #: The values are divided by this; None stands for ticks per second.
    divisor: float | None = 1.0
    #: Fields that are taken off.
    less: tuple[str, ...] = ()
    #: Which rows count: all, those of living jobs (True), or those that find nobody (False).
    alive: bool | None = None
    #: What is unknown is zero, and a series that has nothing else is left out.
    sparse: bool = False
    #: The words of a choice, the weakest last: the value is the place of the word.
    words: tuple[str, ...] = ()


def _counter(name: str, *fields: str, divisor: float | None = 1.0, histogram: bool = False) -> Measure:
    return Measure(name, fields or (name,), counter=True, histogram=histogram, divisor=divisor)


def _gauge(
    name: str, *fields: str, histogram: bool = False, less: str | None = None, alive: bool | None = None
) -> Measure:
    taken = () if less is None else (less,)
    return Measure(name, fields or (name,), histogram=histogram, less=taken, alive=alive)


def _doubt(name: str, low: str, high: str, *fields: str, divisor: float | None = 1.0) -> tuple[Measure, ...]:
    """How far the truth may lie below and above a total."""
    return (
        Measure(f"{name}_below", fields, less=(low,), sparse=True, divisor=divisor),
        Measure(f"{name}_above", (high,), less=fields, sparse=True, divisor=divisor),
    )


#: The words of sources, the weakest last.
TOLD_BY = ("accounts", "lifeline", "samples")
MEMORY_BY = ("sum", "pss", "estimate")
PEAK_BY = ("accounts", "high_water", "sampled")


MEASURES: dict[str, tuple[Measure, ...]] = {
    "process": (
        _counter("cpu", "user_ticks", "system_ticks", divisor=None, histogram=True),
        _counter("read_bytes"),
        _counter("write_bytes"),
        Measure("child_read_bytes", ("child_read_bytes",), counter=True, sparse=True),
        Measure("child_write_bytes", ("child_write_bytes",), counter=True, sparse=True),
        _gauge("memory", "resident", less="shared", histogram=True),
        _gauge("resident_peak"),
    ),
    "job": (
        _counter("cpu", "user_ticks", "system_ticks", divisor=None, histogram=True),
        _counter("cpu_user", "user_ticks", divisor=None),
        _counter("cpu_system", "system_ticks", divisor=None),
        _counter("read_bytes", histogram=True),
        _counter("write_bytes", histogram=True),
        _counter("major_faults"),
        *_doubt("cpu", "cpu_ticks_low", "cpu_ticks_high", "user_ticks", "system_ticks", divisor=None),
        *_doubt("read", "read_bytes_low", "read_bytes_high", "read_bytes"),
        *_doubt("write", "write_bytes_low", "write_bytes_high", "write_bytes"),
        Measure("cpu_source", ("cpu_source",), words=TOLD_BY),
        Measure("io_source", ("io_source",), words=TOLD_BY),
        _gauge("memory", histogram=True, alive=True),
        Measure("memory_source", ("memory_source",), alive=True, words=MEMORY_BY),
        _gauge("memory_peak"),
        _gauge("memory_peak_low"),
        _gauge("memory_peak_high"),
        Measure("memory_peak_source", ("memory_peak_source",), words=PEAK_BY),
        _gauge("memory_charged_peak"),
        _gauge("processes", alive=True),
        _gauge("processes_seen"),
        _gauge("processes_unseen"),
        _gauge("threads", histogram=True, alive=True),
        _gauge("unattributed"),
        _gauge("io_partial"),
        _gauge("gone", "processes", alive=False),
        Measure("end", ("end_boottime",), divisor=1e9),
        Measure("end_low", ("end_boottime_low",), divisor=1e9),
        Measure("end_high", ("end_boottime_high",), divisor=1e9),
    ),
    "container": (
        _counter("cpu", "cpu_time", divisor=1e9, histogram=True),
        _counter("cpu_user", "cpu_user_time", divisor=1e9),
        _counter("cpu_system", "cpu_system_time", divisor=1e9),
        # What lives that were read before their end may have used beside that.
        _gauge("cpu_doubt", "cpu_time_high", less="cpu_time"),
        _counter("throttled", "throttled_time", divisor=1e9),
        _counter("oom_kills"),
        _counter("read_bytes"),
        _counter("write_bytes"),
        _counter("received_bytes"),
        _counter("sent_bytes"),
        _gauge("memory", "memory_used", less="memory_inactive_file", histogram=True),
        _gauge("memory_charged_peak", "memory_peak"),
        _gauge("memory_limit"),
        _gauge("memory_unlimited"),
        _gauge("cpu_quota"),
        _gauge("cpu_period"),
        _gauge("processes"),
        _gauge("network_shared"),
    ),
}

#: Tables whose counters begin at zero when they are reset, so that the value itself is the rise.
RESET_TO_ZERO = frozenset({"container"})
