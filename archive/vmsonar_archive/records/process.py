"""Rows about processes and jobs (proc_pid_stat(5), proc_pid_io(5))."""

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


class ProcessRow(Row, kw_only=True):
    """One process in one sample; what does not change is in its process_info row."""

    pid: Annotated[Ident, about("process id; with start_ticks and the boot id it names the process")]
    start_ticks: Annotated[Ticks, about("start after boot; starttime of /proc/PID/stat")]
    pgid: Annotated[
        Ident | None, about("process group: the job this process belongs to; pgrp of /proc/PID/stat")
    ] = None
    ppid: Annotated[Ident | None, about("parent; /proc/PID/stat")] = None
    state: Annotated[Choice | None, about("R, S, D, Z, T, …; /proc/PID/stat")] = None
    threads: Annotated[Count | None, about("num_threads of /proc/PID/stat")] = None
    user_ticks: Annotated[Ticks | None, about("user mode, all threads; utime of /proc/PID/stat")] = None
    system_ticks: Annotated[Ticks | None, about("kernel mode, all threads; stime of /proc/PID/stat")] = None
    child_user_ticks: Annotated[Ticks | None, about("of waited-for children; cutime of /proc/PID/stat")] = (
        None
    )
    child_system_ticks: Annotated[Ticks | None, about("of waited-for children; cstime of /proc/PID/stat")] = (
        None
    )
    minor_faults: Annotated[Count | None, about("faults without I/O; minflt of /proc/PID/stat")] = None
    major_faults: Annotated[Count | None, about("faults with I/O; majflt of /proc/PID/stat")] = None
    virtual: Annotated[Bytes | None, about("address space; vsize of /proc/PID/stat")] = None
    resident: Annotated[Bytes | None, about("resident memory; rss of /proc/PID/stat")] = None
    shared: Annotated[Bytes | None, about("resident file and shared memory; shared of /proc/PID/statm")] = (
        None
    )
    data_stack: Annotated[Bytes | None, about("address space of data and stack; data of /proc/PID/statm")] = (
        None
    )
    read_bytes: Annotated[Bytes | None, about("fetched from storage; read_bytes of /proc/PID/io")] = None
    write_bytes: Annotated[Bytes | None, about("sent to storage; write_bytes of /proc/PID/io")] = None
    cancelled_bytes: Annotated[
        Bytes | None, about("writes that truncation made void; cancelled_write_bytes of /proc/PID/io")
    ] = None
    read_chars: Annotated[Bytes | None, about("passed through read calls; rchar of /proc/PID/io")] = None
    write_chars: Annotated[Bytes | None, about("passed through write calls; wchar of /proc/PID/io")] = None
    child_read_bytes: Annotated[
        Bytes | None, about("part of read_bytes that came with waited-for children, as far as that is known")
    ] = None
    child_write_bytes: Annotated[
        Bytes | None, about("part of write_bytes that came with waited-for children, as far as that is known")
    ] = None
    resident_peak: Annotated[
        Bytes | None,
        about("highest resident memory since its last exec; VmHWM of /proc/PID/status when read"),
    ] = None


class Owner(Row, kw_only=True):
    """Whose something is, and how that was found out."""

    user_id: Annotated[
        Ident | None, about("effective uid, of a setuid program the real one", Sensitivity.USER)
    ] = None
    user_name: Annotated[Text | None, about("name of that uid in the user database", Sensitivity.USER)] = None
    user_source: Annotated[Choice | None, about("what the owner was inferred from")] = None


