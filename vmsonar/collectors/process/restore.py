"""Takes up the books where the last sample of an earlier run of the daemon left them."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.read.reader import last_sample
from vmsonar_archive.records import JobInfoRow, JobRow, ProcessRow, Sample

from vmsonar.collectors.process.jobs import JobTable
from vmsonar.collectors.process.model import Job, Process

Key = tuple[int, int]


class _Infos(msgspec.Struct):
    job_info: list[JobInfoRow] = []


@dataclass(slots=True)
class Last:
    """The last sample, and the descriptions of its jobs, which stand earlier in its segment."""

    sample: Sample
    job_infos: dict[Key, JobInfoRow] = field(default_factory=dict)


def read_last(root: Path) -> Last | None:
    """What the archive says last; None for one without a sample, or no archive."""
    infos: dict[Key, JobInfoRow] = {}
    decode = msgspec.json.Decoder(_Infos).decode

    def see(line: bytes) -> None:
        if b'"job_info":[' in line:
            with suppress(msgspec.MsgspecError):
                infos.update({(info.pgid, info.start_ticks): info for info in decode(line).job_info})

    sample = last_sample(root, see)
    return None if sample is None else Last(sample, infos)


def restore_jobs(jobs: JobTable, last: Last) -> dict[Key, Process]:
    """Puts the jobs in as they were and returns their processes, by pid and start."""
    groups: dict[int, Job] = {}
    for row in last.sample.job:
        if row.processes:
            groups[row.pgid] = job = _job(jobs, row, last.sample.boot)
            info = last.job_infos.get((row.pgid, row.start_ticks))
            job.info = encode_row(info) if info else b""
            jobs.restore(job)
    processes = [_process(row) for row in last.sample.process]
    for process in processes:
        job_of_it = groups.get(process.pgid)
        if job_of_it is not None:
            process.job = job_of_it
            job_of_it.members.add(process)
    return {(process.pid, process.start): process for process in processes}


def take_over(process: Process, earlier: Process) -> None:
    """Goes on with a process that an earlier run knew: only what it used since is new."""
    process.counted = earlier.counted
    process.counted_reaped = (*earlier.counted_reaped[:2], process.reaped[2])
    process.counted_moved = earlier.counted_moved
    if earlier.job is not None:
        process.job = earlier.job
        process.job.members.discard(earlier)
        process.job.members.add(process)


def _job(jobs: JobTable, row: JobRow, boot: str) -> Job:
    job = jobs.make(row.pgid, row.start_ticks, boot, is_shown=True)
    job.seen = row.processes_seen or 0
    job.user, job.system = row.user_ticks or 0, row.system_ticks or 0
    job.major = row.major_faults or 0
    job.read, job.write = row.read_bytes, row.write_bytes
    job.is_unattributed = bool(row.unattributed)
    job.is_partial_io = bool(row.io_partial)
    return job


def _process(row: ProcessRow) -> Process:
    process = Process(str(row.pid))
    process.start = row.start_ticks
    process.ppid, process.pgid = row.ppid or 0, row.pgid or 0
    process.used = process.counted = (row.user_ticks or 0, row.system_ticks or 0, row.major_faults or 0)
    process.reaped = process.counted_reaped = (row.child_user_ticks or 0, row.child_system_ticks or 0, 0)
    if row.read_bytes is not None and row.write_bytes is not None:
        process.moved = process.counted_moved = (row.read_bytes, row.write_bytes)
    return process
