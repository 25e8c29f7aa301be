"""Rows about what happened, what is missing, and what recording cost."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
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
            "daemon_start, daemon_stop, boot_end, clock_step, resume, identity_change, config_reload, "
            "process_first_seen, process_exit, job_end, exit, exits_counted, container_create, container_start, "
            "container_die, container_oom, container_health, oom_kill, gpu_xid, gpu_lost, gpu_found, teardown_notice"
        ),
    ]
    happened: Annotated[Time | None, about("exact time, where it is known")] = None
    series_id: Annotated[Identifier | None, about("series it is about")] = None
    pid: Annotated[Ident | None, about("process it is about")] = None
    pgid: Annotated[Ident | None, about("job it is about")] = None
    start_ticks: Annotated[Ticks | None, about("start of that process or job after boot")] = None
    container_id: Annotated[Identifier | None, about("container it is about")] = None
    gpu_uuid: Annotated[Identifier | None, about("GPU it is about")] = None
    subject: Annotated[Choice | None, about("what an exit is of: process, job, container or run")] = None
    program: Annotated[Text | None, about("name of the program it is about", Sensitivity.COMMAND)] = None
    started_by: Annotated[
        Text | None,
        about("program of who started it, where its own is not known", Sensitivity.COMMAND),
    ] = None
    exit_code: Annotated[Ident | None, about("exit code, where it ended by itself")] = None
    exit_signal: Annotated[Ident | None, about("number of the signal that ended it")] = None
    core_dumped: Annotated[Flag | None, about("the signal left a core dump, or would have")] = None
    exit_source: Annotated[
        Choice | None,
        about("who told how it ended: connector, pidfd, accounts, engine or run"),
    ] = None
    runtime: Annotated[Nanoseconds | None, about("from its birth to its end")] = None
    exits: Annotated[
        Count | None, about("how many ends this row stands for, where they are only counted")
    ] = None
    code: Annotated[Ident | None, about("number of the event, such as an XID")] = None
    user_ticks: Annotated[Ticks | None, about("last total of user time")] = None
    system_ticks: Annotated[Ticks | None, about("last total of kernel time")] = None
    cpu_time: Annotated[
        Nanoseconds | None,
        about("CPU time of a container, or of what ended, at its end; null where only samples saw it"),
    ] = None
    amount: Annotated[
        Nanoseconds | None, about("by how much the clock stepped, or how long the machine slept")
    ] = None
    reason: Annotated[
        Choice | None,
        about(
            "of a daemon_stop: stop, poweroff, reboot, halt, kexec or soft_reboot, null where nobody could say; of a "
            "boot_end: orderly_poweroff, reboot, reclaim_notice, stopped, no_farewell or unknown"
        ),
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
