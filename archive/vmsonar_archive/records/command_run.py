"""Rows about one command that `vmsonar run` started: what it was, how it ended, and what the kernel says it used."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
    Ident,
    Microseconds,
    Nanoseconds,
    Row,
    Sensitivity,
    Text,
    Ticks,
    Time,
    about,
)


class CommandRunRow(Row, kw_only=True):
    """One command: a row in the first sample that knows it, and one in the last with its end and its totals."""

    pid: Annotated[Ident, about("its first process")]
    start_ticks: Annotated[Ticks | None, about("start of that process after boot")] = None
    command: Annotated[
        Text | None, about("command line, masked as command_line: full does", Sensitivity.COMMAND)
    ] = None
    started: Annotated[Time | None, about("when it was started")] = None
    ended: Annotated[Time | None, about("when it ended; absent while it runs")] = None
    elapsed: Annotated[Nanoseconds | None, about("from start to end by CLOCK_BOOTTIME")] = None
    exit_code: Annotated[Ident | None, about("exit code, where it ended by itself; waitid(2)")] = None
    exit_signal: Annotated[Ident | None, about("number of the signal that ended it; waitid(2)")] = None
    core_dumped: Annotated[Flag | None, about("the signal left a core dump, or would have")] = None
    cpus_available: Annotated[
        Count | None, about("logical CPUs that it was allowed to use; sched_getaffinity(2)")
    ] = None
    cpu_quota: Annotated[
        Microseconds | None, about("CPU time per second that control groups allow; null: no limit")
    ] = None
    memory_limit: Annotated[
        Bytes | None, about("least memory limit of the control groups it is in; null: no limit")
    ] = None
    user_time: Annotated[
        Nanoseconds | None, about("user time of it and of all descendants that were waited for; wait4(2)")
    ] = None
    system_time: Annotated[Nanoseconds | None, about("kernel time of the same; wait4(2)")] = None
    resident_peak: Annotated[
        Bytes | None, about("largest resident set of any one process of them; ru_maxrss of wait4(2)")
    ] = None
    group_cpu_time: Annotated[
        Nanoseconds | None, about("CPU time of its own control group, whoever waited for whom; cpu.stat")
    ] = None
    group_memory_peak: Annotated[
        Bytes | None, about("peak of its own control group, page cache included; memory.peak")
    ] = None
    group_read_bytes: Annotated[Bytes | None, about("read by its own control group; io.stat")] = None
    group_write_bytes: Annotated[Bytes | None, about("written by its own control group; io.stat")] = None
    waited_cpu: Annotated[
        Microseconds | None, about("some of its own group waited for a CPU; some of cpu.pressure")
    ] = None
    waited_memory: Annotated[Microseconds | None, about("the same for memory; memory.pressure")] = None
    waited_io: Annotated[Microseconds | None, about("the same for I/O; io.pressure")] = None
    left_behind: Annotated[Count | None, about("descendants that ran on after its end")] = None
    totals_source: Annotated[
        Choice | None, about("where the totals come from: wait4, cgroup (and wait4), or none")
    ] = None
