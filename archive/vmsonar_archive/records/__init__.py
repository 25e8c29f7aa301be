"""The only definition of what is recorded: one Struct per kind drives JSON, Parquet, docs and tables.

Types only: units, meanings and sensitivities stand on the fields; and sets of records. Imports no other room.
"""

from vmsonar_archive.records.batch import BatchJobRow, ClusterRow
from vmsonar_archive.records.command_run import CommandRunRow
from vmsonar_archive.records.container import (
    CgroupRow,
    ContainerDevice,
    ContainerInfoRow,
    ContainerRow,
)
from vmsonar_archive.records.events import CostRow, EventRow, GapRow
from vmsonar_archive.records.fields import Row
from vmsonar_archive.records.filesystem import FilesystemRow
from vmsonar_archive.records.gpu import EnergyRow, GpuProcessRow, GpuRow
from vmsonar_archive.records.network import FabricRow, NetfsRow
from vmsonar_archive.records.node import (
    ALLOWANCES,
    DISK_COUNTERS,
    CpuRow,
    DiskRow,
    NetRow,
    NodeRow,
    PressureRow,
)
from vmsonar_archive.records.process import JobInfoRow, JobRow, ProcessInfoRow, ProcessRow
from vmsonar_archive.records.sample import FORMAT, KINDS, SERIES_KEYS, Sample, Stamp
from vmsonar_archive.records.sysinfo import Capability, Card, Disk, Engine, Interface, SysInfo

__all__ = [
    "ALLOWANCES",
    "DISK_COUNTERS",
    "FORMAT",
    "KINDS",
    "SERIES_KEYS",
    "BatchJobRow",
    "Capability",
    "Card",
    "CgroupRow",
    "ClusterRow",
    "CommandRunRow",
    "ContainerDevice",
    "ContainerInfoRow",
    "ContainerRow",
    "CostRow",
    "CpuRow",
    "Disk",
    "DiskRow",
    "EnergyRow",
    "Engine",
    "EventRow",
    "FabricRow",
    "FilesystemRow",
    "GapRow",
    "GpuProcessRow",
    "GpuRow",
    "Interface",
    "JobInfoRow",
    "JobRow",
    "NetRow",
    "NetfsRow",
    "NodeRow",
    "PressureRow",
    "ProcessInfoRow",
    "ProcessRow",
    "Row",
    "Sample",
    "Stamp",
    "SysInfo",
]
