"""Samples and sysinfo records as Sonar's JSON, data format 0 (Sonar's NEW-FORMAT.md)."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from vmsonar_archive.dialect.batch import cluster_message, job_messages
from vmsonar_archive.dialect.history import History, HostName, SonarMachine, SonarProcess, in_seconds
from vmsonar_archive.records import (
    DISK_COUNTERS,
    Card,
    CpuRow,
    DiskRow,
    GpuRow,
    NodeRow,
    ProcessRow,
    Sample,
    SysInfo,
)

_MANUFACTURERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
#: Seconds of the first moment that there is: a clock may stand before its own boot.
_YEAR_1 = -62_135_596_800
#: Linux can be built for this many (NR_CPUS); a number beyond is no CPU's.
_MAX_CPUS = 8192
_UNKNOWN = SonarProcess("_user_unknown", None, False)
#: Their epoch of non-batch jobs counts from 2020, so that it stays small.
_EPOCH_BASE = 1577836800
#: Consumers compute CPU utilisation from cpu_time only when they read a version of at least 0.7 here.
_META = {"producer": "vmsonar", "version": "1.0.0"}

Attributes = dict[str, Any]
#: Topics and files of batch jobs and of their cluster.
Batch = Literal["job", "cluster"]
BATCH_KINDS: tuple[Batch, ...] = ("job", "cluster")
encode = msgspec.json.Encoder().encode


class Sonar:
    """Converts the records of one archive, given in order; sysinfo records before the samples they describe."""

    def __init__(
        self, cluster: str, node: str, host_name: HostName = "full", known: History | None = None
    ) -> None:
        """`node` is the name to use where no sysinfo record tells one."""
        self.cluster = cluster
        self.known = known or History()
        self._node = node
        self._host_name: HostName = host_name

    def node_at(self, seq: int) -> str:
        """The name of the node in records of that number."""
        return self.known.machine_at(seq).name(self._host_name) or self._node

    def sysinfo(self, info: SysInfo) -> Attributes:
        """The attributes of one sysinfo record; it is learnt from as well."""
        self.known.learn_machine(info)
        return {**self._head(info), **_sysinfo(info)}

    def sample(self, sample: Sample, shown: Sample | None = None) -> Attributes:
        """The attributes of one sample; `shown` is what may be told of it, where that is not all."""
        known = self.known
        known.learn_infos(sample)
        machine = known.machine_at(sample.seq)
        shown = sample if shown is None else shown
        attributes = self._head(sample)
        attributes["system"] = _system(shown, machine, known.boot_time(sample))
        if jobs := _jobs(shown, known, machine):
            attributes["jobs"] = jobs
        if errors := [self._error(sample, gap) for gap in shown.gap]:
            attributes["errors"] = errors
        known.learn_ticks(sample)
        return attributes

    def batch(self, sample: Sample) -> list[tuple[Batch, Attributes]]:
        """What a sample tells of batch jobs and of their cluster, as messages of their own."""
        found: list[tuple[Batch, Attributes]] = [
            ("job", told) for told in job_messages(sample.batch_job, sample.time, self.cluster)
        ]
        if sample.cluster:
            found.append(("cluster", cluster_message(sample.cluster, sample.time, self.cluster)))
        return found

    def pass_over(self, sample: Sample) -> None:
        """Learns from a sample without converting it."""
        self.known.learn_infos(sample)
        self.known.learn_ticks(sample)

    def _head(self, record: Sample | SysInfo) -> Attributes:
        return {"time": in_seconds(record.time), "cluster": self.cluster, "node": self.node_at(record.seq)}

    def _error(self, sample: Sample, gap: Any) -> Attributes:
        words = [gap.collector, gap.reason, *([gap.detail] if gap.detail else [])]
        return {**self._head(sample), "detail": ": ".join(words)}


def envelope(kind: Literal["sample", "sysinfo"] | Batch, attributes: Attributes) -> bytes:
    """The message: one compact JSON object without a newline."""
    return encode(
        {"meta": _META, "data": {"type": "jobs" if kind == "job" else kind, "attributes": attributes}}
    )


def _sysinfo(info: SysInfo) -> dict[str, Any]:
    """All but time, cluster and node. Readers refuse 0 and empty text: what is unknown is the least there is."""
    threads = info.threads_per_core or 1
    sockets = info.sockets or 1
    cores = info.cores_per_socket or max(1, (info.cpus or 1) // (sockets * threads))
    attributes: dict[str, Any] = {
        "os_name": info.kernel_name or "Linux",
        "os_release": info.kernel_release or "unknown",
        "architecture": info.architecture or "unknown",
        "numa_nodes": info.numa_nodes or 1,
        "sockets": sockets,
        "cores_per_socket": cores,
        "threads_per_core": threads,
        "cpu_model": info.cpu_model or "unknown",
        "memory": max(1, (info.memory_total or 0) // 1024),
    }
    if info.numa_distances:
        attributes["distances"] = info.numa_distances
    if info.cards:
        attributes["cards"] = [_card(card) for card in info.cards]
    return attributes


def _card(card: Card) -> dict[str, Any]:
    told = {
        "index": card.gpu_index or 0,
        "uuid": card.gpu_uuid,
        "address": card.bus_address,
        "manufacturer": _MANUFACTURERS.get(card.vendor or "", card.vendor),
        "model": card.model,
        "architecture": card.architecture,
        "driver": card.driver,
        "firmware": card.firmware,
        "memory": _kib(card.memory),
        "power_limit": _whole(card.power_limit),
        "max_power_limit": _whole(card.power_limit_max),
        "min_power_limit": _whole(card.power_limit_min),
        "max_ce_clock": card.core_clock_max,
        "max_memory_clock": card.memory_clock_max,
    }
    return _known(told)


def _system(sample: Sample, machine: SonarMachine, boot_time: int) -> dict[str, Any]:
    """The state of the machine as a whole."""
    node = sample.node[0] if sample.node else NodeRow()
    per_second = node.ticks_per_second or machine.ticks_per_second
    system: dict[str, Any] = {"boot": in_seconds(datetime.fromtimestamp(max(boot_time, _YEAR_1), UTC))}
    if sample.cpu:
        system["cpus"] = _cpus(sample.cpu, per_second, machine.cpus)
    if sample.gpu:
        by_index = sorted(sample.gpu, key=lambda row: row.gpu_index or 0)
        system["gpus"] = [_gpu(row, machine) for row in by_index]
    if sample.disk:
        system["disks"] = [_disk(row) for row in sample.disk]
    if node.memory_total is not None and node.memory_available is not None:
        system["used_memory"] = max(0, node.memory_total - node.memory_available) // 1024
    loads = {"load1": node.load1, "load5": node.load5, "load15": node.load15}
    tasks = {"runnable_entities": node.tasks_runnable, "existing_entities": node.tasks_existing}
    return system | _known({**loads, **tasks})


def _cpus(rows: list[CpuRow], per_second: int, cpus: int) -> list[int]:
    """Busy seconds by CPU number; readers want one entry per logical CPU, so one that is offline is 0."""
    rows = [row for row in rows if 0 <= row.cpu_index < _MAX_CPUS]
    busy = [0] * max(min(cpus, _MAX_CPUS), 1 + max((row.cpu_index for row in rows), default=-1))
    for row in rows:
        ticks = (row.user_ticks, row.nice_ticks, row.system_ticks, row.irq_ticks, row.softirq_ticks)
        busy[row.cpu_index] = sum(tick or 0 for tick in ticks) // per_second
    return busy


def _gpu(row: GpuRow, machine: SonarMachine) -> dict[str, Any]:
    index, memory = machine.cards.get(row.gpu_uuid, (None, None))
    number = row.gpu_index if row.gpu_index is not None else index
    told = {
        "index": number or 0,
        "uuid": row.gpu_uuid,
        "failing": None if row.error is None else 1,
        "fan": _whole(row.fan),
        "compute_mode": row.compute_mode,
        # Their representation of a number that may be unset: 0 is unset, 1 infinite, else the value + 2.
        "performance_state": None if row.performance_state is None else row.performance_state + 2,
        "memory": _kib(row.memory_used),
        "ce_util": _whole(row.gpu_util),
        # Theirs is the share of memory in use; ours of that name is memory traffic.
        "memory_util": _whole(_share(row.memory_used, row.memory_total or memory)),
        "temperature": None if row.temperature is None else round(row.temperature),
        "power": _whole(row.power),
        "power_limit": _whole(row.power_limit),
        "ce_clock": row.core_clock,
        "memory_clock": row.memory_clock,
    }
    return _known(told)


def _disk(row: DiskRow) -> dict[str, Any]:
    stats: list[int] = []
    for column in DISK_COUNTERS:
        value = getattr(row, column)
        # Older kernels have fewer columns, and readers go by position.
        if value is None:
            break
        stats.append(value)
    return {"name": row.device, "major": row.device_major, "minor": row.device_minor, "stats": stats}


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _kib(size: int | None) -> int | None:
    return None if size is None else size // 1024


def _share(part: int | None, whole: int | None) -> float | None:
    """Percent, or None where one of them is unknown."""
    return 100 * part / whole if part is not None and whole else None


def _whole(value: float | None) -> int | None:
    return None if value is None else max(0, round(value))


def _jobs(sample: Sample, known: History, machine: SonarMachine) -> list[dict[str, Any]]:
    """Every process, in the job of its group and its user."""
    epoch = max(1, known.boot_time(sample) - _EPOCH_BASE)
    per_second = (sample.node[0].ticks_per_second if sample.node else None) or machine.ticks_per_second
    gpus = _gpu_use(sample, machine)
    facts_of, batch_jobs = known.processes.get, known.batch_jobs
    encode = _Encoder(sample.boottime, per_second, known).process
    jobs: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in sample.process:
        facts = facts_of((row.pid, row.start_ticks), _UNKNOWN)
        group = row.pid if row.pgid is None else row.pgid
        process = encode(row, facts)
        if row.pid in gpus:
            process["gpus"] = gpus[row.pid]
        jobs.setdefault((group, facts.user), []).append(process)
    return _merged(jobs, batch_jobs, epoch)


def _merged(
    groups: dict[tuple[int, str], list[dict[str, Any]]], batch_jobs: dict[int, int], epoch: int
) -> list[dict[str, Any]]:
    """One entry per job and user; a batch job may have several process groups."""
    jobs: dict[tuple[int, str, int], dict[str, Any]] = {}
    for (group, user), processes in groups.items():
        batch = batch_jobs.get(group)
        key = (group, user, epoch) if batch is None else (batch, user, 0)
        job = jobs.setdefault(key, {"job": key[0], "user": user, "epoch": key[2], "processes": []})
        job["processes"] += processes
    return list(jobs.values())


class _Encoder:
    """Turns rows of one sample into Sonar's processes."""

    def __init__(self, boottime: int, per_second: int, known: History) -> None:
        self._now = boottime * per_second / 1e9
        self._per_second = per_second
        self._before = known.ticks.get
        elapsed = None if known.ticks_at is None else boottime - known.ticks_at
        self._elapsed = elapsed * per_second / 1e9 if elapsed is not None and elapsed > 0 else None

    def process(self, row: ProcessRow, facts: SonarProcess) -> dict[str, Any]:
        own = (row.user_ticks or 0) + (row.system_ticks or 0)
        told: dict[str, Any] = {"pid": row.pid}
        if row.ppid:
            told["ppid"] = row.ppid
        if facts.command is not None:
            told["cmd"] = facts.command + " <defunct>" if row.state == "Z" else facts.command
        if row.resident and row.shared is not None:
            told["resident_memory"] = max(0, row.resident - row.shared) // 1024
        if row.data_stack:
            told["virtual_memory"] = row.data_stack // 1024
        if row.threads and row.threads > 1:
            told["num_threads"] = row.threads - 1
        if own:
            told["cpu_avg"] = round(100 * own / max(1, self._now - row.start_ticks), 1)
            if util := self._recent(row, own):
                told["cpu_util"] = util
        if ticks := own + (row.child_user_ticks or 0) + (row.child_system_ticks or 0):
            told["cpu_time"] = ticks // self._per_second
        if row.read_bytes:
            told["data_read"] = (row.read_bytes + 1023) // 1024
        if row.write_bytes:
            told["data_written"] = (row.write_bytes + 1023) // 1024
        if row.cancelled_bytes:
            told["data_cancelled"] = (row.cancelled_bytes + 1023) // 1024
        if facts.contained:
            told["in_container"] = True
        return told

    def _recent(self, row: ProcessRow, own: int) -> float | None:
        """Percent since the sample before; of its whole life for a process that began since then."""
        if self._elapsed is None:
            return None
        before = self._before((row.pid, row.start_ticks))
        if before is not None:
            return round(100 * max(0, own - before) / self._elapsed, 1)
        life = self._now - row.start_ticks
        return round(100 * own / max(1, life), 1) if life <= self._elapsed else None


def _gpu_use(sample: Sample, machine: SonarMachine) -> dict[int, list[dict[str, Any]]]:
    indices = {row.gpu_uuid: row.gpu_index for row in sample.gpu}
    totals = {row.gpu_uuid: row.memory_total for row in sample.gpu}
    use: dict[int, list[dict[str, Any]]] = {}
    for row in sample.gpu_process:
        index, memory = machine.cards.get(row.gpu_uuid, (None, None))
        number = indices.get(row.gpu_uuid)
        used = _share(row.memory_used, totals.get(row.gpu_uuid) or memory)
        told = {
            "index": (number if number is not None else index) or 0,
            "uuid": row.gpu_uuid,
            "gpu_util": row.gpu_util,
            "gpu_memory": _kib(row.memory_used),
            "gpu_memory_util": None if used is None else round(used, 1),
        }
        use.setdefault(row.pid, []).append(_known(told))
    return use
