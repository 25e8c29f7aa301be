"""GPU time and memory per process from DRM clients (drm-usage-stats.rst) and KFD; no counter ever steps back."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from vmsonar.collectors.gpu.drm.devices import read_int
from vmsonar.host.files import read_text

_VALUE = re.compile(
    r"drm-(engine-capacity|engine|cycles|total-cycles|resident|memory)-([^:]+):\s*([0-9]+)(?:\s+(\S*))?\s*"
)
# A property of a KFD node.
_PROPERTY = re.compile(r"^\s*(\S+)\s+([0-9]+)\s*$", re.MULTILINE)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_COMPUTE = {"compute", "ccs"}

#: A process: its id and, where known, its start.
Owner = tuple[int, int | None]


class DrmClient(NamedTuple):
    """One open DRM file; several descriptors can stand for it."""

    bus_address: str
    client_id: int
    #: By kind and name: nanoseconds or cycles of an engine, its capacity, bytes of a region of memory.
    values: dict[str, dict[str, int]]

    def memory(self) -> int | None:
        """Device memory; on a GPU that has none of its own, the system memory it uses."""
        regions = {**self.values["memory"], **self.values["resident"]}
        local = [size for name, size in regions.items() if name.startswith(("vram", "local"))]
        shared = [size for name, size in regions.items() if name.startswith(("system", "gtt"))]
        sizes = local or shared
        return sum(sizes) if sizes else None

    def usages(self) -> set[str]:
        """Compute, graphics (which video and copies count as), both, or nothing so far."""
        engines = {**self.values["engine"], **self.values["cycles"]}
        return {"compute" if name in _COMPUTE else "graphics" for name, busy in engines.items() if busy}

    def capacity(self, engine: str) -> int:
        """How many equal engines go by this name."""
        return max(self.values["engine-capacity"].get(engine, 1), 1)


def parse_fdinfo(text: str) -> DrmClient | None:
    """The client, or None where the descriptor is of something else."""
    facts: dict[str, str] = {}
    values: dict[str, dict[str, int]] = defaultdict(dict)
    for line in text.splitlines():
        if (found := _VALUE.fullmatch(line)) is not None:
            kind, name, number, unit = found.groups()
            values[kind][name] = int(number) * _UNITS.get(unit, 1)
        elif line.startswith("drm-"):
            key, _, value = line.partition(":")
            facts[key.strip()] = value.strip()
    client_id = facts.get("drm-client-id", "")
    if "drm-driver" not in facts or not client_id.isdecimal():
        return None
    return DrmClient(facts.get("drm-pdev", ""), int(client_id), values)


@dataclass(slots=True)
class ClientUse:
    """What one process uses of one GPU, summed over its clients."""

    pid: int
    bus_address: str
    usages: set[str] = field(default_factory=set)
    memory: int | None = None
    engine_time: int | None = None
    #: Share of each engine since the last reading, 0 to 1.
    shares: dict[str, float] = field(default_factory=dict)
    share_source: str | None = None

    def add_share(self, engine: str, share: float, source: str) -> None:
        self.shares[engine] = self.shares.get(engine, 0.0) + share
        self.share_source = source


def read_clients(proc: Path, descriptors: dict[int, list[str]]) -> list[tuple[int, DrmClient]]:
    """The clients behind the descriptors, with the process of each; repeats are still in."""
    paths = [(pid, proc / str(pid) / "fdinfo" / name) for pid, names in descriptors.items() for name in names]
    found = ((pid, parse_fdinfo(read_text(path) or "")) for pid, path in paths)
    return [(pid, client) for pid, client in found if client is not None]


def once_each(
    found: list[tuple[int, DrmClient]], starts: dict[int, int | None]
) -> list[tuple[Owner, DrmClient]]:
    """Each client once: with the process that started first, because children inherit descriptors."""
    owners: dict[tuple[str, int], tuple[Owner, DrmClient]] = {}
    for pid, client in sorted(found, key=lambda each: (starts.get(each[0]) or 0, each[0])):
        owners.setdefault((client.bus_address, client.client_id), ((pid, starts.get(pid)), client))
    return list(owners.values())


class _Meter(dict[tuple[str, str], int]):
    """The highest values seen of one client, by kind and engine."""

    def rise(self, client: DrmClient, kind: str, engine: str) -> int:
        """By how much the value exceeds the highest so far; one that steps back adds nothing."""
        value, before = client.values[kind].get(engine, 0), self.get((kind, engine), 0)
        self[kind, engine] = max(before, value)
        return max(value - before, 0)


class ClientMeters:
    """Adds up what each process used, from one reading to the next."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, int], _Meter] = {}
        self._totals: dict[tuple[Owner, str], int] = {}
        self._before = 0

    def update(self, clients: list[tuple[Owner, DrmClient]], boottime: int) -> list[ClientUse]:
        """One use per process and GPU, in order of process ids."""
        elapsed = boottime - self._before
        meters: dict[tuple[str, int], _Meter] = {}
        totals: dict[tuple[Owner, str], int] = {}
        uses: dict[tuple[Owner, str], ClientUse] = {}
        for owner, client in clients:
            key = (owner, client.bus_address)
            use = uses.setdefault(key, ClientUse(owner[0], client.bus_address))
            use.usages |= client.usages()
            if (memory := client.memory()) is not None:
                use.memory = (use.memory or 0) + memory
            identity = (client.bus_address, client.client_id)
            known = self._meters.get(identity)
            meter = meters[identity] = _Meter() if known is None else known
            risen = _take_time(use, client, meter, 0 if known is None else elapsed)
            totals[key] = totals.get(key, self._totals.get(key, 0)) + risen
            _take_cycles(use, client, meter, known is not None)
            if client.values["engine"]:
                use.engine_time = totals[key]
        self._meters, self._totals, self._before = meters, totals, boottime
        return sorted(uses.values(), key=lambda use: (use.bus_address, use.pid))


