"""GPU time and memory per process from DRM clients (drm-usage-stats.rst) and KFD; no counter ever steps back."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vmsonar.collectors.gpu.drm.devices import read_int
from vmsonar.host.files import read_text

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_COMPUTE = {"compute", "ccs"}


@dataclass(slots=True)
class DrmClient:
    """One open DRM file; several descriptors can stand for it."""

    bus_address: str
    client_id: int
    driver: str
    #: Busy nanoseconds per engine.
    engines: dict[str, int] = field(default_factory=dict)
    #: Busy cycles per engine, and the cycles there were, where the driver counts those.
    cycles: dict[str, int] = field(default_factory=dict)
    total_cycles: dict[str, int] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    resident: dict[str, int] = field(default_factory=dict)
    allocated: dict[str, int] = field(default_factory=dict)

    def memory(self) -> int | None:
        """Device memory; on a GPU that has none of its own, the system memory it uses."""
        regions = {**self.allocated, **self.resident}
        local = [size for name, size in regions.items() if name.startswith(("vram", "local"))]
        shared = [size for name, size in regions.items() if name.startswith(("system", "gtt"))]
        sizes = local or shared
        return sum(sizes) if sizes else None

    def usages(self) -> list[str]:
        """Compute, graphics (which video and copies count as), both, or nothing so far."""
        busy = {name for name, value in {**self.engines, **self.cycles}.items() if value}
        return ["compute"] * bool(busy & _COMPUTE) + ["graphics"] * bool(busy - _COMPUTE)


def parse_fdinfo(text: str) -> DrmClient | None:
    """The client, or None where the descriptor is of something else."""
    facts = _facts(text)
    client_id = facts.get("drm-client-id", "")
    if "drm-driver" not in facts or not client_id.isdecimal():
        return None
    client = DrmClient(facts.get("drm-pdev", ""), int(client_id), facts["drm-driver"])
    for key, value in facts.items():
        if key.startswith("drm-"):
            _take(client, key.removeprefix("drm-"), value)
    return client


def _facts(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _take(client: DrmClient, key: str, value: str) -> None:
    kind, _, name = key.partition("-")
    number, _, unit = value.partition(" ")
    if not name or not number.isdecimal():
        return
    if kind == "engine" and name.startswith("capacity-"):
        client.capacity[name.removeprefix("capacity-")] = max(int(number), 1)
    elif kind == "engine":
        client.engines[name] = int(number)
    elif kind == "cycles":
        client.cycles[name] = int(number)
    elif kind == "total" and name.startswith("cycles-"):
        client.total_cycles[name.removeprefix("cycles-")] = int(number)
    elif kind in ("resident", "memory"):
        sizes = client.resident if kind == "resident" else client.allocated
        sizes[name] = int(number) * _UNITS.get(unit.strip(), 1)


Owner = tuple[int, int | None]


@dataclass(slots=True)
class _Meter:
    """The highest values seen of one client."""

    engines: dict[str, int] = field(default_factory=dict)
    cycles: dict[str, int] = field(default_factory=dict)
    total_cycles: dict[str, int] = field(default_factory=dict)


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


def read_clients(proc: Path, descriptors: dict[int, list[str]]) -> list[tuple[int, DrmClient]]:
    """The clients behind the descriptors, with the process of each; repeats are still in."""
    found = []
    for pid, names in descriptors.items():
        for name in names:
            client = _read(proc / str(pid) / "fdinfo" / name)
            if client is not None:
                found.append((pid, client))
    return found


def once_each(
    found: list[tuple[int, DrmClient]], starts: dict[int, int | None]
) -> list[tuple[Owner, DrmClient]]:
    """Each client once: with the process that started first, because children inherit descriptors."""
    owners: dict[tuple[str, int], tuple[Owner, DrmClient]] = {}
    for pid, client in sorted(found, key=lambda each: (starts.get(each[0]) or 0, each[0])):
        owners.setdefault((client.bus_address, client.client_id), ((pid, starts.get(pid)), client))
    return list(owners.values())


class ClientMeters:
    """Adds up what each process used, from one reading to the next."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, int], _Meter] = {}
        self._totals: dict[tuple[Owner, str], int] = {}
        self._before: int | None = None

    def update(self, clients: list[tuple[Owner, DrmClient]], boottime: int) -> list[ClientUse]:
        """One use per process and GPU, in order of process ids."""
        elapsed = None if self._before is None else boottime - self._before
        meters: dict[tuple[str, int], _Meter] = {}
        totals: dict[tuple[Owner, str], int] = {}
        uses: dict[tuple[Owner, str], ClientUse] = {}
        for owner, client in clients:
            key = (owner, client.bus_address)
            use = uses.setdefault(key, ClientUse(owner[0], client.bus_address))
            identity = (client.bus_address, client.client_id)
            known = self._meters.get(identity)
            meter = meters[identity] = known or _Meter()
            _take_memory(use, client)
            totals[key] = totals.get(key, self._totals.get(key, 0)) + _take_time(
                use, client, meter, elapsed if known else None
            )
            _take_cycles(use, client, meter, known is not None)
            if client.engines:
                use.engine_time = totals[key]
        self._meters, self._totals, self._before = meters, totals, boottime
        return sorted(uses.values(), key=lambda use: (use.bus_address, use.pid))


def _take_memory(use: ClientUse, client: DrmClient) -> None:
    use.usages.update(client.usages())
    memory = client.memory()
    if memory is not None:
        use.memory = (use.memory or 0) + memory


def _take_time(use: ClientUse, client: DrmClient, meter: _Meter, elapsed: int | None) -> int:
    """The rise in nanoseconds of all engines; a group of equal engines counts as one."""
    risen = 0
    for engine, value in client.engines.items():
        rise = _rise(meter.engines, engine, value) // client.capacity.get(engine, 1)
        risen += rise
        if elapsed:
            _share(use, engine, rise / elapsed, "drm_engine_time")
    return risen


def _take_cycles(use: ClientUse, client: DrmClient, meter: _Meter, known: bool) -> None:
    for engine, value in client.cycles.items():
        rise = _rise(meter.cycles, engine, value)
        total = _rise(meter.total_cycles, engine, client.total_cycles.get(engine, 0))
        if known and total:
            _share(use, engine, rise / total / client.capacity.get(engine, 1), "drm_cycles")


def _rise(highest: dict[str, int], engine: str, value: int) -> int:
    """By how much the value exceeds the highest so far; one that steps back adds nothing."""
    before = highest.get(engine, 0)
    highest[engine] = max(before, value)
    return max(value - before, 0)


def _share(use: ClientUse, engine: str, share: float, source: str) -> None:
    use.shares[engine] = use.shares.get(engine, 0.0) + share
    use.share_source = source


def _read(path: Path) -> DrmClient | None:
    try:
        return parse_fdinfo(path.read_text(errors="replace"))
    except OSError:
        return None


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

    def find(self, processes: Iterable[tuple[int, int | None]], boottime: int) -> dict[int, list[str]]:
        """The descriptors by process id, of the processes given as id and start."""
        watched = {pid: self._watch(pid, start) for pid, start in processes}
        self._watched = watched
        due = sorted((each.due, pid) for pid, each in watched.items() if each.due <= boottime)
        for _, pid in due[:_MOST_PER_TICK]:
            self._look(pid, watched[pid], boottime)
        return {pid: each.descriptors for pid, each in watched.items() if each.descriptors}

    def _watch(self, pid: int, start_ticks: int | None) -> _Watched:
        before = self._watched.get(pid)
        if before is not None and before.start_ticks == start_ticks:
            return before
        return _Watched(start_ticks)

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
