"""Events, gaps and advice as data, and the names of all parts of an answer: everything shown is one of these fields."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.job_model import (
    CPU_TIME,
    LEAST,
    MEMORY,
    MOST,
    NOT_EXACT,
    PEAK_FROM,
    SHARING,
    Ending,
    GroupUse,
    JobUse,
    ProcessUse,
    ProgramUse,
    StepUse,
    StoryMoment,
    TaskUse,
)  # fmt: skip
from vmsonar_inspect.facts.machine_model import (
    ContainerUse,
    Coverage,
    EnergyUse,
    FilesystemUse,
    GpuUse,
    Machine,
    MachineEnd,
    Moment,
    NodeUse,
)
from vmsonar_inspect.facts.quantities import (
    ANSWER,
    ARCHIVE,
    BUSY,
    BYTES,
    CHOICE,
    CONTAINER,
    CORE_HOURS,
    CORES,
    COUNT,
    ENERGY,
    GIB,
    NOTHING,
    NUMBER,
    PERCENT,
    RATE,
    SECONDS,
    SHARE,
    TEXT,
    TIME,
    AnswerPart,
    Energy,
    Use,
)  # fmt: skip

__all__ = [
    "ANSWER", "ARCHIVE", "BYTES", "CORES", "COUNT", "ENERGY", "NOTHING", "PERCENT", "SECONDS", "SHARE", "TEXT", "TIME",
    "Advice", "AnswerPart", "ContainerUse", "Coverage", "Ending", "Energy", "EnergyUse", "FilesystemUse", "Gap",
    "GpuUse", "GroupUse", "Happening", "JobUse", "Machine", "MachineEnd", "Moment", "NodeUse", "ProcessUse",
    "ProgramEnds", "ProgramUse", "Severity", "Size", "StepUse", "Story", "StoryMoment", "TaskUse", "Use", "Verdict",
]  # fmt: skip


class Happening(AnswerPart):
    """Something that happened."""

    time: Annotated[datetime, TIME, titled("time")]
    event: Annotated[str, about("its type")]
    kind: Annotated[
        str | None,
        CHOICE,
        titled("kind", missing=""),
        about("exit, oom, container, gpu, machine, recorder, or process for everyday ones"),
    ] = None
    what: Annotated[str | None, TEXT, titled("what"), about("in words")] = None
    subject: Annotated[str | None, TEXT, titled("about", missing="")] = None
    detail: Annotated[str | None, TEXT, titled("detail", missing="")] = None
    exit_code: Annotated[int | None, NUMBER] = None
    container_id: Annotated[str | None, CONTAINER] = None
    pgid: Annotated[int | None, NUMBER] = None
    exit_signal: Annotated[int | None, NUMBER] = None
    exit_source: Annotated[str | None, CHOICE] = None
    exits: Annotated[int | None, COUNT, about("ends that are only counted")] = None
    pid: Annotated[int | None, NUMBER] = None
    program: Annotated[str | None, TEXT, titled("program", missing="")] = None
    job: Annotated[str | None, TEXT, titled("job", missing=""), about("id for people")] = None
    job_series_id: Annotated[str | None, about("series of that job")] = None
    cost_core_hours: Annotated[
        float | None, CORE_HOURS, about("of what went wrong: the work of the job or container that ended")
    ] = None
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None


class ProgramEnds(AnswerPart):
    """How the jobs of a program, or the runs of a container, ended."""

    name: str
    archive: str
    ended: Annotated[int, COUNT, about("with a known status")] = 0
    failed: Annotated[int, COUNT] = 0
    failed_seconds: Annotated[float, SECONDS, about("runtime of those that failed")] = 0.0
    failed_in_a_row: Annotated[int, COUNT, about("most, without a success between")] = 0
    failed_gap_seconds: Annotated[float | None, SECONDS, about("median between two failures of that row")] = (
        None
    )


class Gap(AnswerPart):
    """Something that was not seen: time without samples, or a collector that could not read."""

    kind: Annotated[str, CHOICE, titled("what"), about("no_samples, not_read or damage")]
    begin: Annotated[datetime | None, TIME, titled("from")] = None
    end: Annotated[datetime | None, TIME, titled("to")] = None
    seconds: Annotated[float | None, SECONDS, titled("for", missing="")] = None
    collector: Annotated[str | None, TEXT, titled("collector", missing="")] = None
    reason: Annotated[str | None, TEXT, titled("reason", missing="")] = None
    detail: Annotated[str | None, TEXT, titled("detail", missing="")] = None
    samples_lost: Annotated[int | None, COUNT, titled("lost", missing="")] = None
    times: Annotated[int, COUNT, titled("times")] = 1
    archive: str | None = None


class Severity(StrEnum):
    """How much a verdict matters."""

    PROBLEM = "problem"
    ADVICE = "advice"


class Verdict(AnswerPart, kw_only=True):
    """A judgement with the rule and the figures it rests on."""

    rule: str
    about: str
    subject: Annotated[str, about("archive, series, container, GPU, file system or program")]
    name: str
    severity: Annotated[Severity, about("problem or advice")]
    title: str
    says: str
    advice: str
    confidence: str
    figures: dict[str, float]
    conditions: list[str]
    marks: Annotated[dict[str, str], about("~, ≥ or ≤ for each figure that is not exact")] = msgspec.field(
        default_factory=dict
    )
    gain: Annotated[
        str, about("what would have helped: cores, memory, others (gone), disk, limit, unclear or none")
    ] = "none"
    cause: Annotated[str | None, about("rules of one cause are one verdict in `verdicts`")] = None
    cost: Annotated[
        float | None,
        CORE_HOURS,
        about("what it cost, weighed in core hours: ranks the verdicts, and is no sum"),
    ] = None
    cost_words: Annotated[str | None, about("the same as it was counted: core, GiB or GPU hours")] = None
    cost_figure: Annotated[str | None, about("the figure that it was counted by")] = None
    cost_hours: Annotated[
        float | None, NUMBER, about("its value, in core, GiB or GPU hours as its name ends")
    ] = None
    also: Annotated[list[str], about("other rules that fired for the same cause")] = msgspec.field(
        default_factory=list
    )


class Size(AnswerPart, kw_only=True):
    """A machine that would have held something."""

    cores: Annotated[int | None, COUNT] = None
    memory_gib: Annotated[int | None, GIB] = None
    gpus: Annotated[int | None, COUNT] = None
    flavour: Annotated[str | None, about("a site's own, where one fits")] = None


class Advice(AnswerPart, kw_only=True):
    """Used against what was there, and the size that would have done, for the machine or one job."""

    about: str
    subject: str
    name: str
    cpus: Annotated[int | None, COUNT] = None
    cores: Annotated[Use, CORES, titled("cores", like="cpu_seconds")] = NOTHING
    cpu_seconds: Annotated[float | None, BUSY, CPU_TIME, about("of a job")] = None
    cpu_seconds_low: Annotated[float | None, BUSY, LEAST] = None
    cpu_seconds_high: Annotated[float | None, BUSY, MOST] = None
    cpu_is_lower_bound: Annotated[bool, NOT_EXACT] = False
    memory_total_bytes: Annotated[int | None, BYTES] = None
    memory_bytes: Annotated[Use, BYTES, MEMORY] = NOTHING
    memory_source: Annotated[str | None, CHOICE, SHARING] = None
    memory_peak_low_bytes: Annotated[float | None, BYTES, LEAST] = None
    memory_peak_high_bytes: Annotated[float | None, BYTES, MOST] = None
    memory_peak_source: Annotated[str | None, CHOICE, PEAK_FROM] = None
    gpus: Annotated[int | None, COUNT] = None
    gpu_util: Annotated[Use, PERCENT, titled("GPU")] = NOTHING
    gpu_memory_total_bytes: Annotated[int | None, BYTES] = None
    gpu_memory_bytes: Annotated[Use, BYTES, titled("GPU memory")] = NOTHING
    disk_read_rate: Annotated[Use, RATE, titled("disk read")] = NOTHING
    disk_write_rate: Annotated[Use, RATE, titled("disk write")] = NOTHING
    received_rate: Annotated[Use, RATE, titled("received")] = NOTHING
    sent_rate: Annotated[Use, RATE, titled("sent")] = NOTHING
    enough_data: bool = False
    size_p95: Size | None = None
    size_peak: Size | None = None
    size_is_lower_bound: Annotated[bool, about("more may have been needed than was seen")] = False
    size_doubt: Annotated[str | None, about("which bounds the sizes rest on, in words")] = None
    larger_would_help: bool | None = None
    larger_why: str | None = None
    waited_share: Annotated[
        float | None,
        SHARE,
        about("of a job: share of the time it could have run in which it waited for a core"),
    ] = None
    conclusion: Annotated[str | None, about("size and gain in a sentence or two")] = None
    verdicts: list[Verdict] = msgspec.field(default_factory=list)


class Story(AnswerPart):
    """Everything that is known about one job."""

    job: JobUse
    ended_by: Annotated[str, about("ending.words of the job")]
    advice: Advice
    timeline: list[StoryMoment]
    processes: Annotated[list[ProcessUse], about("the 20 busiest")]
    programs: Annotated[list[ProgramUse], about("all its processes, by program, the busiest first")]
    container: ContainerUse | None
    gpus: list[GpuUse]
    events: list[Happening]
    nodes: Annotated[
        list[JobUse],
        about("the batch job on each machine that was opened, most CPU time first; empty where that is one"),
    ] = msgspec.field(default_factory=list)
    whole: Annotated[JobUse | None, about("the sums over those machines; null where that is one")] = None
