"""The only definition of what is recorded: one Struct per kind drives JSON, Parquet, docs and tables.

Types only: units, meanings and sensitivities stand on the fields; and sets of records. Imports no other room.
"""

from vmsonar_archive.records.fields import Row
from vmsonar_archive.records.node import (
    DISK_COUNTERS,
    CpuRow,
    DiskRow,
    EnergyRow,
    GpuProcessRow,
    GpuRow,
    NetRow,
    NodeRow,
    PressureRow,
)
from vmsonar_archive.records.process import (
    ContainerDevice,
    ContainerInfoRow,
    ContainerRow,
    JobInfoRow,
    JobRow,
    ProcessInfoRow,
    ProcessRow,
)
from vmsonar_archive.records.sample import FORMAT, KINDS, CostRow, EventRow, GapRow, Sample, Stamp
from vmsonar_archive.records.sysinfo import Capability, Card, Disk, Engine, Interface, SysInfo

__all__ = [
    "DISK_COUNTERS",
    "FORMAT",
    "KINDS",
    "Capability",
    "Card",
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
    "GapRow",
    "GpuProcessRow",
    "GpuRow",
    "Interface",
    "JobInfoRow",
    "JobRow",
    "NetRow",
    "NodeRow",
    "PressureRow",
    "ProcessInfoRow",
    "ProcessRow",
    "Row",
    "Sample",
    "Stamp",
    "SysInfo",
]
