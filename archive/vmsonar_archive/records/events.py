"""Rows about what happened, what is missing, and what recording cost."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Ident,
    Identifier,
    Nanoseconds,
    Row,
    Sensitivity,
    Text,
    Ticks,
    Time,
    about,
)


class EventRow(Row, kw_only=True):
    """Something that happened between two samples."""

    event_type: Annotated[
        Choice,
        about(
            "daemon_start, daemon_stop, clock_step, resume, identity_change, config_reload, "
            "process_first_seen, process_exit, job_end, container_create, container_start, container_die, "
            "container_oom, container_health, oom_kill, gpu_xid, gpu_lost, gpu_found, teardown_notice"
        ),
    ]
    happened: Annotated[Time | None, about("exact time, where it is known")] = None
    series_id: Annotated[Identifier | None, about("series it is about")] = None
    pid: Annotated[Ident | None, about("process it is about")] = None
    pgid: Annotated[Ident | None, about("job it is about")] = None
    start_ticks: Annotated[Ticks | None, about("start of that process or job after boot")] = None
    container_id: Annotated[Identifier | None, about("container it is about")] = None
    gpu_uuid: Annotated[Identifier | None, about("GPU it is about")] = None
    exit_code: Annotated[Ident | None, about("exit code of a container")] = None
    code: Annotated[Ident | None, about("number of the event, such as an XID")] = None
    user_ticks: Annotated[Ticks | None, about("last total of user time")] = None
    system_ticks: Annotated[Ticks | None, about("last total of kernel time")] = None
    cpu_time: Annotated[Nanoseconds | None, about("last total of a container's CPU time")] = None
    amount: Annotated[
        Nanoseconds | None, about("by how much the clock stepped, or how long the machine slept")
    ] = None
    detail: Annotated[Text | None, about("in words", Sensitivity.LABEL)] = None


class GapRow(Row, kw_only=True):
    """Something that could not be read, said once when it begins."""

    collector: Annotated[Choice, about("who could not read")]
    reason: Annotated[Choice, about("stable word for why, such as timeout, permission or disk_full")]
    detail: Annotated[Text | None, about("in words", Sensitivity.LABEL)] = None
    since: Annotated[Time | None, about("when it began, where that was before this sample")] = None
    lost: Annotated[Count | None, about("samples that were lost by it")] = None


class CostRow(Row, kw_only=True):
    """What recording cost so far; all counters run since the daemon started."""

    cpu_time: Annotated[
        Nanoseconds | None, about("user and kernel time of the daemon; CLOCK_PROCESS_CPUTIME_ID")
    ] = None
    child_cpu_time: Annotated[
        Nanoseconds | None, about("of its children; RUSAGE_CHILDREN, and companions by schedstat")
    ] = None
    wall_time: Annotated[
        Nanoseconds | None, about("from this tick to this row: what collecting the sample took")
    ] = None
    late_time: Annotated[Nanoseconds | None, about("how late this sample began after its tick")] = None
    bytes_written: Annotated[Bytes | None, about("compressed bytes appended")] = None
    samples_lost: Annotated[Count | None, about("samples that could not be written")] = None
