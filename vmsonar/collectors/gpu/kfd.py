"""AMD compute processes, as the KFD driver shows them below /sys/class/kfd."""

import os
from dataclasses import dataclass
from pathlib import Path

from vmsonar.collectors.files import read_text
from vmsonar.collectors.gpu.sysfs import read_int


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU as KFD numbers it."""

    gpu_id: int
    bus_address: str
    compute_units: int
    architecture: str | None


@dataclass(slots=True)
class KfdUse:
    """What one process uses of one GPU: bytes, and compute units at this moment."""

    pid: int
    bus_address: str
    memory: int
    occupied: int | None
    compute_units: int


def read_nodes(sys: Path) -> dict[int, KfdNode]:
    """The GPUs among the nodes of the topology, by their KFD id."""
    nodes = {}
    for folder in sorted((sys / "class/kfd/kfd/topology/nodes").glob("[0-9]*")):
        gpu_id = read_int(folder / "gpu_id")
        if gpu_id:
            nodes[gpu_id] = parse_node(gpu_id, read_text(folder / "properties") or "")
    return nodes


def parse_node(gpu_id: int, properties: str) -> KfdNode:
    """One node from its properties, a name and a number per line."""
    facts = {name: int(value) for name, value in _pairs(properties)}
    units = facts.get("simd_count", 0) // max(facts.get("simd_per_cu", 0), 1)
    return KfdNode(gpu_id, _address(facts), units, _architecture(facts.get("gfx_target_version", 0)))


def read_uses(sys: Path, nodes: dict[int, KfdNode]) -> list[KfdUse]:
    """Each process on each GPU that it holds memory or compute units of."""
    root = sys / "class/kfd/kfd/proc"
    try:
        pids = sorted(int(name) for name in os.listdir(root) if name.isdecimal())
    except OSError:
        return []
    found = (_use(root / str(pid), pid, node) for pid in pids for node in nodes.values())
    return [use for use in found if use is not None and (use.memory or use.occupied)]


def _use(folder: Path, pid: int, node: KfdNode) -> KfdUse | None:
    memory = read_int(folder / f"vram_{node.gpu_id}")
    if memory is None:
        return None
    occupied = read_int(folder / f"stats_{node.gpu_id}/cu_occupancy")
    return KfdUse(pid, node.bus_address, memory, occupied, node.compute_units)


def _pairs(text: str) -> list[tuple[str, str]]:
    words = (line.split() for line in text.splitlines())
    return [(pair[0], pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()]


def _address(facts: dict[str, int]) -> str:
    location = facts.get("location_id", 0)
    bus, slot, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
    return f"{facts.get('domain', 0):04x}:{bus:02x}:{slot:02x}.{function}"


def _architecture(version: int) -> str | None:
    """Such as gfx90a for 90010."""
    if not version:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
