"""How sure the figures of a job are, in words."""

from collections.abc import Iterator

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import JobUse

_TOLD_BY = {
    "accounts": "the kernel's accounts told of members that ended",
    "lifeline": "of members that ended only their lives are known",
    "samples": "of members that ended only samples are known",
}
_PEAKS = {
    "sampled": "the highest sample",
    "high_water": "from the highest sample to its members' own peaks together",
    "accounts": "the kernel's accounts told it",
}


def doubts_of(job: JobUse) -> list[str]:
    """A sentence for every figure that is not exact."""
    told_by = _TOLD_BY.get(job.cpu_source or "", "members ended whose last time nobody reported")
    found = [_between(job, "cpu_seconds", "CPU time", told_by)]
    found += [_between(job, name, what, _TOLD_BY.get(job.io_source or "", "some could not be read"))
              for name, what in (("read_bytes", "bytes read"), ("write_bytes", "bytes written"))]  # fmt: skip
    found.append(
        _between(job, "memory_bytes.peak", "memory peak", _PEAKS.get(job.memory_peak_source or "", ""))
    )
    return [*(each for each in found if each), *_others(job)]


def _between(job: JobUse, name: str, what: str, why: str) -> str:
    """`CPU time: between 3.0 s and 8.0 s (…)`; nothing where the figure is exact."""
    field = shown_field(JobUse, name)
    if not field.mark(job) or not field.low:
        return ""
    value, low, high = field.value(job), getattr(job, field.low), getattr(job, field.high)
    least = value if low is None else low
    is_open = high is None and (low is None or field.mark(job) == "~")
    if is_open:
        said = f"at least {field.write(least)}"
    elif high is None:
        said = f"at most {field.write(value)}, at least {field.write(least, like=value)}"
    else:
        said = f"between {field.write(least, like=high)} and {field.write(high)}"
    return f"{what}: {said}" + (f" ({why})" if why else "")


def _others(job: JobUse) -> Iterator[str]:
    if job.memory_source == "estimate":
        yield "memory: an estimate, because nobody may ask what its forks share"
    if job.runtime_seconds_low is not None and shown_field(JobUse, "runtime_seconds").mark(job):
        low, high = job.runtime_seconds_low, job.runtime_seconds
        least = units.duration(low, like=high)
        yield f"runtime: between {least} and {units.duration(high)}, the sample that found it gone"
    if job.memory_charged_peak_bytes is not None:
        yield f"its control group held up to {units.size(job.memory_charged_peak_bytes)}, page cache included"
