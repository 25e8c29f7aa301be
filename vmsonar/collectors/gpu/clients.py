"""GPU time per process from its DRM clients: each client once, no counter ever stepping back."""

from dataclasses import dataclass, field
from pathlib import Path

from vmsonar.collectors.gpu.fdinfo import Client, parse_fdinfo

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


def read_clients(proc: Path, descriptors: dict[int, list[str]]) -> list[tuple[int, Client]]:
    """The clients behind the descriptors, with the process of each; repeats are still in."""
    found = []
    for pid, names in descriptors.items():
        for name in names:
            client = _read(proc / str(pid) / "fdinfo" / name)
            if client is not None:
                found.append((pid, client))
    return found


def once_each(found: list[tuple[int, Client]], starts: dict[int, int | None]) -> list[tuple[Owner, Client]]:
    """Each client once: with the process that started first, because children inherit descriptors."""
    owners: dict[tuple[str, int], tuple[Owner, Client]] = {}
    for pid, client in sorted(found, key=lambda each: (starts.get(each[0]) or 0, each[0])):
        owners.setdefault((client.bus_address, client.client_id), ((pid, starts.get(pid)), client))
    return list(owners.values())


class ClientMeters:
    """Adds up what each process used, from one reading to the next."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, int], _Meter] = {}
        self._totals: dict[tuple[Owner, str], int] = {}
        self._before: int | None = None

    def update(self, clients: list[tuple[Owner, Client]], boottime: int) -> list[ClientUse]:
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


def _take_memory(use: ClientUse, client: Client) -> None:
    use.usages.update(client.usages())
    memory = client.memory()
    if memory is not None:
        use.memory = (use.memory or 0) + memory


def _take_time(use: ClientUse, client: Client, meter: _Meter, elapsed: int | None) -> int:
    """The rise in nanoseconds of all engines; a group of equal engines counts as one."""
    risen = 0
    for engine, value in client.engines.items():
        rise = _rise(meter.engines, engine, value) // client.capacity.get(engine, 1)
        risen += rise
        if elapsed:
            _share(use, engine, rise / elapsed, "drm_engine_time")
    return risen


def _take_cycles(use: ClientUse, client: Client, meter: _Meter, known: bool) -> None:
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


def _read(path: Path) -> Client | None:
    try:
        return parse_fdinfo(path.read_text(errors="replace"))
    except OSError:
        return None
