"""The machine as hardware: boot time, CPUs and NUMA (Documentation/admin-guide/cputopology.rst), disks, interfaces.

Read by hand below our roots: psutil asks the running kernel for CPUs and interfaces, whatever the root, knows neither
sockets, NUMA, drivers nor disk models, and would cost the recorder a megabyte (docs/decisions/0004-dependencies.md).
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from vmsonar_archive.records import Disk, Interface

from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

# MIDR_EL1 of the cores that clouds and clusters rent out.
_ARM_PARTS = {
    (0x41, 0xD08): "ARM Cortex-A72",
    (0x41, 0xD0C): "ARM Neoverse-N1",
    (0x41, 0xD40): "ARM Neoverse-V1",
    (0x41, 0xD49): "ARM Neoverse-N2",
    (0x41, 0xD4F): "ARM Neoverse-V2",
    (0x46, 0x001): "Fujitsu A64FX",
    (0x43, 0x0AF): "Cavium ThunderX2",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}


def boot_time(host: Host) -> datetime | None:
    """When the kernel started, by its own clock."""
    found = re.search(r"^btime ([0-9]{1,11})$", read_text(host.proc / "stat") or "", re.M)
    return datetime.fromtimestamp(int(found[1]), UTC) if found else None


class Topology(NamedTuple):
    """How the logical CPUs are arranged; None where the firmware or the hypervisor does not tell."""

    cpus: int | None
    sockets: int | None
    cores_per_socket: int | None
    threads_per_core: int | None
    core_siblings: list[list[int]] | None = None


def topology(host: Host) -> Topology:
    """The arrangement of the CPUs that are online."""
    folder = host.sys / "devices" / "system" / "cpu"
    cpus = parse_list(read_text(folder / "online") or "")
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        if (place := _place(folder / f"cpu{cpu}" / "topology")) is not None:
            cores.setdefault(place, []).append(cpu)
    if not cores:
        return Topology(len(cpus) or None, None, None, None)
    sockets, placed = len({socket for socket, _ in cores}), sum(map(len, cores.values()))
    siblings = list(cores.values()) if placed > len(cores) else None
    return Topology(len(cpus), sockets, -(-len(cores) // sockets), -(-placed // len(cores)), siblings)


def _place(folder: Path) -> tuple[int, int] | None:
    """Package and core of one CPU; an unknown package (-1, on some arm64 machines) is one package."""
    package, core = (read_text(folder / name) for name in ("physical_package_id", "core_id"))
    if package is None or core is None:
        return None
    # Dies and clusters number their cores anew: the lowest sibling, where known, identifies a core.
    siblings = read_text(folder / "thread_siblings_list")
    lowest = parse_list(siblings)[0] if siblings else int(core)
    return int(package), lowest


def parse_list(text: str) -> list[int]:
    """`0-3,8` as numbers."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def numa_distances(host: Host) -> list[list[int]] | None:
    """The matrix of distances between the memory nodes, in the order of their numbers."""
    folder = host.sys / "devices" / "system" / "node"
    found = {int(path.name[4:]): path for path in folder.glob("node[0-9]*")}
    rows = [read_text(found[number] / "distance") for number in sorted(found)]
    return [[int(distance) for distance in row.split()] for row in rows if row] or None


def cpu_model(host: Host) -> str | None:
    """The name that /proc/cpuinfo gives the CPU; on arm64 the numbers of implementer and part stand for it."""
    text = read_text(host.proc / "cpuinfo") or ""
    named = re.search(r"^(?:model name|cpu model|cpu)\s*: (.+)$", text, re.M)
    if named:
        return named[1].strip()
    implementer, part = (
        re.search(rf"^{key}\s*: (\S+)$", text, re.M) for key in ("CPU implementer", "CPU part")
    )
    if implementer and part:
        key = (int(implementer[1], 16), int(part[1], 16))
        return _ARM_PARTS.get(key, f"implementer {implementer[1]} part {part[1]}")
    return None


def disks(host: Host) -> list[Disk]:
    """The block devices that have a size."""
    found = [_disk(path) for path in sorted((host.sys / "block").glob("*"))]
    return [disk for disk in found if disk.size]


def _disk(path: Path) -> Disk:
    rotational = read_text(path / "queue" / "rotational")
    sectors = read_text(path / "size")
    return Disk(
        device=path.name.replace("!", "/"),
        model=read_text(path / "device" / "model") or None,
        size=int(sectors) * 512 if sectors else None,
        rotational=None if rotational is None else rotational == "1",
    )


def interfaces(host: Host) -> list[Interface]:
    """The network interfaces; a virtual one has no speed."""
    return [_interface(path) for path in sorted((host.sys / "class" / "net").glob("*")) if path.is_dir()]


def _interface(path: Path) -> Interface:
    speed = read_text(path / "speed")  # EINVAL while the link is down, -1 where it makes no sense
    driver = path / "device" / "driver"
    return Interface(
        interface=path.name,
        address=read_text(path / "address") or None,
        speed=int(speed) if speed and speed.isdigit() else None,
        driver=driver.resolve().name if driver.exists() else None,
    )
