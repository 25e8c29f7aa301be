"""Processes, grouped into jobs, as Sonar's `jobs` array."""

from typing import Any

from vmsonar_archive.dialect.known import Known, Machine, ProcessFacts
from vmsonar_archive.dialect.sonar_system import share
from vmsonar_archive.records import GpuProcessRow, ProcessRow, Sample

_UNKNOWN = ProcessFacts("_user_unknown", None, False)
#: Their epoch of non-batch jobs counts from 2020, so that it stays small.
_EPOCH_BASE = 1577836800


def jobs_of(sample: Sample, known: Known, machine: Machine) -> list[dict[str, Any]]:
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

    def __init__(self, boottime: int, per_second: int, known: Known) -> None:
        self._now = boottime * per_second / 1e9
        self._per_second = per_second
        self._before = known.ticks.get
        elapsed = None if known.ticks_at is None else boottime - known.ticks_at
        self._elapsed = elapsed * per_second / 1e9 if elapsed is not None and elapsed > 0 else None

    def process(self, row: ProcessRow, facts: ProcessFacts) -> dict[str, Any]:
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


def _gpu_use(sample: Sample, machine: Machine) -> dict[int, list[dict[str, Any]]]:
    indices = {row.gpu_uuid: row.gpu_index for row in sample.gpu}
    totals = {row.gpu_uuid: row.memory_total for row in sample.gpu}
    use: dict[int, list[dict[str, Any]]] = {}
    for row in sample.gpu_process:
        index, memory = machine.cards.get(row.gpu_uuid, (None, None))
        number = indices.get(row.gpu_uuid)
        told = _on_gpu(row, number if number is not None else index, totals.get(row.gpu_uuid) or memory)
        use.setdefault(row.pid, []).append(told)
    return use


def _on_gpu(row: GpuProcessRow, index: int | None, total: int | None) -> dict[str, Any]:
    told: dict[str, Any] = {"index": index or 0, "uuid": row.gpu_uuid}
    if row.gpu_util is not None:
        told["gpu_util"] = row.gpu_util
    if row.memory_used is not None:
        told["gpu_memory"] = row.memory_used // 1024
    if (used := share(row.memory_used, total)) is not None:
        told["gpu_memory_util"] = round(used, 1)
    return told
