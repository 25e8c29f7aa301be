"""Time lost to contention: /proc/pressure (Documentation/accounting/psi.rst)."""

import errno

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, PressureRow

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, readable
from vmsonar.host.files import KeptFile

_RESOURCES = ("cpu", "memory", "io", "irq")
_REMEDY = "boot with psi=1 on the kernel command line (Linux 4.20 or later)"


def parse_pressure(resource: str, content: bytes) -> PressureRow:
    """The totals of one file; `irq` has no line `some`, older kernels no line `full` for the CPU."""
    totals = {}
    for line in content.splitlines():
        totals[line[:4]] = int(line.rpartition(b"=")[2])
    return PressureRow(resource=resource, some_time=totals.get(b"some"), full_time=totals.get(b"full"))


class PressureCollector(Collector):
    """One row per resource that the kernel knows."""

    name = "pressure"
    kinds = ("pressure",)

    def __init__(self, setup: Setup) -> None:
        folder = setup.host.proc / "pressure"
        self._all = {resource: folder / resource for resource in _RESOURCES}
        self._files = {resource: KeptFile(path) for resource, path in self._all.items() if path.exists()}
        self._rows: dict[str, tuple[bytes, bytes]] = {}

    def collect(self, tick: Tick) -> Rows:
        if not self._files:
            raise OSError(errno.EOPNOTSUPP, f"the kernel reports no pressure: {_REMEDY}")
        rows = Rows()
        rows.extend("pressure", [self._encoded(resource, file) for resource, file in self._files.items()])
        return rows

    def _encoded(self, resource: str, file: KeptFile) -> bytes:
        content = file.read()
        last = self._rows.get(resource)
        if last is not None and last[0] == content:
            return last[1]
        encoded = encode_row(parse_pressure(resource, content))
        self._rows[resource] = (content, encoded)
        return encoded

    def capabilities(self) -> list[Capability]:
        wanted = [resource for resource in _RESOURCES if resource != "irq" or resource in self._files]
        return [
            readable(self.name, f"pressure on {resource}", self._all[resource], _REMEDY)
            for resource in wanted
        ]

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def make(setup: Setup) -> Collector:
    return PressureCollector(setup)