class ProcessInfoRow(Owner, kw_only=True):
    """What does not change while a process lives; once per segment and again after a change."""

    series_id: Annotated[Identifier, about("series of this process")]
    pid: Annotated[Ident, about("process id")]
    start_ticks: Annotated[Ticks, about("start after boot; starttime of /proc/PID/stat")]
    started: Annotated[Time | None, about("start as wall time: boot time + start_ticks")] = None
    session_id: Annotated[Ident | None, about("session; /proc/PID/stat")] = None
    terminal: Annotated[Ident | None, about("controlling terminal, 0 for none; tty_nr of /proc/PID/stat")] = (
        None
    )
    program: Annotated[
        Text | None, about("kernel's name of the process; comm of /proc/PID/stat", Sensitivity.COMMAND)
    ] = None
    command: Annotated[
        Text | None,
        about("command line as the command_line setting allows; /proc/PID/cmdline", Sensitivity.COMMAND),
    ] = None
    libraries: Annotated[
        Text | None,
        about(
            "packages of which a Python that has worked for 5 s has loaded compiled modules, joined by commas; "
            "/proc/PID/maps, where it may be read",
            Sensitivity.COMMAND,
        ),
    ] = None
    container_id: Annotated[Identifier | None, about("container; last 64-hex id in /proc/PID/cgroup")] = None
    contained: Annotated[
        Flag | None, about("in a user or mount namespace of its own without a known container engine")
    ] = None
    cgroup: Annotated[Text | None, about("control group path; /proc/PID/cgroup", Sensitivity.PATH)] = None
    kernel_thread: Annotated[Flag | None, about("a kernel thread; flags of /proc/PID/stat")] = None


class JobRow(Row, kw_only=True):
    """Running totals of one job: a process group, or a batch job. Totals never decrease."""

    pgid: Annotated[Ident, about("process group; with start_ticks and the boot id it names the job")]
    start_ticks: Annotated[Ticks, about("start of the member that was seen first")]
    processes: Annotated[Count | None, about("members now")] = None
    processes_seen: Annotated[Count | None, about("members ever seen in a sample")] = None
    processes_unseen: Annotated[
        Count | None,
        about("members that ended before a sample showed them, as far as the kernel tells; proc connector"),
    ] = None
    threads: Annotated[Count | None, about("threads of all members now")] = None
    user_ticks: Annotated[Ticks | None, about("user time of all members, those that ended included")] = None
    system_ticks: Annotated[Ticks | None, about("kernel time of all members, those that ended included")] = (
        None
    )
    unattributed: Annotated[
        Flag | None,
        about(
            "members ended whose last CPU time nobody reported, or cannot be told from others': see the bounds"
        ),
    ] = None
    cpu_ticks_low: Annotated[
        Ticks | None, about("least user and kernel time it can have used; absent where the totals are exact")
    ] = None
    cpu_ticks_high: Annotated[
        Ticks | None, about("most user and kernel time it can have used; absent where the totals are exact")
    ] = None
    cpu_source: Annotated[
        Choice | None,
        about("what tells the time of members that ended, the weakest so far: accounts, lifeline or samples"),
    ] = None
    major_faults: Annotated[
        Count | None, about("faults with I/O of all members, those that ended included")
    ] = None
    memory: Annotated[Bytes | None, about("anonymous memory of all members, plus shared memory once")] = None
    memory_source: Annotated[
        Choice | None, about("sum, pss or estimate: how copy-on-write sharing was resolved")
    ] = None
    memory_low: Annotated[Bytes | None, about("least that memory can be; absent where it is exact")] = None
    memory_high: Annotated[Bytes | None, about("most that memory can be; absent where it is exact")] = None
    memory_peak: Annotated[
        Bytes | None,
        about("highest memory since its start: of all samples and the members' high-water marks"),
    ] = None
    memory_peak_low: Annotated[
        Bytes | None, about("least the peak can be: the highest sample; absent where the peak is exact")
    ] = None
    memory_peak_high: Annotated[
        Bytes | None,
        about(
            "most the peak can be: the members' high-water marks together; absent where exact or not known"
        ),
    ] = None
    memory_peak_source: Annotated[
        Choice | None,
        about(
            "sampled (a lower bound), high_water (between the bounds) or accounts: what the peak comes from"
        ),
    ] = None
    memory_charged_peak: Annotated[
        Bytes | None,
        about("peak of the control group that holds this job and nothing else, page cache included"),
    ] = None
    memory_limit: Annotated[Bytes | None, about("of that group; memory.max or memory.limit_in_bytes")] = None
    memory_max_events: Annotated[
        Count | None, about("that limit was met; max of memory.events, or memory.failcnt unless 0")
    ] = None
    oom_kills: Annotated[Count | None, about("in that group; of memory.events or memory.oom_control")] = None
    pids_limit: Annotated[Count | None, about("pids.max of a group that is its own likewise")] = None
    pids_max_events: Annotated[Count | None, about("forks that failed at it; max of pids.events")] = None
    throttled_periods: Annotated[Count | None, about("of its own group; nr_throttled of cpu.stat")] = None
    throttled_time: Annotated[Nanoseconds | None, about("of its own group; cpu.stat")] = None
    resident: Annotated[
        Bytes | None, about("resident memory summed over members, shared pages counted per member")
    ] = None
    read_bytes: Annotated[Bytes | None, about("fetched from storage, members that ended included")] = None
    write_bytes: Annotated[Bytes | None, about("sent to storage, members that ended included")] = None
    io_partial: Annotated[
        Flag | None,
        about(
            "some members' I/O could not be read to their end, or cannot be told from others': see the bounds"
        ),
    ] = None
    read_bytes_low: Annotated[Bytes | None, about("least it can have read; absent where exact")] = None
    read_bytes_high: Annotated[
        Bytes | None, about("most it can have read; absent where exact, or where there is no bound")
    ] = None
    write_bytes_low: Annotated[Bytes | None, about("least it can have written; absent where exact")] = None
    write_bytes_high: Annotated[
        Bytes | None, about("most it can have written; absent where exact, or where there is no bound")
    ] = None
    io_source: Annotated[
        Choice | None,
        about("what tells the I/O of members that ended, the weakest so far: accounts, lifeline or samples"),
    ] = None
    end_boottime: Annotated[
        Nanoseconds | None, about("death of its last member after boot, where the kernel told it")
    ] = None
    end_boottime_low: Annotated[
        Nanoseconds | None,
        about("where it did not: a member still ran, or was still in the group, at this moment after boot"),
    ] = None
    end_boottime_high: Annotated[
        Nanoseconds | None, about("where it did not: nobody ran any more at this moment after boot")
    ] = None


