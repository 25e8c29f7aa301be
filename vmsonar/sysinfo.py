"""Makes the sysinfo record: what the machine is, what vmsonar can see of it, and how it was told to look."""

import os
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from vmsonar_archive.records import SysInfo

from vmsonar import __version__
from vmsonar.clock import Clock
from vmsonar.collectors.base import Collector
from vmsonar.collectors.files import read_text
from vmsonar.collectors.node import number_after, parse_meminfo
from vmsonar.config import Config, plain
from vmsonar.hardware import cloud, devices, topology
from vmsonar.host import Host
from vmsonar.identity import boot_id, node_identity


def gather(host: Host, config: Config, collectors: Iterable[Collector], clock: Clock) -> SysInfo:
    """One record; its number and run are set by whoever writes it."""
    collectors = list(collectors)
    node = node_identity(host)
    return SysInfo(
        time=clock.now(),
        seq=0,
        run="",
        boot=boot_id(host),
        boottime=clock.boottime_ns(),
        hostname_short=node.hostname_short,
        hostname_full=node.hostname_full,
        machine_id=node.machine_id,
        instance_id=node.instance_id,
        **_cloud(host),
        **_system(host),
        **_hardware(host),
        **_from_collectors(collectors),
        capabilities=[one for collector in collectors for one in collector.capabilities()],
        vmsonar_version=__version__,
        python_version=sys.version.split()[0],
        interval=round(config.interval * 1000),
        config={key: msgspec.Raw(msgspec.json.encode(value)) for key, value in plain(config).items()},
    )


def _cloud(host: Host) -> dict[str, Any]:
    found = cloud.cloud(host)
    return {
        "cloud_provider": found.provider,
        "instance_type": found.instance_type,
        "region": found.region,
        "virtualization": cloud.virtualization(host),
    }


def _system(host: Host) -> dict[str, Any]:
    name = os.uname()
    return {
        "os_name": os_name(read_text(host.etc / "os-release") or ""),
        "kernel_name": name.sysname,
        "kernel_release": read_text(host.proc / "sys" / "kernel" / "osrelease") or name.release,
        "architecture": name.machine,
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "ticks_per_second": os.sysconf("SC_CLK_TCK"),
        "booted": booted((read_text(host.proc / "stat") or "").encode()),
        "cgroup_mode": cgroup_mode(host),
    }


def _hardware(host: Host) -> dict[str, Any]:
    cpus = topology.topology(host)
    distances = topology.numa_distances(host)
    memory = parse_meminfo((read_text(host.proc / "meminfo") or "").encode())
    return {
        "cpu_model": topology.cpu_model(host),
        **cpus._asdict(),
        "numa_nodes": len(distances) if distances else None,
        "numa_distances": distances,
        "memory_total": memory.get("memory_total"),
        "swap_total": memory.get("swap_total"),
        "disks": devices.disks(host),
        "interfaces": devices.interfaces(host),
    }


def _from_collectors(collectors: list[Collector]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for collector in collectors:
        fields |= collector.describe()
    return fields


def os_name(text: str) -> str | None:
    """PRETTY_NAME of os-release(5), whichever way it is quoted."""
    match = re.search(r"^PRETTY_NAME=([\"']?)(.*)\1\s*$", text, re.M)
    return match[2] if match else None


def booted(stat: bytes) -> datetime | None:
    """When the kernel started, by its own clock."""
    seconds = number_after(stat, b"\nbtime ")
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def cgroup_mode(host: Host) -> str | None:
    """v2 alone, v1 alone, or v1 with a v2 hierarchy beside it (systemd's hybrid)."""
    root = host.sys / "fs" / "cgroup"
    if (root / "cgroup.controllers").exists():
        return "v2"
    if (root / "unified" / "cgroup.controllers").exists():
        return "hybrid"
    return "v1" if (root / "memory").is_dir() or (root / "cpuacct").is_dir() else None
