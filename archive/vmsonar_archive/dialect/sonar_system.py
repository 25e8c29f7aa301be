"""The node, its CPUs, GPUs and disks as Sonar's `system` object."""

from datetime import UTC, datetime
from typing import Any

from vmsonar_archive.dialect.known import Machine, in_seconds
from vmsonar_archive.records import DISK_COUNTERS, CpuRow, DiskRow, GpuRow, NodeRow, Sample


def system_of(sample: Sample, machine: Machine, boot_time: int) -> dict[str, Any]:
    """The state of the machine as a whole."""
    node = sample.node[0] if sample.node else NodeRow()
    per_second = node.ticks_per_second or machine.ticks_per_second
    system: dict[str, Any] = {"boot": in_seconds(datetime.fromtimestamp(boot_time, UTC))}
    if sample.cpu:
        system["cpus"] = _cpus(sample.cpu, per_second, machine.cpus)
    if sample.gpu:
        system["gpus"] = [_gpu(row, machine) for row in sorted(sample.gpu, key=_index)]
    if sample.disk:
        system["disks"] = [_disk(row) for row in sample.disk]
    if node.memory_total is not None and node.memory_available is not None:
        system["used_memory"] = max(0, node.memory_total - node.memory_available) // 1024
    loads = (("load1", node.load1), ("load5", node.load5), ("load15", node.load15))
    tasks = (("runnable_entities", node.tasks_runnable), ("existing_entities", node.tasks_existing))
    system.update((name, value) for name, value in (*loads, *tasks) if value is not None)
    return system


def _cpus(rows: list[CpuRow], per_second: int, cpus: int) -> list[int]:
    """Busy seconds by CPU number; readers want one entry per logical CPU, so one that is offline is 0."""
    busy = [0] * max(cpus, 1 + max(row.cpu_index for row in rows))
    for row in rows:
        ticks = (row.user_ticks, row.nice_ticks, row.system_ticks, row.irq_ticks, row.softirq_ticks)
        busy[row.cpu_index] = sum(tick or 0 for tick in ticks) // per_second
    return busy


def _index(row: GpuRow) -> int:
    return row.gpu_index or 0


def _gpu(row: GpuRow, machine: Machine) -> dict[str, Any]:
    index, memory = machine.cards.get(row.gpu_uuid, (None, None))
    total = row.memory_total or memory
    values = {
        "failing": None if row.error is None else 1,
        "fan": _whole(row.fan),
        "compute_mode": row.compute_mode,
        # Their representation of a number that may be unset: 0 is unset, 1 infinite, else the value + 2.
        "performance_state": None if row.performance_state is None else row.performance_state + 2,
        "memory": None if row.memory_used is None else row.memory_used // 1024,
        "ce_util": _whole(row.gpu_util),
        # Theirs is the share of memory in use; ours of that name is memory traffic.
        "memory_util": _whole(share(row.memory_used, total)),
        "temperature": None if row.temperature is None else round(row.temperature),
        "power": _whole(row.power),
        "power_limit": _whole(row.power_limit),
        "ce_clock": row.core_clock,
        "memory_clock": row.memory_clock,
    }
    number = row.gpu_index if row.gpu_index is not None else index
    told = {name: value for name, value in values.items() if value is not None}
    return {"index": number or 0, "uuid": row.gpu_uuid, **told}


def _disk(row: DiskRow) -> dict[str, Any]:
    stats: list[int] = []
    for column in DISK_COUNTERS:
        value = getattr(row, column)
        # Older kernels have fewer columns, and readers go by position.
        if value is None:
            break
        stats.append(value)
    return {"name": row.device, "major": row.device_major, "minor": row.device_minor, "stats": stats}


def share(part: int | None, whole: int | None) -> float | None:
    """Percent, where both are known."""
    return 100 * part / whole if part is not None and whole else None


def _whole(value: float | None) -> int | None:
    return None if value is None else max(0, round(value))