class JobInfoRow(Owner, kw_only=True):
    """What does not change while a job lives; once per segment and again after a change."""

    series_id: Annotated[Identifier, about("series of this job")]
    pgid: Annotated[Ident, about("process group")]
    start_ticks: Annotated[Ticks, about("start of the member that was seen first")]
    job_id: Annotated[
        Identifier | None, about("name for people: the batch job's id, or the process group's number")
    ] = None
    job_source: Annotated[
        Choice | None,
        about("process_group, slurm or no_group (time of a user that cannot be told apart): what it is"),
    ] = None
    batch_step: Annotated[
        Text | None, about("step of the batch job: batch, extern, interactive or a number")
    ] = None
    batch_task: Annotated[
        Ident | None,
        about("task of that step, counted over all nodes: the rank of MPI; of /task_N in its cgroup path"),
    ] = None
    batch_source: Annotated[
        Choice | None,
        about("what told the batch job: cgroup, or ancestor (its step daemon, whose descendant it is)"),
    ] = None
    sluid: Annotated[
        Identifier | None, about("the batch job's SLUID, where its control group has that name")
    ] = None
    started: Annotated[Time | None, about("start as wall time")] = None
    first_seen: Annotated[Time | None, about("time of the sample that saw it first")] = None
    session_id: Annotated[Ident | None, about("session of the first member")] = None
    program: Annotated[Text | None, about("name of the first member", Sensitivity.COMMAND)] = None
    command: Annotated[
        Text | None, about("command line of the first member, as command_line allows", Sensitivity.COMMAND)
    ] = None
    container_id: Annotated[Identifier | None, about("container of the first member")] = None
    lustre_job_id: Annotated[
        Text | None,
        about(
            "what Lustre's servers book the first member's requests under, where no environment is needed for it",
            Sensitivity.USER,
        ),
    ] = None
    open_files_limit: Annotated[Count | None, about("of the first member; RLIMIT_NOFILE")] = None
    processes_limit: Annotated[Count | None, about("of the first member's user; RLIMIT_NPROC")] = None
