"""What an inspection finds, as data: every view, table, page and export shows exactly these fields."""

from datetime import datetime

import msgspec

#: Version of the answers of --json and --csv; fields may be added, never removed or retyped.
ANSWER = 1


class Answer(msgspec.Struct, kw_only=True):
    """A part of an answer: every field is always written, null where nothing is known."""


class Use(msgspec.Struct, kw_only=True, frozen=True):
    """How much of something was used over time; the mean is weighted by time."""

    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    peak: float | None = None


NOTHING = Use()


class Energy(msgspec.Struct, kw_only=True, frozen=True):
    """Energy of something, with how it was found."""

    joules: float | None = None
    kwh: float | None = None
    source: str | None = None
    method: str | None = None
    grams_co2e: float | None = None


class EnergyUse(Answer):
    """Energy of a machine: what its jobs used, and what was left idle."""

    joules: float | None = None
    kwh: float | None = None
    jobs_joules: float | None = None
    idle_joules: float | None = None
    gpu_joules: float | None = None
    source: str | None = None
    method: str | None = None
    pue: float | None = None
    grams_co2e: float | None = None
    factor_grams_per_kwh: float | None = None
    factor_country: str | None = None
    factor_year: str | None = None
    factor_source: str | None = None


class Machine(Answer):
    """What the machine is."""

    archive: str
    source: str
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
    cpus: int | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    gpus: int = 0
    gpu_models: list[str] = []
    vmsonar_version: str | None = None


class Coverage(Answer):
    """Which time the archive covers, and how completely."""

    first: datetime | None = None
    last: datetime | None = None
    span_seconds: float = 0.0
    covered_seconds: float = 0.0
    coverage: float | None = None
    samples: int = 0
    interval_seconds: float | None = None
    boots: int = 0
    runs: int = 0
    holes: int = 0


class NodeUse(Answer):
    """How busy the machine was."""

    cpus: int | None = None
    memory_total_bytes: int | None = None
    cores: Use = NOTHING
    memory_bytes: Use = NOTHING
    swap_bytes: Use = NOTHING
    disk_read_rate: Use = NOTHING
    disk_write_rate: Use = NOTHING
    received_rate: Use = NOTHING
    sent_rate: Use = NOTHING
    gpu_util: Use = NOTHING
    gpu_memory_bytes: Use = NOTHING
    runnable: Use = NOTHING
    cpu_seconds: float | None = None
    steal_share: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    forks_per_second: float | None = None
    swap_rate: float | None = None
    major_faults_per_second: float | None = None
    oom_kills: int | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None
    received_bytes: float | None = None
    sent_bytes: float | None = None


class JobUse(Answer):
    """What one job used."""

    job: str
    series_id: str
    archive: str | None = None
    hostname: str | None = None
    job_source: str | None = None
    pgid: int | None = None
    user: str | None = None
    program: str | None = None
    tags: list[str] = []
    command: str | None = None
    container_id: str | None = None
    container: str | None = None
    started: datetime | None = None
    first: datetime | None = None
    last: datetime | None = None
    runtime_seconds: float | None = None
    observed_seconds: float | None = None
    samples: int = 0
    ended: bool = False
    cpu_seconds: float | None = None
    cpu_is_lower_bound: bool = False
    cores: Use = NOTHING
    memory_bytes: Use = NOTHING
    memory_byte_seconds: float | None = None
    threads: Use = NOTHING
    processes_peak: int | None = None
    processes_seen: int | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    read_rate: Use = NOTHING
    write_rate: Use = NOTHING
    io_is_lower_bound: bool = False
    major_faults: float | None = None
    gpus: list[str] = []
    gpu_seconds: float | None = None
    gpu_util: Use = NOTHING
    gpu_memory_bytes: Use = NOTHING
    energy: Energy = Energy()


class ContainerUse(Answer):
    """What one container used."""

    container_id: str
    archive: str | None = None
    hostname: str | None = None
    name: str | None = None
    image: str | None = None
    engine: str | None = None
    user: str | None = None
    compose_project: str | None = None
    compose_service: str | None = None
    first: datetime | None = None
    last: datetime | None = None
    runtime_seconds: float | None = None
    observed_seconds: float | None = None
    samples: int = 0
    cpu_seconds: float | None = None
    cores: Use = NOTHING
    quota_cores: float | None = None
    throttled_share: float | None = None
    memory_bytes: Use = NOTHING
    memory_byte_seconds: float | None = None
    memory_limit_bytes: int | None = None
    oom_kills: int | None = None
    exit_code: int | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    received_bytes: float | None = None
    sent_bytes: float | None = None
    energy: Energy = Energy()


class GpuUse(Answer):
    """What was used of one GPU, or of a part of one."""

    gpu: str
    parent: str | None = None
    archive: str | None = None
    hostname: str | None = None
    index: int | None = None
    model: str | None = None
    samples: int = 0
    observed_seconds: float | None = None
    gpu_util: Use = NOTHING
    gpu_seconds: float | None = None
    memory_bytes: Use = NOTHING
    memory_total_bytes: int | None = None
    power_watts: Use = NOTHING
    temperature: Use = NOTHING
    errors: int = 0
    jobs: list[str] = []
    energy: Energy = Energy()


class GroupUse(Answer):
    """What a user or a program used, over all its jobs."""

    name: str
    tags: list[str] = []
    jobs: int = 0
    users: int | None = None
    cpu_seconds: float | None = None
    gpu_seconds: float | None = None
    cpu_is_lower_bound: bool = False
    runtime_seconds: float | None = None
    memory_median_bytes: float | None = None
    memory_p95_bytes: float | None = None
    memory_peak_bytes: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    energy: Energy = Energy()
    cpu_seconds_by_hour: list[float] = []
    cpu_seconds_by_weekday: list[float] = []


class Moment(Answer):
    """One step of a timeline: means over the step, null where nothing was seen."""

    time: datetime
    seconds: float
    cores: float | None = None
    memory_bytes: float | None = None
    gpu_util: float | None = None
    disk_read_rate: float | None = None
    disk_write_rate: float | None = None
    received_rate: float | None = None
    sent_rate: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    cores_peak: float | None = None
    memory_peak_bytes: float | None = None
    archive: str | None = None


class Happening(Answer):
    """Something that happened."""

    time: datetime
    event: str
    what: str | None = None
    subject: str | None = None
    detail: str | None = None
    exit_code: int | None = None
    container_id: str | None = None
    pgid: int | None = None


class Gap(Answer):
    """Something that was not seen: time without samples, or a collector that could not read."""

    kind: str
    begin: datetime | None = None
    end: datetime | None = None
    seconds: float | None = None
    collector: str | None = None
    reason: str | None = None
    detail: str | None = None
    samples_lost: int | None = None
    times: int = 1
    archive: str | None = None