def _take_time(use: ClientUse, client: DrmClient, meter: _Meter, elapsed: int) -> int:
    """The rise in nanoseconds of all engines; a group of equal engines counts as one."""
    risen = 0
    for engine in client.values["engine"]:
        rise = meter.rise(client, "engine", engine) // client.capacity(engine)
        risen += rise
        if elapsed:
            use.add_share(engine, rise / elapsed, "drm_engine_time")
    return risen


def _take_cycles(use: ClientUse, client: DrmClient, meter: _Meter, known: bool) -> None:
    for engine in client.values["cycles"]:
        rise = meter.rise(client, "cycles", engine)
        total = meter.rise(client, "total-cycles", engine)
        if known and total:
            use.add_share(engine, rise / total / client.capacity(engine), "drm_cycles")


_SECOND = 1_000_000_000
_FIRST_PAUSE, _LONGEST_PAUSE = 10 * _SECOND, 60 * _SECOND
# Looking through one process costs about 70 µs; the rest waits for the next tick.
_MOST_PER_TICK = 250


@dataclass(slots=True)
class _Watched:
    """What is known of one process."""

    start_ticks: int | None
    due: int = 0
    pause: int = _FIRST_PAUSE
    descriptors: list[str] = field(default_factory=list)


class DrmDescriptors:
    """Remembers per process where its DRM descriptors are."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._watched: dict[int, _Watched] = {}
        #: Whether every process so far could be looked into.
        self.complete = True

    def find(self, processes: Iterable[Owner], boottime: int) -> dict[int, list[str]]:
        """The descriptors by process id."""
        before, self._watched = self._watched, {}
        for pid, start in processes:
            watched = before.get(pid)
            if watched is None or watched.start_ticks != start:
                watched = _Watched(start)
            self._watched[pid] = watched
        due = sorted((each.due, pid) for pid, each in self._watched.items() if each.due <= boottime)
        for _, pid in due[:_MOST_PER_TICK]:
            self._look(pid, self._watched[pid], boottime)
        return {pid: each.descriptors for pid, each in self._watched.items() if each.descriptors}

    def _look(self, pid: int, watched: _Watched, boottime: int) -> None:
        watched.descriptors = self._open_on_drm(self._proc / str(pid) / "fd")
        if watched.descriptors:
            watched.due = 0
        else:
            watched.due = boottime + watched.pause
            watched.pause = min(watched.pause * 2, _LONGEST_PAUSE)

    def _open_on_drm(self, folder: Path) -> list[str]:
        try:
            names = os.listdir(folder)
        except PermissionError:
            self.complete = False
            return []
        except OSError:
            return []
        return sorted((name for name in names if _is_drm(f"{folder}/{name}")), key=int)


def _is_drm(path: str) -> bool:
    try:
        return os.readlink(path).startswith(("/dev/dri/", "/dev/accel/"))
    except OSError:
        return False


class KfdNode(NamedTuple):
    """A GPU as KFD numbers it."""

    gpu_id: int
    bus_address: str
    compute_units: int
    architecture: str | None


class KfdUse(NamedTuple):
    """What one process uses of one GPU: bytes, and compute units at this moment."""

    pid: int
    node: KfdNode
    memory: int
    occupied: int | None


def read_nodes(sys: Path) -> list[KfdNode]:
    """The GPUs among the nodes of the topology."""
    folders = sorted((sys / "class/kfd/kfd/topology/nodes").glob("[0-9]*"))
    found = [(read_int(folder / "gpu_id"), folder / "properties") for folder in folders]
    return [_node(gpu_id, read_text(properties) or "") for gpu_id, properties in found if gpu_id]


def _node(gpu_id: int, properties: str) -> KfdNode:
    """One node from its properties, a name and a number per line."""
    facts = defaultdict(int, {name: int(value) for name, value in _PROPERTY.findall(properties)})
    units = facts["simd_count"] // max(facts["simd_per_cu"], 1)
    location, version = facts["location_id"], facts["gfx_target_version"]
    bus, slot, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
    address = f"{facts['domain']:04x}:{bus:02x}:{slot:02x}.{function}"
    # such as gfx90a for 90010
    architecture = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None
    return KfdNode(gpu_id, address, units, architecture)


def read_uses(sys: Path, nodes: list[KfdNode]) -> Iterator[KfdUse]:
    """Each process on each GPU that it holds memory or compute units of."""
    root = sys / "class/kfd/kfd/proc"
    try:
        pids = sorted(int(name) for name in os.listdir(root) if name.isdecimal())
    except OSError:
        return
    for pid, node in product(pids, nodes):
        memory = read_int(root / f"{pid}/vram_{node.gpu_id}")
        if memory is None:
            continue
        occupied = read_int(root / f"{pid}/stats_{node.gpu_id}/cu_occupancy")
        if memory or occupied:
            yield KfdUse(pid, node, memory, occupied)
