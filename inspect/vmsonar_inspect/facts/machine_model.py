"""What a machine and its parts are and used, as data: containers, GPUs, file systems, energy, use over time."""

from datetime import datetime
from typing import Annotated

import msgspec
from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.job_model import Ending
from vmsonar_inspect.facts.quantities import (
    BUSY,
    BYTE_SECONDS,
    BYTES,
    CELSIUS,
    CHOICE,
    CONTAINER,
    CORES,
    COUNT,
    ENERGY,
    GRAMS,
    GRAMS_PER_KWH,
    JOULES,
    KWH,
    NOTHING,
    NUMBER,
    PERCENT,
    RATE,
    RATIO,
    SECONDS,
    SHARE,
    TEXT,
    TIME,
    WATTS,
    AnswerPart,
    Energy,
    Use,
)  # fmt: skip


class EnergyUse(AnswerPart):
    """Energy of a machine: what its jobs used, and what was left idle."""

    joules: Annotated[float | None, JOULES] = None
    kwh: Annotated[float | None, KWH] = None
    jobs_joules: Annotated[float | None, JOULES] = None
    idle_joules: Annotated[float | None, JOULES] = None
    gpu_joules: Annotated[float | None, JOULES] = None
    source: str | None = None
    method: str | None = None
    pue: Annotated[float | None, RATIO] = None
    grams_co2e: Annotated[float | None, GRAMS] = None
    factor_grams_per_kwh: Annotated[float | None, GRAMS_PER_KWH] = None
    factor_country: str | None = None
    factor_year: str | None = None
    factor_source: str | None = None


class Machine(AnswerPart):
    """What the machine is."""

    archive: str
    source: Annotated[str, about("path of the archive or bundle")]
    hostname: str | None = None
    machine_id: str | None = None
    instance_id: str | None = None
    cloud_provider: str | None = None
    instance_type: str | None = None
    region: str | None = None
    virtualization: str | None = None
    os_name: str | None = None
    kernel_release: str | None = None
    cpu_model: str | None = None
    cpus: Annotated[int | None, COUNT] = None
    memory_bytes: Annotated[int | None, BYTES] = None
    swap_bytes: Annotated[int | None, BYTES] = None
    gpus: Annotated[int, COUNT, about("how many")] = 0
    gpu_models: list[str] = msgspec.field(default_factory=list)
    vmsonar_version: Annotated[str | None, about("of the recorder")] = None


class Coverage(AnswerPart):
    """Which time the archive covers, and how completely."""

    first: Annotated[datetime | None, TIME] = None
    last: Annotated[datetime | None, TIME] = None
    span_seconds: Annotated[float, SECONDS] = 0.0
    covered_seconds: Annotated[float, SECONDS] = 0.0
    coverage: Annotated[float | None, SHARE, about("covered_seconds of span_seconds")] = None
    samples: Annotated[int, COUNT] = 0
    interval_seconds: Annotated[float | None, SECONDS, about("between most samples")] = None
    boots: Annotated[int, COUNT] = 0
    runs: Annotated[int, COUNT, about("starts of the recorder")] = 0
    holes: Annotated[int, COUNT, about("times without samples")] = 0
    damaged: Annotated[bool, about("some of it cannot be read; the exit code is then 1")] = False


_WAITED = about("mean share of time in which some task waited (PSI)")


_MOST_OF_LIMIT = about("at most, of what there can be")


