"""Rows about processes, jobs and containers (proc_pid_stat(5), proc_pid_io(5), cgroup-v1 and cgroup-v2.rst)."""

from typing import Annotated

import msgspec

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
    Ident,
    Identifier,
    Microseconds,
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


class Owner(Row, kw_only=True):
    """Whose something is, and how that was found out."""

    user_id: Annotated[Ident | None, about("effective uid", Sensitivity.USER)] = None
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
    threads: Annotated[Count | None, about("threads of all members now")] = None
    user_ticks: Annotated[Ticks | None, about("user time of all members, those that ended included")] = None
    system_ticks: Annotated[Ticks | None, about("kernel time of all members, those that ended included")] = (
        None
    )
    unattributed: Annotated[
        Flag | None,
        about("members ended whose last CPU time nobody reported: the CPU totals are a lower bound"),
    ] = None
    major_faults: Annotated[
        Count | None, about("faults with I/O of all members, those that ended included")
    ] = None
    memory: Annotated[Bytes | None, about("anonymous memory of all members, plus shared memory once")] = None
    memory_source: Annotated[
        Choice | None, about("sum, pss or estimate: how copy-on-write sharing was resolved")
    ] = None
    resident: Annotated[
        Bytes | None, about("resident memory summed over members, shared pages counted per member")
    ] = None
    read_bytes: Annotated[Bytes | None, about("fetched from storage, members that ended included")] = None
    write_bytes: Annotated[Bytes | None, about("sent to storage, members that ended included")] = None
    io_partial: Annotated[
        Flag | None,
        about("some members' I/O could not be read to their end: the I/O totals are a lower bound"),
    ] = None


class JobInfoRow(Owner, kw_only=True):
    """What does not change while a job lives; once per segment and again after a change."""

    series_id: Annotated[Identifier, about("series of this job")]
    pgid: Annotated[Ident, about("process group")]
    start_ticks: Annotated[Ticks, about("start of the member that was seen first")]
    job_id: Annotated[
        Identifier | None, about("name for people: the batch job's id, or the process group's number")
    ] = None
    job_source: Annotated[Choice | None, about("process_group or slurm: where job_id comes from")] = None
    started: Annotated[Time | None, about("start as wall time")] = None
    first_seen: Annotated[Time | None, about("time of the sample that saw it first")] = None
    session_id: Annotated[Ident | None, about("session of the first member")] = None
    program: Annotated[Text | None, about("name of the first member", Sensitivity.COMMAND)] = None
    command: Annotated[
        Text | None, about("command line of the first member, as command_line allows", Sensitivity.COMMAND)
    ] = None
    container_id: Annotated[Identifier | None, about("container of the first member")] = None


class ContainerDevice(Row, kw_only=True):
    """What one container moved on one block device."""

    device_major: Annotated[Ident, about("major number")]
    device_minor: Annotated[Ident, about("minor number")]
    read_bytes: Annotated[Bytes | None, about("rbytes of io.stat, or blkio Read bytes")] = None
    write_bytes: Annotated[Bytes | None, about("wbytes of io.stat, or blkio Write bytes")] = None
    reads: Annotated[Count | None, about("rios of io.stat, or blkio Read operations")] = None
    writes: Annotated[Count | None, about("wios of io.stat, or blkio Write operations")] = None


class ContainerRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One container in one sample, as its control group counts."""

    container_id: Annotated[Identifier, about("64 hexadecimal digits")]
    cgroup_version: Annotated[Ident | None, about("1 or 2: which interface was read")] = None
    cpu_time: Annotated[Nanoseconds | None, about("cpuacct.usage, or usage_usec of cpu.stat")] = None
    cpu_user_time: Annotated[Nanoseconds | None, about("user of cpuacct.stat, or user_usec of cpu.stat")] = (
        None
    )
    cpu_system_time: Annotated[
        Nanoseconds | None, about("system of cpuacct.stat, or system_usec of cpu.stat")
    ] = None
    periods: Annotated[Count | None, about("enforcement periods; nr_periods of cpu.stat")] = None
    throttled_periods: Annotated[
        Count | None, about("periods in which it was throttled; nr_throttled of cpu.stat")
    ] = None
    throttled_time: Annotated[Nanoseconds | None, about("throttled_time, or throttled_usec of cpu.stat")] = (
        None
    )
    cpu_quota: Annotated[
        Microseconds | None, about("CPU time allowed per period; cpu.cfs_quota_us or cpu.max")
    ] = None
    cpu_period: Annotated[
        Microseconds | None, about("length of the period; cpu.cfs_period_us or cpu.max")
    ] = None
    cpu_unlimited: Annotated[Flag | None, about("there is no quota")] = None
    cpu_set: Annotated[Text | None, about("CPUs it may use; cpuset.cpus or cpuset.cpus.effective")] = None
    memory_used: Annotated[Bytes | None, about("memory.usage_in_bytes or memory.current")] = None
    memory_peak: Annotated[Bytes | None, about("memory.max_usage_in_bytes or memory.peak")] = None
    memory_limit: Annotated[Bytes | None, about("memory.limit_in_bytes or memory.max")] = None
    memory_unlimited: Annotated[Flag | None, about("there is no memory limit")] = None
    memory_anonymous: Annotated[Bytes | None, about("total_rss or anon of memory.stat")] = None
    memory_file: Annotated[Bytes | None, about("total_cache or file of memory.stat")] = None
    memory_inactive_file: Annotated[
        Bytes | None, about("total_inactive_file or inactive_file of memory.stat")
    ] = None
    memory_shared: Annotated[Bytes | None, about("total_shmem or shmem of memory.stat")] = None
    swap_used: Annotated[
        Bytes | None, about("swap alone: total_swap of memory.stat, or memory.swap.current")
    ] = None
    oom_events: Annotated[Count | None, about("memory.failcnt, or oom of memory.events")] = None
    oom_kills: Annotated[Count | None, about("oom_kill of memory.oom_control or memory.events")] = None
    processes: Annotated[Count | None, about("tasks now; pids.current")] = None
    processes_limit: Annotated[Count | None, about("pids.max")] = None
    read_bytes: Annotated[Bytes | None, about("read from block devices, summed over devices")] = None
    write_bytes: Annotated[Bytes | None, about("written to block devices, summed over devices")] = None
    devices: Annotated[list[ContainerDevice] | None, about("I/O per block device")] = None
    received_bytes: Annotated[Bytes | None, about("received in its network namespace; /proc/PID/net/dev")] = (
        None
    )
    received_packets: Annotated[Count | None, about("packets received in its network namespace")] = None
    sent_bytes: Annotated[Bytes | None, about("sent from its network namespace; /proc/PID/net/dev")] = None
    sent_packets: Annotated[Count | None, about("packets sent from its network namespace")] = None
    network_namespace: Annotated[
        Ident | None, about("number that is the same for containers sharing a network")
    ] = None
    network_shared: Annotated[
        Flag | None, about("the network is the host's or another container's: do not add up")
    ] = None
    cpu_some_time: Annotated[Microseconds | None, about("some of cpu.pressure")] = None
    cpu_full_time: Annotated[Microseconds | None, about("full of cpu.pressure")] = None
    memory_some_time: Annotated[Microseconds | None, about("some of memory.pressure")] = None
    memory_full_time: Annotated[Microseconds | None, about("full of memory.pressure")] = None
    io_some_time: Annotated[Microseconds | None, about("some of io.pressure")] = None
    io_full_time: Annotated[Microseconds | None, about("full of io.pressure")] = None


class ContainerInfoRow(Owner, kw_only=True, gc=True):
    """What the engine says about a container; once per segment and again after a change."""

    series_id: Annotated[Identifier, about("series of this container")]
    container_id: Annotated[Identifier, about("64 hexadecimal digits")]
    engine: Annotated[
        Choice | None,
        about("docker, podman, containerd, crio or unknown: from the cgroup path or the socket"),
    ] = None
    name: Annotated[Text | None, about("name given by the engine", Sensitivity.LABEL)] = None
    image: Annotated[Text | None, about("image as it was asked for", Sensitivity.LABEL)] = None
    image_digest: Annotated[Identifier | None, about("image id or repository digest")] = None
    command: Annotated[
        Text | None, about("command as the command_line setting allows", Sensitivity.COMMAND)
    ] = None
    labels: Annotated[dict[str, str] | None, about("labels on the allow-list", Sensitivity.LABEL)] = None
    compose_project: Annotated[Text | None, about("label com.docker.compose.project", Sensitivity.LABEL)] = (
        None
    )
    compose_service: Annotated[Text | None, about("label com.docker.compose.service", Sensitivity.LABEL)] = (
        None
    )
    created: Annotated[Time | None, about("creation, as the engine says")] = None
    started: Annotated[Time | None, about("last start, as the engine says")] = None
    restart_count: Annotated[Count | None, about("restarts by the engine")] = None
    network_mode: Annotated[Text | None, about("network mode as the engine says", Sensitivity.LABEL)] = None
    cgroup: Annotated[Text | None, about("control group path", Sensitivity.PATH)] = None
