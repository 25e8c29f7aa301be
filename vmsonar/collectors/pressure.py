"""Time lost waiting for CPU, memory and I/O, from /proc/pressure (Documentation/accounting/psi.rst)."""

import errno

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, PressureRow

from vmsonar.collectors.base import Collector, RowCache, Rows, Setup, Tick, readable
from vmsonar.host.files import KeptFile

_RESOURCES = ("cpu", "memory", "io", "irq")
_REMEDY = "boot with psi=1 on the kernel command line (Linux 4.20 or later)"


class PressureCollector(Collector):
    """One row per resource that the kernel knows."""

    name = "pressure"
    kinds = ("pressure",)

    def __init__(self, setup: Setup) -> None:
        self._folder = setup.host.proc / "pressure"
        paths = {resource: self._folder / resource for resource in _RESOURCES}
        self._files = {resource: KeptFile(path) for resource, path in paths.items() if path.exists()}
        self._cache = RowCache(lambda text: encode_row(parse_pressure(text)))

    def collect(self, tick: Tick) -> Rows:
        if not self._files:
            raise OSError(errno.EOPNOTSUPP, f"the kernel reports no pressure: {_REMEDY}")
        rows = Rows()
        texts = [b"%b\n%b" % (resource.encode(), file.read()) for resource, file in self._files.items()]
        rows.extend("pressure", self._cache.rows(texts))
        return rows

    def capabilities(self) -> list[Capability]:
        return [
            readable(self.name, f"pressure on {resource}", self._folder / resource, _REMEDY)
            for resource in _RESOURCES
            if resource != "irq" or resource in self._files
        ]

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def parse_pressure(text: bytes) -> PressureRow:
    """A resource and the totals of its file; `irq` has no line `some`, older kernels no line `full` for the CPU."""
    resource, *lines = text.splitlines()
    totals = {line[:4]: int(line.rpartition(b"=")[2]) for line in lines}
    return PressureRow(
        resource=resource.decode(), some_time=totals.get(b"some"), full_time=totals.get(b"full")
    )
