"""Rows about the machine: CPU, memory, disks, interfaces, pressure (proc(5), psi.rst)."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
    Ident,
    Identifier,
    Load,
    MegabitsPerSecond,
    Microseconds,
    Milliseconds,
    Row,
    Sectors,
    Sensitivity,
    Text,
    Ticks,
    about,
)


class CpuTimes(Row, kw_only=True):
    """The ten columns of a cpu line in /proc/stat."""

    user_ticks: Annotated[Ticks | None, about("user mode, nice excluded; /proc/stat")] = None
    nice_ticks: Annotated[Ticks | None, about("user mode at low priority; /proc/stat")] = None
    system_ticks: Annotated[Ticks | None, about("kernel mode; /proc/stat")] = None
    idle_ticks: Annotated[Ticks | None, about("idle; /proc/stat")] = None
    iowait_ticks: Annotated[Ticks | None, about("idle while I/O was outstanding; /proc/stat")] = None
    irq_ticks: Annotated[Ticks | None, about("hardware interrupts; /proc/stat")] = None
    softirq_ticks: Annotated[Ticks | None, about("soft interrupts; /proc/stat")] = None
    steal_ticks: Annotated[Ticks | None, about("taken by the hypervisor for other guests; /proc/stat")] = None
    guest_ticks: Annotated[Ticks | None, about("running guests, contained in user; /proc/stat")] = None
    guest_nice_ticks: Annotated[
        Ticks | None, about("running niced guests, contained in nice; /proc/stat")
    ] = None


class NodeRow(CpuTimes, kw_only=True):
    """The machine as a whole, one row per sample."""

    series_id: Annotated[Identifier | None, about("series of this node: UUIDv5 of its machine id")] = None
    ticks_per_second: Annotated[Count | None, about("length of a tick; sysconf(_SC_CLK_TCK)")] = None
    cpus_online: Annotated[Count | None, about("logical CPUs with a line in /proc/stat")] = None
    load1: Annotated[Load | None, about("load average over 1 minute; /proc/loadavg")] = None
    load5: Annotated[Load | None, about("load average over 5 minutes; /proc/loadavg")] = None
    load15: Annotated[Load | None, about("load average over 15 minutes; /proc/loadavg")] = None
    tasks_runnable: Annotated[Count | None, about("scheduling entities now runnable; /proc/loadavg")] = None
    tasks_existing: Annotated[Count | None, about("scheduling entities that exist; /proc/loadavg")] = None
    tasks_blocked: Annotated[Count | None, about("tasks waiting for I/O; procs_blocked of /proc/stat")] = None
    forks: Annotated[Count | None, about("forks since boot; processes of /proc/stat")] = None
    context_switches: Annotated[Count | None, about("context switches since boot; ctxt of /proc/stat")] = None
    interrupts: Annotated[Count | None, about("interrupts since boot; intr of /proc/stat")] = None
    memory_total: Annotated[Bytes | None, about("usable memory; MemTotal of /proc/meminfo")] = None
    memory_free: Annotated[Bytes | None, about("MemFree of /proc/meminfo")] = None
    memory_available: Annotated[
        Bytes | None, about("free without swapping; MemAvailable of /proc/meminfo")
    ] = None
    memory_buffers: Annotated[Bytes | None, about("Buffers of /proc/meminfo")] = None
    memory_cached: Annotated[Bytes | None, about("page cache; Cached of /proc/meminfo")] = None
    memory_anonymous: Annotated[Bytes | None, about("AnonPages of /proc/meminfo")] = None
    memory_shared: Annotated[Bytes | None, about("shared and tmpfs memory; Shmem of /proc/meminfo")] = None
    memory_dirty: Annotated[Bytes | None, about("waiting to be written; Dirty of /proc/meminfo")] = None
    memory_writeback: Annotated[Bytes | None, about("being written; Writeback of /proc/meminfo")] = None
    memory_slab_reclaimable: Annotated[Bytes | None, about("SReclaimable of /proc/meminfo")] = None
    memory_slab_unreclaimable: Annotated[Bytes | None, about("SUnreclaim of /proc/meminfo")] = None
    memory_committed: Annotated[
        Bytes | None, about("promised to processes; Committed_AS of /proc/meminfo")
    ] = None
    swap_total: Annotated[Bytes | None, about("SwapTotal of /proc/meminfo")] = None
    swap_free: Annotated[Bytes | None, about("SwapFree of /proc/meminfo")] = None
    pages_swapped_in: Annotated[Count | None, about("since boot; pswpin of /proc/vmstat")] = None
    pages_swapped_out: Annotated[Count | None, about("since boot; pswpout of /proc/vmstat")] = None
    page_faults: Annotated[Count | None, about("since boot; pgfault of /proc/vmstat")] = None
    major_page_faults: Annotated[Count | None, about("since boot; pgmajfault of /proc/vmstat")] = None
    oom_kills: Annotated[Count | None, about("since boot; oom_kill of /proc/vmstat")] = None
    open_files: Annotated[Count | None, about("open files of all processes; fs/file-nr of /proc/sys")] = None
    open_files_limit: Annotated[
        Count | None, about("how many there can be, null for no limit; fs/file-nr of /proc/sys")
    ] = None
    tasks_limit: Annotated[
        Count | None, about("how many tasks there can be; the lower of kernel/pid_max and kernel/threads-max")
    ] = None
    connections: Annotated[
        Count | None, about("tracked connections of our network; netfilter/nf_conntrack_count")
    ] = None
    connections_limit: Annotated[
        Count | None, about("how many can be tracked; netfilter/nf_conntrack_max")
    ] = None


class CpuRow(CpuTimes, kw_only=True):
    """One logical CPU."""

    cpu_index: Annotated[Ident, about("number of the logical CPU; /proc/stat")]


class DiskRow(Row, kw_only=True):
    """One block device, by the columns of /proc/diskstats (Documentation/admin-guide/iostats.rst)."""

    device: Annotated[Text, about("kernel name of the device; /proc/diskstats")]
    device_major: Annotated[Ident, about("major number; /proc/diskstats")]
    device_minor: Annotated[Ident, about("minor number; /proc/diskstats")]
    reads: Annotated[Count | None, about("reads completed")] = None
    reads_merged: Annotated[Count | None, about("reads merged")] = None
    read_sectors: Annotated[Sectors | None, about("sectors read")] = None
    read_time: Annotated[Milliseconds | None, about("time spent reading, summed over requests")] = None
    writes: Annotated[Count | None, about("writes completed")] = None
    writes_merged: Annotated[Count | None, about("writes merged")] = None
    write_sectors: Annotated[Sectors | None, about("sectors written")] = None
    write_time: Annotated[Milliseconds | None, about("time spent writing, summed over requests")] = None
    in_flight: Annotated[Count | None, about("requests under way now")] = None
    busy_time: Annotated[Milliseconds | None, about("time with at least one request under way")] = None
    queue_time: Annotated[Milliseconds | None, about("request time weighted by queue length")] = None
    discards: Annotated[Count | None, about("discards completed (Linux 4.18)")] = None
    discards_merged: Annotated[Count | None, about("discards merged")] = None
    discard_sectors: Annotated[Sectors | None, about("sectors discarded")] = None
    discard_time: Annotated[Milliseconds | None, about("time spent discarding")] = None
    flushes: Annotated[Count | None, about("flushes completed (Linux 5.5)")] = None
    flush_time: Annotated[Milliseconds | None, about("time spent flushing")] = None


#: The counters in the order of /proc/diskstats, where they follow the numbers and the name of a device.
DISK_COUNTERS: tuple[str, ...] = DiskRow.__struct_fields__[3:]


class NetRow(Row, kw_only=True):
    """One network interface of the host, by the columns of /proc/net/dev."""

    interface: Annotated[Text, about("name of the interface; /proc/net/dev", Sensitivity.HOST)]
    received_bytes: Annotated[Bytes | None, about("received")] = None
    received_packets: Annotated[Count | None, about("packets received")] = None
    received_errors: Annotated[Count | None, about("receive errors")] = None
    received_drops: Annotated[Count | None, about("received packets dropped")] = None
    sent_bytes: Annotated[Bytes | None, about("sent")] = None
    sent_packets: Annotated[Count | None, about("packets sent")] = None
    sent_errors: Annotated[Count | None, about("send errors")] = None
    sent_drops: Annotated[Count | None, about("packets dropped on sending")] = None
    interface_kind: Annotated[
        Choice | None,
        about(
            "physical, lower (physical, below another one that counts its packets too), loopback or virtual: "
            "links in /sys/class/net"
        ),
    ] = None
    default_route: Annotated[
        Flag | None, about("a default route leads through it; /proc/net/route and ipv6_route")
    ] = None
    link_speed: Annotated[MegabitsPerSecond | None, about("of the link; speed below /sys/class/net")] = None
    received_bytes_exceeded: Annotated[Count | None, about("packets; bw_in_allowance_exceeded")] = None
    sent_bytes_exceeded: Annotated[Count | None, about("packets; bw_out_allowance_exceeded")] = None
    packets_exceeded: Annotated[Count | None, about("packets; pps_allowance_exceeded")] = None
    connections_exceeded: Annotated[Count | None, about("packets; conntrack_allowance_exceeded")] = None
    link_local_exceeded: Annotated[Count | None, about("packets; linklocal_allowance_exceeded")] = None
    connections_left: Annotated[Count | None, about("still allowed; conntrack_allowance_available")] = None


#: What the cloud allows an interface, and how often that was exceeded.
ALLOWANCES: tuple[str, ...] = tuple(name for name in NetRow.__struct_fields__ if name.endswith("_exceeded"))


class PressureRow(Row, kw_only=True):
    """Time lost to contention for one resource; /proc/pressure."""

    resource: Annotated[Choice, about("cpu, memory, io or irq: the file below /proc/pressure")]
    some_time: Annotated[
        Microseconds | None, about("time in which some task waited; total of the line some")
    ] = None
    full_time: Annotated[
        Microseconds | None, about("time in which all tasks waited; total of the line full")
    ] = None
