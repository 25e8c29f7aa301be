"""Network interfaces of the host: /proc/net/dev (proc(5))."""

from pathlib import Path

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, NetRow

from vmsonar.collectors.base import Collector, RowCache, Rows, Setup, Tick, readable
from vmsonar.host.files import KeptFile
from vmsonar.host.roots import Host

_HEADER_LINES = 2


def parse_interface(line: bytes) -> NetRow:
    """One line; a name may be glued to its first number by the colon."""
    name, _, rest = line.rpartition(b":")
    counters = [int(field) for field in rest.split()]
    return NetRow(
        interface=name.strip().decode(errors="replace"),
        received_bytes=counters[0],
        received_packets=counters[1],
        received_errors=counters[2],
        received_drops=counters[3],
        sent_bytes=counters[8],
        sent_packets=counters[9],
        sent_errors=counters[10],
        sent_drops=counters[11],
    )


def device_file(host: Host) -> Path:
    """The file that speaks of the host: below another root, `net` would be that of our own namespace."""
    if not host.is_this_machine and (host.proc / "1" / "net" / "dev").exists():
        return host.proc / "1" / "net" / "dev"
    return host.proc / "net" / "dev"


class NetCollector(Collector):
    """One row per interface."""

    name = "net"
    kinds = ("net",)

    def __init__(self, setup: Setup) -> None:
        self._file = KeptFile(device_file(setup.host))
        self._cache = RowCache(lambda line: encode_row(parse_interface(line)))

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        lines = self._file.read().split(b"\n")[_HEADER_LINES:]
        rows.extend("net", self._cache.rows(filter(None, lines)))
        return rows

    def capabilities(self) -> list[Capability]:
        return [readable(self.name, "network interfaces", self._file.path)]

    def close(self) -> None:
        self._file.close()


def make(setup: Setup) -> Collector:
    return NetCollector(setup)