class NodeUse(AnswerPart):
    """How busy the machine was."""

    cpus: Annotated[int | None, COUNT] = None
    memory_total_bytes: Annotated[int | None, BYTES] = None
    cores: Annotated[Use, CORES, titled("CPU")] = NOTHING
    memory_bytes: Annotated[Use, BYTES, titled("memory")] = NOTHING
    swap_bytes: Annotated[Use, BYTES] = NOTHING
    disk_read_rate: Annotated[Use, RATE, titled("disk read")] = NOTHING
    disk_write_rate: Annotated[Use, RATE, titled("disk write")] = NOTHING
    received_rate: Annotated[Use, RATE, titled("received")] = NOTHING
    sent_rate: Annotated[Use, RATE, titled("sent")] = NOTHING
    gpu_util: Annotated[Use, PERCENT, titled("GPU")] = NOTHING
    gpu_memory_bytes: Annotated[Use, BYTES] = NOTHING
    runnable: Annotated[Use, COUNT] = NOTHING
    cpu_seconds: Annotated[float | None, BUSY] = None
    steal_share: Annotated[float | None, SHARE, about("mean")] = None
    pressure_cpu: Annotated[float | None, SHARE, _WAITED] = None
    pressure_memory: Annotated[float | None, SHARE, _WAITED] = None
    pressure_io: Annotated[float | None, SHARE, _WAITED] = None
    saturated_share: Annotated[
        float | None, SHARE, about("of the time in which all cores were busy while tasks waited for one")
    ] = None
    paired_share: Annotated[
        float | None,
        SHARE,
        about("of the time in which both threads of a core were busy and another core idle"),
    ] = None
    forks_per_second: Annotated[float | None, COUNT] = None
    swap_rate: Annotated[float | None, COUNT, about("pages a second, in and out")] = None
    major_faults_per_second: Annotated[float | None, COUNT] = None
    oom_kills: Annotated[int | None, COUNT] = None
    open_files_share: Annotated[float | None, SHARE, _MOST_OF_LIMIT] = None
    tasks_share: Annotated[float | None, SHARE, _MOST_OF_LIMIT] = None
    connections_share: Annotated[float | None, SHARE, _MOST_OF_LIMIT] = None
    disk_read_bytes: Annotated[float | None, BYTES] = None
    disk_write_bytes: Annotated[float | None, BYTES] = None
    received_bytes: Annotated[float | None, BYTES] = None
    sent_bytes: Annotated[float | None, BYTES] = None


_NOT_SHARED = about("null where the network is shared")


class ContainerUse(AnswerPart):
    """What one container used."""

    container_id: Annotated[str, CONTAINER]
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None
    name: Annotated[str | None, TEXT, titled("container")] = None
    image: Annotated[str | None, TEXT, titled("image")] = None
    engine: str | None = None
    user: Annotated[str | None, TEXT, titled("user")] = None
    user_source: Annotated[str | None, CHOICE, about("what the owner was inferred from")] = None
    compose_project: str | None = None
    compose_service: str | None = None
    first: Annotated[datetime | None, TIME, titled("seen from")] = None
    last: Annotated[datetime | None, TIME] = None
    runtime_seconds: Annotated[float | None, SECONDS, titled("lifetime")] = None
    observed_seconds: Annotated[float | None, SECONDS, titled("seen for")] = None
    samples: Annotated[int, COUNT] = 0
    lives: Annotated[int | None, COUNT, titled("lives"), about("starts that were followed")] = None
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time", bound="cpu_is_lower_bound")] = None
    cpu_is_lower_bound: bool = False
    cpu_seconds_high: Annotated[
        float | None, BUSY, about("the most it can be; null where the CPU time is exact")
    ] = None
    cores: Annotated[Use, CORES, titled("cores")] = NOTHING
    quota_cores: Annotated[float | None, CORES, titled("quota", missing="none"), about("null: none")] = None
    throttled_share: Annotated[float | None, SHARE, titled("throttled")] = None
    memory_bytes: Annotated[Use, BYTES, titled("memory"), about("without cache that can be dropped")] = (
        NOTHING
    )
    memory_byte_seconds: Annotated[float | None, BYTE_SECONDS] = None
    memory_charged_peak_bytes: Annotated[
        int | None, BYTES, titled("charged peak"), about("the kernel's own peak, page cache included")
    ] = None
    memory_limit_bytes: Annotated[int | None, BYTES, titled("limit", missing="none")] = None
    killed_below_limit: Annotated[
        bool, about("the kernel killed in it, though it never reached a limit of its own")
    ] = False
    killed_at_limit: Annotated[
        bool,
        about("the kernel killed in it, and it had reached its limit; false also where that is not known"),
    ] = False
    oom_kills: Annotated[int | None, COUNT, titled("killed")] = None
    exit_code: Annotated[int | None, NUMBER, titled("exit", missing="")] = None
    ending: Annotated[Ending, titled("end", missing="")] = Ending()
    processes_limit: Annotated[int | None, COUNT, about("pids.max; null: none")] = None
    forks_refused: Annotated[int | None, COUNT, about("because of that limit")] = None
    read_bytes: Annotated[float | None, BYTES, titled("read")] = None
    write_bytes: Annotated[float | None, BYTES, titled("written")] = None
    received_bytes: Annotated[float | None, BYTES, titled("received"), _NOT_SHARED] = None
    sent_bytes: Annotated[float | None, BYTES, titled("sent"), _NOT_SHARED] = None
    energy: Annotated[Energy, ENERGY, titled("energy")] = Energy()


