"""The sysinfo record: what the machine is, written at start and when it changes."""

from typing import Annotated

import msgspec

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
    Ident,
    Identifier,
    Megahertz,
    Row,
    Sensitivity,
    Text,
    Time,
    Watts,
    about,
)
from vmsonar_archive.records.sample import Stamp


class Card(Row, kw_only=True):
    """One GPU as hardware."""

    gpu_uuid: Annotated[Identifier, about("UUID, or one made from the bus address")]
    gpu_index: Annotated[Ident | None, about("number the driver gives it")] = None
    parent_uuid: Annotated[Identifier | None, about("the GPU that this instance is a part of")] = None
    vendor: Annotated[Choice | None, about("nvidia, amd or intel")] = None
    model: Annotated[Text | None, about("name of the product")] = None
    architecture: Annotated[Text | None, about("generation")] = None
    bus_address: Annotated[Text | None, about("PCI address")] = None
    memory: Annotated[Bytes | None, about("device memory")] = None
    driver: Annotated[Text | None, about("driver version")] = None
    firmware: Annotated[Text | None, about("firmware version")] = None
    power_limit: Annotated[Watts | None, about("enforced power limit")] = None
    power_limit_min: Annotated[Watts | None, about("lowest limit that can be set")] = None
    power_limit_max: Annotated[Watts | None, about("highest limit that can be set")] = None
    core_clock_max: Annotated[Megahertz | None, about("highest clock of the compute engines")] = None
    memory_clock_max: Annotated[Megahertz | None, about("highest clock of the memory")] = None


class Disk(Row, kw_only=True):
    """One block device as hardware."""

    device: Annotated[Text, about("kernel name")]
    model: Annotated[Text | None, about("device/model below /sys/block")] = None
    size: Annotated[Bytes | None, about("capacity; size below /sys/block")] = None
    rotational: Annotated[Flag | None, about("turns; queue/rotational below /sys/block")] = None


class Interface(Row, kw_only=True):
    """One network interface as hardware."""

    interface: Annotated[Text, about("name", Sensitivity.HOST)]
    address: Annotated[Text | None, about("MAC address; /sys/class/net", Sensitivity.HOST)] = None
    speed: Annotated[Count | None, about("megabits per second; /sys/class/net")] = None
    driver: Annotated[Text | None, about("kernel driver; /sys/class/net")] = None


class Engine(Row, kw_only=True):
    """One container engine."""

    engine: Annotated[Choice, about("docker or podman")]
    version: Annotated[Text | None, about("version it reports")] = None
    cgroup_driver: Annotated[Choice | None, about("systemd or cgroupfs")] = None
    socket: Annotated[Text | None, about("where it is asked", Sensitivity.PATH)] = None


class Capability(Row, kw_only=True):
    """What one collector can and cannot see here."""

    collector: Annotated[Choice, about("name of the collector")]
    item: Annotated[Text, about("what could be collected")]
    available: Annotated[Flag, about("it is collected")]
    reason: Annotated[Text | None, about("why not", Sensitivity.LABEL)] = None
    remedy: Annotated[Text | None, about("what would change that", Sensitivity.LABEL)] = None


class SysInfo(Stamp, kw_only=True):
    """What the machine is."""

    hostname_short: Annotated[Text | None, about("host name up to the first dot", Sensitivity.HOST)] = None
    hostname_full: Annotated[Text | None, about("host name as the kernel has it", Sensitivity.HOST)] = None
    machine_id: Annotated[
        Identifier | None, about("/etc/machine-id, or the boot id where there is none", Sensitivity.HOST)
    ] = None
    instance_id: Annotated[
        Identifier | None, about("cloud instance id; cloud-init or DMI", Sensitivity.HOST)
    ] = None
    cloud_provider: Annotated[Choice | None, about("aws, gcp, azure, openstack, …; DMI")] = None
    instance_type: Annotated[Text | None, about("flavour; DMI or cloud-init")] = None
    region: Annotated[Text | None, about("region or zone; cloud-init")] = None
    virtualization: Annotated[
        Choice | None, about("kvm, xen, vmware, container, none, …; DMI and /proc/cpuinfo")
    ] = None
    os_name: Annotated[Text | None, about("PRETTY_NAME of /etc/os-release")] = None
    kernel_name: Annotated[Text | None, about("uname -s")] = None
    kernel_release: Annotated[Text | None, about("uname -r")] = None
    architecture: Annotated[Text | None, about("uname -m")] = None
    cpu_model: Annotated[Text | None, about("model name; /proc/cpuinfo")] = None
    cpus: Annotated[Count | None, about("logical CPUs")] = None
    sockets: Annotated[Count | None, about("distinct physical packages; /sys/devices/system/cpu")] = None
    cores_per_socket: Annotated[Count | None, about("cores of one package")] = None
    threads_per_core: Annotated[Count | None, about("hardware threads of one core")] = None
    core_siblings: Annotated[
        list[list[int]] | None,
        about("logical CPUs of each core, null where every core has one; thread_siblings_list below /sys"),
    ] = None
    numa_nodes: Annotated[Count | None, about("/sys/devices/system/node")] = None
    numa_distances: Annotated[
        list[list[int]] | None, about("matrix of /sys/devices/system/node/node*/distance")
    ] = None
    memory_total: Annotated[Bytes | None, about("MemTotal of /proc/meminfo")] = None
    swap_total: Annotated[Bytes | None, about("SwapTotal of /proc/meminfo")] = None
    page_size: Annotated[Bytes | None, about("sysconf(_SC_PAGESIZE)")] = None
    ticks_per_second: Annotated[Count | None, about("sysconf(_SC_CLK_TCK)")] = None
    booted: Annotated[Time | None, about("btime of /proc/stat")] = None
    cgroup_mode: Annotated[Choice | None, about("v1, v2 or hybrid")] = None
    lustre_jobid_var: Annotated[
        Text | None,
        about("what names jobs to Lustre's servers: an environment variable or a word; jobid_var"),
    ] = None
    lustre_jobid_name: Annotated[
        Text | None,
        about("the name, or its form, where jobid_var is nodelocal; jobid_name", Sensitivity.LABEL),
    ] = None
    cards: Annotated[list[Card] | None, about("GPUs")] = None
    disks: Annotated[list[Disk] | None, about("block devices")] = None
    interfaces: Annotated[list[Interface] | None, about("network interfaces")] = None
    engines: Annotated[list[Engine] | None, about("container engines")] = None
    capabilities: Annotated[list[Capability] | None, about("what can be seen here and what not")] = None
    vmsonar_version: Annotated[Text | None, about("version of the recorder")] = None
    python_version: Annotated[Text | None, about("version of its interpreter")] = None
    interval: Annotated[Count | None, about("configured sampling interval in milliseconds")] = None
    config: Annotated[
        dict[str, msgspec.Raw] | None, about("configuration in force, secrets left out", Sensitivity.PATH)
    ] = None
