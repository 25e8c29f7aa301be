"""What jobs, their processes, users and programs used, as data: with bounds and sources where a figure is not exact."""

from datetime import datetime
from typing import Annotated

import msgspec
from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.quantities import (
    BUSY,
    BYTE_SECONDS,
    BYTES,
    CHOICE,
    CONTAINER,
    CORES,
    COUNT,
    ENERGY,
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

LEAST = about("least that it can be, where it is not exact")
MOST = about("most that it can be, where it is not exact and that is known")
TOLD = about("what told of members that ended, the weakest: accounts, lifeline or samples")
NOT_EXACT = about("it is not exact: see the bounds, without them it is a lower bound")
SHARING = about("how shared memory was resolved, the weakest: sum, pss or estimate")
PEAK_FROM = about("sampled (a lower bound), high_water or accounts; null: the highest sample")

_ESTIMATED = "memory_source=estimate"
CPU_TIME = titled("CPU time", bound="cpu_is_lower_bound", low="cpu_seconds_low", high="cpu_seconds_high")
READ = titled("read", bound="io_is_lower_bound", low="read_bytes_low", high="read_bytes_high")
WRITTEN = titled("written", bound="io_is_lower_bound", low="write_bytes_low", high="write_bytes_high")
MEMORY = titled(
    "memory",
    estimate=_ESTIMATED,
    peak=("memory_peak_low_bytes", "memory_peak_high_bytes", "memory_peak_source=sampled"),
)


class Ending(msgspec.Struct, kw_only=True, frozen=True):
    """How a job or container ended, and what is known about why."""

    words: Annotated[
        str | None, TEXT, titled("", missing=""), about("in one sentence, with the evidence")
    ] = None
    exit_code: Annotated[int | None, NUMBER] = None
    exit_signal: Annotated[int | None, NUMBER] = None
    core_dumped: bool = False
    source: Annotated[
        str | None,
        CHOICE,
        about("who told: connector, pidfd, accounts, engine, slurm or run; null: nobody"),
    ] = None
    cause: Annotated[
        str | None,
        CHOICE,
        about(
            "memory_limit, machine_memory, member, pids_limit, disk_full, no_inodes, read_only, reclaim_notice or "
            "shutdown; null: nothing points to one"
        ),
    ] = None
    is_proven: Annotated[bool, about("false: another reading is left")] = False
    is_coincidence: Annotated[bool, about("nothing but the time speaks for the cause")] = False


class _PartUse(AnswerPart):
    """What one part of a batch job used."""

    groups: Annotated[int, COUNT, titled("process groups")] = 0
    command: Annotated[str | None, TEXT, titled("command")] = None
    started: Annotated[datetime | None, TIME, titled("started")] = None
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time")] = None
    memory_peak_bytes: Annotated[
        float | None, BYTES, titled("memory peak"), about("of several groups at least: their highest sample")
    ] = None
    gpu_seconds: Annotated[float | None, BUSY, titled("GPU time")] = None


class TaskUse(_PartUse):
    """One task of a step: a rank of MPI, as a rule."""

    task: Annotated[int, NUMBER, titled("task"), about("its number in the step, on whatever node")] = 0
    hostname: Annotated[str | None, TEXT, titled("machine")] = None


class StepUse(_PartUse):
    """One step of a batch job."""

    step: Annotated[str | None, TEXT, titled("step"), about("batch, extern, interactive or a number")] = None
    memory_charged_peak_bytes: Annotated[
        float | None, BYTES, titled("memory charged"), about("of its control group, page cache included")
    ] = None
    tasks: Annotated[
        list[TaskUse], about("by number; empty where no control group tells which process is whose")
    ] = msgspec.field(default_factory=list)


_ASKED = about("asked for, on all its nodes together")
_GIVEN = about("given on all its nodes together: see `nodes`")


class JobUse(AnswerPart):
    """What one job used."""

    job: Annotated[str, TEXT, titled("job"), about("id for people")]
    series_id: str
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None
    job_source: str | None = None
    batch_step: Annotated[str | None, TEXT, about("of a single process group")] = None
    batch_task: Annotated[int | None, NUMBER, about("of a single process group")] = None
    sluid: str | None = None
    steps: Annotated[list[StepUse], about("of a batch job; their sum is the job")] = msgspec.field(
        default_factory=list
    )
    cluster: Annotated[str | None, TEXT, about("whose batch job it is, as Slurm tells")] = None
    job_name: Annotated[str | None, TEXT, titled("name", missing=""), about("as Slurm tells")] = None
    job_state: Annotated[str | None, CHOICE, about("as Slurm tells")] = None
    array_task: Annotated[str | None, about("number of the array and of the task in it, such as 3_5")] = None
    account: Annotated[str | None, TEXT, titled("account", missing=""), about("as Slurm tells")] = None
    project: Annotated[str | None, TEXT, titled("project", missing=""), about("WCKey, as Slurm tells")] = None
    nodes: Annotated[int | None, COUNT, about("that the batch job had")] = None
    requested_cpus: Annotated[float | None, CORES, _ASKED] = None
    requested_memory_bytes: Annotated[float | None, BYTES, _ASKED] = None
    requested_gpus: Annotated[float | None, COUNT, _ASKED] = None
    allocated_cpus: Annotated[float | None, CORES, titled("given cores", missing=""), _GIVEN] = None
    allocated_memory_bytes: Annotated[float | None, BYTES, titled("given memory", missing=""), _GIVEN] = None
    allocated_gpus: Annotated[float | None, COUNT, titled("given GPUs", missing=""), _GIVEN] = None
    time_limit_seconds: Annotated[float | None, SECONDS, titled("time limit", missing="")] = None
    queued_seconds: Annotated[float | None, SECONDS, about("from its submission to its start")] = None
    outlived_seconds: Annotated[
        float | None, SECONDS, about("how long processes of it ran on after Slurm ended it")
    ] = None
    pgid: Annotated[int | None, NUMBER] = None
    user_id: Annotated[int | None, NUMBER] = None
    user: Annotated[str | None, TEXT, titled("user"), about("in a container its owner")] = None
    user_source: Annotated[
        str | None, CHOICE, about("what the owner was inferred from; container_… where the container's was")
    ] = None
    program: Annotated[str | None, TEXT, titled("program")] = None
    label: Annotated[
        str | None,
        TEXT,
        titled("what"),
        about("the program that it kept busiest, in or by what it was started"),
    ] = None
    session_id: Annotated[int | None, NUMBER, titled("session", missing=""), about("of its first member")] = (
        None
    )
    tags: list[str] = msgspec.field(default_factory=list)
    command: Annotated[str | None, TEXT, titled("command")] = None
    container_id: Annotated[str | None, CONTAINER] = None
    container: Annotated[str | None, TEXT, titled("container", missing="")] = None
    started: Annotated[datetime | None, TIME, titled("started")] = None
    first: Annotated[datetime | None, TIME, about("first sample that knows of it")] = None
    last: Annotated[datetime | None, TIME, about("last sample that knows of it, also as gone")] = None
    end: Annotated[datetime | None, TIME, about("its end, where that was told")] = None
    runtime_seconds: Annotated[
        float | None,
        SECONDS,
        titled("lifetime", low="runtime_seconds_low"),
        about("to its end, or to the sample that found it gone where nobody told the end"),
    ] = None
    runtime_seconds_low: Annotated[
        float | None, SECONDS, about("to the last sample that shows it, where its end is not known")
    ] = None
    observed_seconds: Annotated[float | None, SECONDS, titled("seen for"), about("covered by intervals")] = (
        None
    )
    samples: Annotated[int, COUNT] = 0
    ended: Annotated[bool, titled("state")] = False
    ending: Annotated[Ending, titled("end", missing="")] = Ending()
    cpu_seconds: Annotated[float | None, BUSY, CPU_TIME] = None
    cpu_seconds_low: Annotated[float | None, BUSY, LEAST] = None
    cpu_seconds_high: Annotated[float | None, BUSY, MOST] = None
    cpu_source: Annotated[str | None, CHOICE, TOLD] = None
    cpu_is_lower_bound: Annotated[bool, NOT_EXACT] = False
    cores: Annotated[Use, CORES, titled("cores", like="cpu_seconds")] = NOTHING
    memory_bytes: Annotated[Use, BYTES, MEMORY] = NOTHING
    memory_source: Annotated[str | None, CHOICE, SHARING] = None
    memory_peak_low_bytes: Annotated[float | None, BYTES, LEAST] = None
    memory_peak_high_bytes: Annotated[float | None, BYTES, MOST] = None
    memory_peak_source: Annotated[str | None, CHOICE, PEAK_FROM] = None
    memory_charged_peak_bytes: Annotated[
        float | None, BYTES, about("of the control group that holds only this job, page cache included")
    ] = None
    processes_limit: Annotated[int | None, COUNT, about("pids.max of that control group; null: none")] = None
    forks_refused: Annotated[int | None, COUNT, about("because of that limit")] = None
    open_files_ulimit: Annotated[int | None, COUNT, about("of each process: ulimit -n of its first")] = None
    processes_ulimit: Annotated[int | None, COUNT, about("of its user: ulimit -u of its first process")] = (
        None
    )
    memory_byte_seconds: Annotated[float | None, BYTE_SECONDS] = None
    threads: Annotated[Use, COUNT] = NOTHING
    processes_peak: Annotated[int | None, COUNT] = None
    processes_seen: Annotated[int | None, COUNT] = None
    processes_unseen: Annotated[int | None, COUNT] = None
    read_bytes: Annotated[float | None, BYTES, READ] = None
    read_bytes_low: Annotated[float | None, BYTES, LEAST] = None
    read_bytes_high: Annotated[float | None, BYTES, MOST] = None
    write_bytes: Annotated[float | None, BYTES, WRITTEN] = None
    write_bytes_low: Annotated[float | None, BYTES, LEAST] = None
    write_bytes_high: Annotated[float | None, BYTES, MOST] = None
    read_rate: Annotated[Use, RATE] = NOTHING
    write_rate: Annotated[Use, RATE] = NOTHING
    io_source: Annotated[str | None, CHOICE, TOLD] = None
    io_is_lower_bound: Annotated[bool, NOT_EXACT] = False
    major_faults: Annotated[float | None, COUNT] = None
    gpus: Annotated[list[str], about("UUIDs")] = msgspec.field(default_factory=list)
    gpu_seconds: Annotated[float | None, BUSY, titled("GPU time", only_with="gpus"), about("busy time")] = (
        None
    )
    gpu_util: Annotated[
        Use,
        PERCENT,
        titled("GPU", only_with="gpus"),
        about("where the driver names no process, the card's, if it was idle or this job alone held it"),
    ] = NOTHING
    gpu_memory_bytes: Annotated[Use, BYTES] = NOTHING
    energy: Annotated[Energy, ENERGY, titled("energy")] = Energy()

    @property
    def session(self) -> str:
        """The session for people; groups of one shell share it."""
        return f"{self.session_id} ({self.user})" if self.session_id else f"not known ({self.user})"

    @property
    def is_one_job(self) -> bool:
        """False for group 0: groups beyond a PID namespace, or time that cannot be told apart."""
        return self.pgid != 0

    @property
    def is_told_apart(self) -> bool:
        """False for the time of a user that belongs to some job, but nobody can say which."""
        return self.job_source != "no_group"


_TOGETHER = about("of all its jobs together")


class GroupUse(AnswerPart):
    """What a user or a program used, over all its jobs."""

    name: Annotated[str, TEXT]
    tags: Annotated[list[str], TEXT, titled("tags")] = msgspec.field(default_factory=list)
    jobs: Annotated[int, COUNT, titled("jobs")] = 0
    users: Annotated[int | None, COUNT, titled("users")] = None
    accounts: Annotated[list[str], TEXT, titled("accounts"), about("of its batch jobs")] = msgspec.field(
        default_factory=list
    )
    projects: Annotated[list[str], TEXT, titled("projects"), about("of its batch jobs")] = msgspec.field(
        default_factory=list
    )
    user_sources: Annotated[list[str], about("what the owners were inferred from")] = msgspec.field(
        default_factory=list
    )
    cpu_seconds: Annotated[float | None, BUSY, CPU_TIME] = None
    cpu_seconds_low: Annotated[float | None, BUSY, LEAST] = None
    cpu_seconds_high: Annotated[float | None, BUSY, MOST] = None
    gpu_seconds: Annotated[float | None, BUSY, titled("GPU time")] = None
    cpu_is_lower_bound: Annotated[bool, NOT_EXACT] = False
    runtime_seconds: Annotated[float | None, SECONDS, titled("seen for"), about("summed over jobs")] = None
    memory_median_bytes: Annotated[
        float | None, BYTES, titled("memory median", estimate=_ESTIMATED), _TOGETHER
    ] = None
    memory_p95_bytes: Annotated[float | None, BYTES, titled("memory p95", estimate=_ESTIMATED), _TOGETHER] = (
        None
    )
    memory_peak_bytes: Annotated[
        float | None,
        BYTES,
        titled("memory peak", estimate=_ESTIMATED, bound="memory_peak_is_lower_bound"),
        about("of all its jobs together in the highest sample, and of no job less than its own"),
    ] = None
    memory_peak_is_lower_bound: bool = False
    memory_source: Annotated[str | None, CHOICE, SHARING] = None
    read_bytes: Annotated[float | None, BYTES, READ] = None
    read_bytes_low: Annotated[float | None, BYTES, LEAST] = None
    read_bytes_high: Annotated[float | None, BYTES, MOST] = None
    write_bytes: Annotated[float | None, BYTES, WRITTEN] = None
    write_bytes_low: Annotated[float | None, BYTES, LEAST] = None
    write_bytes_high: Annotated[float | None, BYTES, MOST] = None
    io_is_lower_bound: Annotated[bool, NOT_EXACT] = False
    energy: Annotated[Energy, ENERGY, titled("energy")] = Energy()
    cpu_seconds_by_hour: Annotated[list[float], titled("0 h to 23 h"), about("24, in --tz")] = msgspec.field(
        default_factory=list
    )
    cpu_seconds_by_weekday: Annotated[list[float], titled("Mo to Su"), about("7, Monday first")] = (
        msgspec.field(default_factory=list)
    )


class ProcessUse(AnswerPart):
    """One process of a job."""

    pid: Annotated[int, NUMBER, titled("pid")]
    program: str | None
    command: Annotated[str | None, TEXT, titled("command")]
    first: Annotated[datetime | None, TIME]
    last: Annotated[datetime | None, TIME]
    samples: Annotated[int, COUNT, titled("samples")]
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time")]
    memory_peak_bytes: Annotated[float | None, BYTES, titled("memory peak")]
    resident_peak_bytes: Annotated[
        float | None,
        BYTES,
        about("the kernel's own peak since its last exec, file and shared memory included"),
    ]
    read_bytes: Annotated[float | None, BYTES, about("children that it waited for included")]
    write_bytes: Annotated[float | None, BYTES, about("children that it waited for included")]
    own_read_bytes: Annotated[float | None, BYTES, titled("read"), about("without waited-for children")]
    own_write_bytes: Annotated[float | None, BYTES, titled("written"), about("without waited-for children")]


class ProgramUse(AnswerPart):
    """All processes of a job that ran one program."""

    program: Annotated[str | None, TEXT, titled("program")]
    processes: Annotated[int, COUNT]
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time"), about("of all of them")]
    memory_peak_bytes: Annotated[float | None, BYTES, titled("memory peak"), about("of the largest")]
    own_read_bytes: Annotated[float | None, BYTES, titled("read")]
    own_write_bytes: Annotated[float | None, BYTES, titled("written")]


_THE_MACHINES = about("the machine's")


class StoryMoment(AnswerPart):
    """One step of a job's course; pressure is the machine's."""

    time: Annotated[datetime, TIME]
    seconds: Annotated[float, SECONDS]
    cores: Annotated[float | None, CORES, titled("cores")]
    memory_bytes: Annotated[float | None, BYTES, titled("memory", estimate=_ESTIMATED)]
    memory_source: Annotated[str | None, CHOICE, SHARING]
    read_rate: Annotated[float | None, RATE, titled("read")]
    write_rate: Annotated[float | None, RATE, titled("written")]
    gpu_util: Annotated[float | None, PERCENT, titled("GPU")]
    pressure_cpu: Annotated[float | None, SHARE, titled("machine waited for CPU"), _THE_MACHINES]
    pressure_memory: Annotated[float | None, SHARE, titled("machine waited for memory"), _THE_MACHINES]
    pressure_io: Annotated[float | None, SHARE, titled("machine waited for I/O"), _THE_MACHINES]
