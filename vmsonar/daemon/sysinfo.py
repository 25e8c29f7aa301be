"""Makes the sysinfo record: the machine, what vmsonar can see of it, and the configuration."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from vmsonar_archive.records import SysInfo

from vmsonar import __version__
from vmsonar.collectors.base import Collector, capabilities_of
from vmsonar.collectors.node import parse_meminfo
from vmsonar.config.schema import Config, plain
from vmsonar.host import cloud, hardware
from vmsonar.host.clock import Clock
from vmsonar.host.files import read_text
from vmsonar.host.identity import boot_id, node_identity
from vmsonar.host.lustre import job_naming
from vmsonar.host.roots import Host


def gather(host: Host, config: Config, collectors: Iterable[Collector], clock: Clock) -> SysInfo:
    """One record; its number and run are set by whoever writes it."""
    collectors = list(collectors)
    return SysInfo(
        time=clock.now(),
        seq=0,
        run="",
        boot=boot_id(host),
        boottime=clock.boottime_ns(),
        **msgspec.structs.asdict(node_identity(host)),
        **cloud.cloud(host)._asdict(),
        virtualization=cloud.virtualization(host),
        **_system(host),
        **_hardware(host),
        **cast("dict[str, Any]", _from_collectors(collectors)),
        capabilities=[one for collector in collectors for one in capabilities_of(collector)],
        vmsonar_version=__version__,
        python_version=sys.version.split()[0],
        interval=round(config.interval * 1000),
        config={key: msgspec.Raw(msgspec.json.encode(value)) for key, value in plain(config).items()},
    )


def _system(host: Host) -> dict[str, Any]:
    name = os.uname()
    return {
        "os_name": os_name(read_text(host.etc / "os-release") or ""),
        "kernel_name": name.sysname,
        "kernel_release": read_text(host.proc / "sys" / "kernel" / "osrelease") or name.release,
        "architecture": name.machine,
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "ticks_per_second": os.sysconf("SC_CLK_TCK"),
        "booted": hardware.boot_time(host),
        "cgroup_mode": cgroup_mode(host),
        **job_naming(host)._asdict(),
    }


def _hardware(host: Host) -> dict[str, Any]:
    cpus = hardware.topology(host)
    distances = hardware.numa_distances(host)
    memory = parse_meminfo((read_text(host.proc / "meminfo") or "").encode())
    return {
        "cpu_model": hardware.cpu_model(host),
        **cpus._asdict(),
        "numa_nodes": len(distances) if distances else None,
        "numa_distances": distances,
        "memory_total": memory.get("memory_total"),
        "swap_total": memory.get("swap_total"),
        "disks": hardware.disks(host),
        "interfaces": hardware.interfaces(host),
    }


def _from_collectors(collectors: list[Collector]) -> dict[str, list[object] | None]:
    answers: dict[str, list[Sequence[object] | None]] = {}
    for collector in collectors:
        with suppress(Exception):  # what cannot be told now is told another day, or by a gap row
            for field, answer in collector.describe().items():
                answers.setdefault(field, []).append(answer)
    return {field: _joined(given) for field, given in answers.items()}


def _joined(answers: list[Sequence[object] | None]) -> list[object] | None:
    """All that was found; None rather than an empty list while a collector cannot tell yet."""
    found = [one for answer in answers for one in answer or ()]
    return None if not found and None in answers else found


def os_name(text: str) -> str | None:
    """PRETTY_NAME of os-release(5), whichever way it is quoted."""
    match = re.search(r"^PRETTY_NAME=([\"']?)(.*)\1\s*$", text, re.M)
    return match[2] if match else None


def cgroup_mode(host: Host) -> str | None:
    """v2 alone, v1 alone, or v1 with a v2 hierarchy beside it (systemd's hybrid)."""
    root = host.sys / "fs" / "cgroup"
    if (root / "cgroup.controllers").exists():
        return "v2"
    if (root / "unified" / "cgroup.controllers").exists():
        return "hybrid"
    return "v1" if (root / "memory").is_dir() or (root / "cpuacct").is_dir() else None
