"""What the Slurm companion passes to the recorder: rows that are new or changed, and how each program answered."""

from collections.abc import Callable

from vmsonar_archive.records import BatchJobRow, ClusterRow

from vmsonar.collectors.protocol import WireMessage, line_reader


class BatchJobs(WireMessage, kw_only=True, tag="batch_jobs"):
    """Jobs and steps that are new or changed."""

    rows: list[BatchJobRow]


class ClusterState(WireMessage, kw_only=True, tag="cluster"):
    """All partitions and nodes, when something changed."""

    rows: list[ClusterRow]


class Asked(WireMessage, kw_only=True, tag="asked"):
    """How a program of Slurm answered: ok, absent, timeout, failed, protocol or too_large."""

    program: str
    state: str
    detail: str | None = None


AnyMessage = BatchJobs | ClusterState | Asked

from_line: Callable[[bytes], AnyMessage | None] = line_reader(AnyMessage)
