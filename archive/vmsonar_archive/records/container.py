"""Rows about containers: what their control groups count, and what their engine calls them."""

from typing import TYPE_CHECKING, Annotated, get_type_hints

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
    Time,
    about,
)
from vmsonar_archive.records.process import Owner


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
    cgroup_inode: Annotated[
        Ident | None, about("inode of its control group: another one after a restart, which counts from zero")
    ] = None
    start_boottime: Annotated[
        Nanoseconds | None,
        about("start of this life after boot: as the engine says, or of its first process"),
    ] = None
    end_boottime: Annotated[
        Nanoseconds | None,
        about(
            "end of this life after boot, or its last reading where nobody told; only in the row of its end"
        ),
    ] = None
    cpu_time: Annotated[Nanoseconds | None, about("cpuacct.usage, or usage_usec of cpu.stat")] = None
    cpu_time_high: Annotated[
        Nanoseconds | None,
        about("most CPU time this life can have used; only where cpu_time was read before its end"),
    ] = None
    cpu_source: Annotated[
        Choice | None,
        about(
            "of a life that ended: final (read after it), parent (the group above tells), "
            "reading (before it) or events (never read)"
        ),
    ] = None
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
    swap_limit: Annotated[
        Bytes | None,
        about(
            "most swap it may use, null without a limit; memory.swap.max, or memory.memsw.limit_in_bytes less the limit"
        ),
    ] = None
    oom_events: Annotated[Count | None, about("memory.failcnt, or oom of memory.events")] = None
    oom_kills: Annotated[Count | None, about("oom_kill of memory.oom_control or memory.events")] = None
    memory_max_events: Annotated[
        Count | None,
        about("how often it met its memory limit; max of memory.events, or memory.failcnt unless 0"),
    ] = None
    processes: Annotated[Count | None, about("tasks now; pids.current")] = None
    processes_limit: Annotated[Count | None, about("pids.max")] = None
    pids_max_events: Annotated[
        Count | None, about("forks that failed because of its pids.max; max of pids.events")
    ] = None
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
    network_since: Annotated[
        Nanoseconds | None,
        about(
            "start of the first container in that network after boot, 0 for the host's: numbers are used again"
        ),
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


class _Unit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One unit that is no container in one sample: a Slurm job or step, a service, a session, a scope, a pod."""

    cgroup: Annotated[
        Text, about("control group path; with cgroup_inode it names the unit", Sensitivity.PATH)
    ]
    cgroup_kind: Annotated[Choice, about("slurm, service, session, scope or pod: what it is")]
    unit_name: Annotated[
        Text | None, about("name of the service, session, scope or pod", Sensitivity.LABEL)
    ] = None
    batch_job: Annotated[Identifier | None, about("number or SLUID of the batch job whose it is")] = None
    batch_step: Annotated[Text | None, about("step of the batch job; null in the row of the whole job")] = (
        None
    )


# What its control group counts is said of a unit in the words that a container's row has for it.
_OF_CONTAINERS = {"container_id", "start_boottime", "received_bytes", "received_packets", "sent_bytes", "sent_packets",
                  "network_namespace", "network_since", "network_shared"}  # fmt: skip
if TYPE_CHECKING:

    class CgroupRow(_Unit, ContainerRow, kw_only=True):
        """The fields of a unit and those of a container that its control group counts."""

        container_id: str = ""
else:
    CgroupRow = msgspec.defstruct(
        "CgroupRow",
        [
            (name, hint, None)
            for name, hint in get_type_hints(ContainerRow, include_extras=True).items()
            if name not in _OF_CONTAINERS
        ],
        bases=(_Unit,),
        namespace={"__doc__": _Unit.__doc__},
        module=__name__,
        kw_only=True,
        omit_defaults=True,
    )


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
