"""What the DRM drivers show of a client in /proc/PID/fdinfo (Documentation/gpu/drm-usage-stats.rst)."""

from dataclasses import dataclass, field

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_COMPUTE = {"compute", "ccs"}


@dataclass(slots=True)
class Client:
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


def parse_fdinfo(text: str) -> Client | None:
    """The client, or None where the descriptor is of something else."""
    facts = _facts(text)
    client_id = facts.get("drm-client-id", "")
    if "drm-driver" not in facts or not client_id.isdecimal():
        return None
    client = Client(facts.get("drm-pdev", ""), int(client_id), facts["drm-driver"])
    for key, value in facts.items():
        if key.startswith("drm-"):
            _take(client, key.removeprefix("drm-"), value)
    return client


def _facts(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _take(client: Client, key: str, value: str) -> None:
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
