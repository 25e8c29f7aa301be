"""Batch jobs and clusters as Sonar's JSON, types `jobs` and `cluster` (Sonar's NEW-FORMAT.md)."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from vmsonar_archive.dialect.history import in_seconds, number_of
from vmsonar_archive.records import BatchJobRow, ClusterRow

# So few that a message stays far below the usual limit of a broker.
_JOBS_PER_MESSAGE = 200
#: Theirs, by our name: text and numbers as they are, times, and what Slurm counted itself.
_PLAIN = {
    "job_name": "job_name", "job_state": "job_state", "het_job_offset": "het_offset", "array_task_id": "array_task",
    "user_name": "user_name", "account": "account", "partition": "partition_name", "reservation": "reservation",
    "priority": "priority", "distribution": "distribution", "requested_resources": "requested_resources",
    "allocated_resources": "allocated_resources", "requested_cpus": "requested_cpus",
    "requested_node_count": "requested_nodes", "suspend_time": "suspended_time", "exit_code": "exit_code",
}  # fmt: skip
_TIMES = {"submit_time": "submit_time", "start_time": "start_time", "end_time": "end_time"}
_COUNTED = {"AllocTRES": "allocated_resources", "AveCPU": "mean_cpu_time", "ElapsedRaw": "elapsed_time",
            "MinCPU": "least_cpu_time", "SystemCPU": "system_time", "UserCPU": "user_time"}  # fmt: skip
_COUNTED_KIB = {"AveDiskRead": "mean_read_bytes", "AveDiskWrite": "mean_write_bytes", "AveRSS": "mean_memory",
                "AveVMSize": "mean_virtual", "MaxRSS": "memory_peak", "MaxVMSize": "virtual_peak"}  # fmt: skip
#: Theirs are these; any other state of Slurm's becomes the one that it amounts to.
_STATES = {"BOOT_FAIL": "FAILED", "NODE_FAIL": "FAILED", "PREEMPTED": "CANCELLED", "REVOKED": "CANCELLED",
           "REQUEUED": "PENDING", "RESIZING": "RUNNING", "SUSPENDED": "RUNNING", "CONFIGURING": "PENDING",
           "COMPLETING": "RUNNING", "SIGNALING": "RUNNING", "STAGE_OUT": "RUNNING", "STOPPED": "RUNNING"}  # fmt: skip


def job_messages(rows: list[BatchJobRow], time: datetime, cluster: str) -> Iterator[dict[str, Any]]:
    """The attributes of messages of type `jobs`."""
    for at in range(0, len(rows), _JOBS_PER_MESSAGE):
        part = rows[at : at + _JOBS_PER_MESSAGE]
        jobs = [_job(row, number) for row in part if (number := number_of(row.batch_job)) is not None]
        if jobs:
            yield {"time": in_seconds(time), "cluster": cluster, "slurm_jobs": jobs}


def cluster_message(rows: list[ClusterRow], time: datetime, cluster: str) -> dict[str, Any]:
    """The attributes of a message of type `cluster`."""
    partitions = [
        {"name": row.partition_name, "nodes": _names(row)} for row in rows if row.partition_name is not None
    ]
    nodes = [
        {"names": _names(row), "states": row.node_states.upper().split("+")}
        for row in rows
        if row.node_states is not None
    ]
    known = {"partitions": partitions, "nodes": nodes}
    return {"time": in_seconds(time), "cluster": cluster, "slurm": True} | {
        k: v for k, v in known.items() if v
    }


def _job(row: BatchJobRow, number: int) -> dict[str, Any]:
    told: dict[str, Any] = {theirs: getattr(row, ours) for theirs, ours in _PLAIN.items()}
    told |= {
        theirs: None if (at := getattr(row, ours)) is None else in_seconds(at)
        for theirs, ours in _TIMES.items()
    }
    told["job_state"] = _STATES.get(row.job_state or "", row.job_state or "PENDING")
    told["array_job_id"] = number_of(row.array_job)
    told["het_job_id"] = number_of(row.het_job)
    told["time_limit"] = None if row.time_limit is None else row.time_limit // 60
    if row.requested_memory is not None:
        told["requested_memory_per_node"] = row.requested_memory // max(1, row.requested_nodes or 1) // 1024
    if row.node_names:
        told["nodes"] = _names(row)
    counted = {theirs: getattr(row, ours) for theirs, ours in _COUNTED.items()}
    counted |= {
        theirs: None if (size := getattr(row, ours)) is None else size // 1024
        for theirs, ours in _COUNTED_KIB.items()
    }
    told["sacct"] = {name: value for name, value in counted.items() if value} or None
    known = {name: value for name, value in told.items() if value is not None}
    return {"job_id": number, "job_step": row.batch_step or "", **known}


def _names(row: BatchJobRow | ClusterRow) -> list[str]:
    """The parts of `c[1-3,5],d1` between the commas that are in no bracket."""
    parts, depth, begin = [], 0, 0
    text = row.node_names or ""
    for place, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [part for part in (*parts, text[begin:]) if part]
