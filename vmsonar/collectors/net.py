"""Network interfaces, from /proc/net/dev (proc_pid_net(5))."""

from collections.abc import Iterable
from pathlib import Path

from vmsonar_archive.records import NetRow

from vmsonar.collectors.base import LineCollector, Setup, SharedFile
from vmsonar.host.roots import Host

_COUNTERS = NetRow.__struct_fields__[1:]
_HEADER_LINES = 2


class NetCollector(LineCollector):
    """One row per network interface of the host."""

    name = "net"
    kinds = ("net",)
    item = "network interfaces"

    def __init__(self, setup: Setup) -> None:
        super().__init__(SharedFile(_interface_file(setup.host)))

    def lines(self, content: bytes) -> Iterable[bytes]:
        return filter(None, content.split(b"\n")[_HEADER_LINES:])

    def parse(self, line: bytes) -> NetRow:
        """One line; a name may be glued to its first number by the colon."""
        name, _, rest = line.rpartition(b":")
        counters = [int(number) for number in rest.split()]
        fields = dict(zip(_COUNTERS, counters[:4] + counters[8:12], strict=True))
        return NetRow(interface=name.strip().decode(errors="replace"), **fields)


def _interface_file(host: Host) -> Path:
    """The file that speaks of the host: below another root, `net` would be that of our own namespace."""
    of_init = host.proc / "1" / "net" / "dev"
    return of_init if not host.is_this_machine and of_init.exists() else host.proc / "net" / "dev"