class GpuUse(AnswerPart):
    """What was used of one GPU, or of a part of one."""

    gpu: Annotated[str, TEXT, titled("uuid"), about("UUID")]
    parent: Annotated[str | None, about("the card that it is a part of")] = None
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None
    index: Annotated[int | None, NUMBER, titled("GPU")] = None
    model: Annotated[str | None, TEXT, titled("model")] = None
    samples: Annotated[int, COUNT] = 0
    observed_seconds: Annotated[float | None, SECONDS] = None
    gpu_util: Annotated[Use, PERCENT, titled("busy")] = NOTHING
    gpu_seconds: Annotated[float | None, BUSY, titled("GPU time")] = None
    memory_bytes: Annotated[Use, BYTES, titled("memory")] = NOTHING
    memory_total_bytes: Annotated[int | None, BYTES, titled("of")] = None
    power_watts: Annotated[Use, WATTS, titled("power")] = NOTHING
    temperature: Annotated[Use, CELSIUS, titled("temperature")] = NOTHING
    errors: Annotated[int, COUNT, titled("errors")] = 0
    jobs: Annotated[list[str], TEXT, titled("jobs")] = msgspec.field(default_factory=list)
    energy: Annotated[Energy, ENERGY, titled("energy")] = Energy()


class Moment(AnswerPart):
    """One step of a timeline: means over the step, null where nothing was seen."""

    time: Annotated[datetime, TIME, titled("from"), about("begin of the step")]
    seconds: Annotated[float, SECONDS]
    cores: Annotated[float | None, CORES, titled("cores")] = None
    memory_bytes: Annotated[float | None, BYTES, titled("memory")] = None
    gpu_util: Annotated[float | None, PERCENT, titled("GPU")] = None
    disk_read_rate: Annotated[float | None, RATE, titled("disk read")] = None
    disk_write_rate: Annotated[float | None, RATE, titled("written")] = None
    received_rate: Annotated[float | None, RATE, titled("received")] = None
    sent_rate: Annotated[float | None, RATE, titled("sent")] = None
    pressure_cpu: Annotated[float | None, SHARE, titled("waited for CPU")] = None
    pressure_memory: Annotated[float | None, SHARE, titled("for memory")] = None
    pressure_io: Annotated[float | None, SHARE, titled("for I/O")] = None
    cores_peak: Annotated[float | None, CORES, titled("peak")] = None
    memory_peak_bytes: Annotated[float | None, BYTES] = None
    archive: str | None = None


class MachineEnd(AnswerPart):
    """How a boot of the machine ended."""

    boot: str
    time: Annotated[datetime, TIME, about("last record of that boot")]
    how: Annotated[
        str,
        CHOICE,
        about(
            "orderly_poweroff, reboot, reclaim_notice, stopped (the recorder only), no_farewell or unknown"
        ),
    ]
    evidence: Annotated[str, TEXT]


class FilesystemUse(AnswerPart):
    """How full a file system became."""

    filesystem: Annotated[str, TEXT, about("where it is mounted")]
    archive: str | None = None
    fs_type: str | None = None
    device: str | None = None
    first: Annotated[datetime | None, TIME] = None
    last: Annotated[datetime | None, TIME] = None
    samples: Annotated[int, COUNT, about("rows that tell of it")] = 0
    seconds: Annotated[float | None, SECONDS] = None
    total_bytes: Annotated[int | None, BYTES] = None
    first_free_bytes: Annotated[int | None, BYTES, about("available to everybody, in the first row")] = None
    free_bytes: Annotated[int | None, BYTES, about("in the last row")] = None
    least_free_bytes: Annotated[int | None, BYTES] = None
    inodes_total: Annotated[int | None, COUNT] = None
    inodes_free: Annotated[int | None, COUNT] = None
    least_inodes_free: Annotated[int | None, COUNT] = None
    fill_rate: Annotated[float | None, RATE, about("slope of a straight line through what is in use")] = None
    late_fill_rate: Annotated[float | None, RATE, about("the same for the last third of the time")] = None
    fill_seconds: Annotated[
        float | None, SECONDS, about("up to the last row: the longest part of the time that a line fits")
    ] = None
    filled_bytes: Annotated[int | None, BYTES, about("in that time")] = None
    fill_fit: Annotated[float | None, SHARE, about("how well the line fits: r²")] = None
    seconds_to_full: Annotated[float | None, SECONDS, about("after the last row, at that rate")] = None
