"""The sample record: everything that was seen at one tick, written whole or not at all."""

from typing import Annotated, get_args

import msgspec

from vmsonar_archive.records.batch import BatchJobRow, ClusterRow
from vmsonar_archive.records.command_run import CommandRunRow
from vmsonar_archive.records.container import CgroupRow, ContainerInfoRow, ContainerRow
from vmsonar_archive.records.events import CostRow, EventRow, GapRow
from vmsonar_archive.records.fields import IN_64_BITS, Nanoseconds, Time, about
from vmsonar_archive.records.filesystem import FilesystemRow
from vmsonar_archive.records.gpu import EnergyRow, GpuProcessRow, GpuRow
from vmsonar_archive.records.ids import StampId
from vmsonar_archive.records.network import FabricRow, NetfsRow
from vmsonar_archive.records.node import CpuRow, DiskRow, NetRow, NodeRow, PressureRow
from vmsonar_archive.records.process import JobInfoRow, JobRow, ProcessInfoRow, ProcessRow

#: Version of the format as a whole; a reader refuses a higher one.
FORMAT = 1


class Stamp(msgspec.Struct, kw_only=True, omit_defaults=True):
    """When and by whom a record was made; with the archive id it identifies the record."""

    time: Annotated[Time, about("wall clock in UTC at the beginning of the sample")]
    seq: Annotated[int, IN_64_BITS, about("number of the record in its archive; continues across restarts")]
    run: Annotated[StampId, about("random per start of the daemon")]
    boot: Annotated[StampId, about("boot id of the kernel")]
    boottime: Annotated[
        Nanoseconds, IN_64_BITS, about("CLOCK_BOOTTIME at the beginning: never steps, counts suspend")
    ]


class Sample(Stamp, kw_only=True):
    """One tick: a list of rows per kind; a kind without rows is absent."""

    node: list[NodeRow] = []
    cpu: list[CpuRow] = []
    disk: list[DiskRow] = []
    filesystem: list[FilesystemRow] = []
    netfs: list[NetfsRow] = []
    net: list[NetRow] = []
    fabric: list[FabricRow] = []
    pressure: list[PressureRow] = []
    energy: list[EnergyRow] = []
    gpu: list[GpuRow] = []
    gpu_process: list[GpuProcessRow] = []
    container: list[ContainerRow] = []
    container_info: list[ContainerInfoRow] = []
    cgroup: list[CgroupRow] = []
    job: list[JobRow] = []
    job_info: list[JobInfoRow] = []
    process: list[ProcessRow] = []
    process_info: list[ProcessInfoRow] = []
    batch_job: list[BatchJobRow] = []
    cluster: list[ClusterRow] = []
    command_run: list[CommandRunRow] = []
    event: list[EventRow] = []
    gap: list[GapRow] = []
    cost: list[CostRow] = []


#: The kinds in the order in which they stand in a sample, each with its row.
KINDS: dict[str, type[msgspec.Struct]] = {
    kind: get_args(rows)[0] for kind, rows in Sample.__annotations__.items()
}

#: What tells the rows of a kind in one sample apart, and names a series in consecutive ones.
SERIES_KEYS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_index",),
    "disk": ("device", "device_major", "device_minor"),
    "filesystem": ("device_major", "device_minor"),
    "netfs": ("device_major", "device_minor"),
    "net": ("interface",),
    "fabric": ("fabric_device", "fabric_port"),
    "pressure": ("resource",),
    "energy": ("meter",),
    "gpu": ("gpu_uuid",),
    "gpu_process": ("gpu_uuid", "pid"),
    "command_run": ("pid",),
    "container": ("container_id",),
    "container_info": ("container_id",),
    "cgroup": ("cgroup",),
    "job": ("pgid", "start_ticks"),
    "job_info": ("pgid", "start_ticks"),
    "process": ("pid", "start_ticks"),
    "process_info": ("pid", "start_ticks"),
}
