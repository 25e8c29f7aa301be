"""Rows about GPUs, the processes on them, and energy meters (NVML, Documentation/power/powercap)."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bitmask,
    Bytes,
    Celsius,
    Choice,
    Count,
    Ident,
    Identifier,
    KilobytesPerSecond,
    Megahertz,
    Microjoules,
    Nanoseconds,
    Percent,
    Row,
    Text,
    Ticks,
    Watts,
    about,
)


class GpuRow(Row, kw_only=True):
    """One GPU, or one instance of a partitioned GPU, in one sample."""

    gpu_uuid: Annotated[Identifier, about("UUID of the device, or one made from its bus address")]
    series_id: Annotated[Identifier | None, about("series of this GPU")] = None
    gpu_index: Annotated[Ident | None, about("number the driver gives it; may change between boots")] = None
    parent_uuid: Annotated[Identifier | None, about("the GPU that this instance is a part of")] = None
    vendor: Annotated[Choice | None, about("nvidia, amd or intel")] = None
    error: Annotated[Text | None, about("why the device cannot be read, such as gpu_is_lost")] = None
    gpu_util: Annotated[Percent | None, about("share of time with a kernel running")] = None
    gpu_util_source: Annotated[Choice | None, about("what gpu_util was read or computed from")] = None
    memory_util: Annotated[Percent | None, about("share of time with memory traffic")] = None
    memory_used: Annotated[Bytes | None, about("device memory allocated")] = None
    memory_reserved: Annotated[Bytes | None, about("device memory kept by the driver")] = None
    memory_total: Annotated[Bytes | None, about("device memory")] = None
    power: Annotated[Watts | None, about("power draw")] = None
    power_limit: Annotated[Watts | None, about("enforced power limit")] = None
    energy: Annotated[Microjoules | None, about("energy since the driver was loaded")] = None
    energy_source: Annotated[Choice | None, about("counter, or power_integrated: how energy was found")] = (
        None
    )
    temperature: Annotated[Celsius | None, about("core temperature")] = None
    fan: Annotated[Percent | None, about("intended fan speed")] = None
    performance_state: Annotated[Ident | None, about("0 is fastest")] = None
    compute_mode: Annotated[Choice | None, about("default, exclusive or prohibited")] = None
    core_clock: Annotated[Megahertz | None, about("clock of the compute engines")] = None
    memory_clock: Annotated[Megahertz | None, about("clock of the memory")] = None
    clock_reasons: Annotated[
        Bitmask | None, about("why the clock is not higher; NVML clocks event reasons")
    ] = None
    ecc_corrected: Annotated[Count | None, about("corrected memory errors since the driver was loaded")] = (
        None
    )
    ecc_uncorrected: Annotated[
        Count | None, about("uncorrected memory errors since the driver was loaded")
    ] = None
    remapped_rows: Annotated[Count | None, about("memory rows replaced after errors")] = None
    pcie_received: Annotated[
        KilobytesPerSecond | None, about("PCIe traffic to the device over 20 ms, read rarely")
    ] = None
    pcie_sent: Annotated[
        KilobytesPerSecond | None, about("PCIe traffic from the device over 20 ms, read rarely")
    ] = None


class GpuProcessRow(Row, kw_only=True):
    """What one process uses of one GPU."""

    gpu_uuid: Annotated[Identifier, about("UUID of the device or instance")]
    pid: Annotated[Ident, about("process id on the host")]
    start_ticks: Annotated[
        Ticks | None, about("start of the process after boot; null when it was gone already")
    ] = None
    pgid: Annotated[Ident | None, about("process group: the job")] = None
    usage: Annotated[Choice | None, about("compute, graphics or mps, joined by +")] = None
    gpu_util: Annotated[Percent | None, about("share of the compute engines")] = None
    gpu_util_source: Annotated[Choice | None, about("what gpu_util was read or computed from")] = None
    memory_util: Annotated[Percent | None, about("share of memory traffic")] = None
    memory_used: Annotated[Bytes | None, about("device memory of this process")] = None
    engine_time: Annotated[Nanoseconds | None, about("busy time of its engines; drm-engine-* of fdinfo")] = (
        None
    )


class EnergyRow(Row, kw_only=True):
    """One reading of one energy or power meter."""

    meter: Annotated[Identifier, about("name of the meter, such as rapl:package-0 or ipmi:dcmi")]
    energy_source: Annotated[Choice, about("rapl, hwmon, ipmi or battery: who measured")]
    energy: Annotated[Microjoules | None, about("counter since it last wrapped")] = None
    energy_range: Annotated[Microjoules | None, about("value at which the counter wraps")] = None
    power: Annotated[Watts | None, about("power draw, where the meter gives power")] = None
