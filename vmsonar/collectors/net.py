"""Network interfaces, from /proc/net/dev (proc_pid_net(5)), which of them lead out, and what the cloud allows each."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vmsonar_archive.records import Capability, NetRow

from vmsonar.collectors.base import LineCollector, RowCache, Rows, Setup, SharedFile, Tick, capability
from vmsonar.collectors.ethtool import Statistics
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

_COUNTERS = NetRow.__struct_fields__[1:9]
_HEADER_LINES = 2
# Interfaces and routes change by hand, if ever: a new interface is looked at once, all of them once a minute.
_RARELY_NS = 60_000_000_000
_NO_ADDRESS = "0" * 32
_RTF_REJECT = 0x200
#: What the driver of EC2's network cards counts, and our names (Amazon's ena driver).
_ALLOWANCES = {
    "bw_in_allowance_exceeded": "received_bytes_exceeded",
    "bw_out_allowance_exceeded": "sent_bytes_exceeded",
    "pps_allowance_exceeded": "packets_exceeded",
    "conntrack_allowance_exceeded": "connections_exceeded",
    "linklocal_allowance_exceeded": "link_local_exceeded",
    "conntrack_allowance_available": "connections_left",
}


class Link(NamedTuple):
    """What is looked at rarely."""

    kind: str | None
    default_route: bool | None
    speed: int | None


class NetCollector(LineCollector):
    """One row per network interface of the host."""

    name = "net"
    kinds = ("net",)
    item = "network interfaces"

    def __init__(self, setup: Setup) -> None:
        path = _interface_file(setup.host)
        super().__init__(SharedFile(path))
        self._routes = path.parent
        self._links = setup.host.sys / "class/net"
        self._found: dict[str, Link] = {}
        self._rarely_due = 0
        # The driver is asked in our own network, which below another root is not the host's.
        self._may_ask = setup.host.is_this_machine
        self._allowances: dict[str, Statistics] = {}

    def collect(self, tick: Tick) -> Rows:
        if tick.boottime >= self._rarely_due:
            self._rarely_due = tick.boottime + _RARELY_NS
            self._look_again()
        return super().collect(tick)

    def lines(self, content: bytes) -> Iterable[bytes]:
        return filter(None, content.split(b"\n")[_HEADER_LINES:])

    def parse(self, line: bytes) -> NetRow:
        """One line; a name may be glued to its first number by the colon."""
        name, _, rest = line.rpartition(b":")
        counters = [int(number) for number in rest.split()]
        row = NetRow(interface=name.strip().decode(errors="replace"))
        for counter, value in zip(_COUNTERS, counters[:4] + counters[8:12], strict=True):
            setattr(row, counter, value)
        if row.interface not in self._found:
            self._found[row.interface] = self._place(row.interface, default_routes(self._routes))
            # Only devices have drivers that count them.
            if self._may_ask and self._found[row.interface].kind in ("physical", "lower"):
                self._allowances[row.interface] = Statistics(row.interface, _ALLOWANCES)
        row.interface_kind, row.default_route, row.link_speed = self._found[row.interface]
        if row.interface in self._allowances:
            self._tell_allowances(row)
        return row

    def _tell_allowances(self, row: NetRow) -> None:
        try:
            for name, value in self._allowances[row.interface].read().items():
                setattr(row, name, value)
        except OSError:  # gone, or another of that name: asked again when next looked at
            del self._allowances[row.interface], self._found[row.interface]

    def capabilities(self) -> list[Capability]:
        drivers = self._links.glob("*/device/driver") if self._may_ask else ()
        names = [path.parent.parent.name for path in drivers if path.resolve().name == "ena"]
        item, old = "the cloud's allowances", "this driver does not count them"
        return [
            *super().capabilities(),
            *(
                capability(self.name, item, old if Statistics(name, _ALLOWANCES).is_empty else None)
                for name in names
            ),
        ]

    def _look_again(self) -> None:
        routes = default_routes(self._routes)
        found = {name: self._place(name, routes) for name in self._found}
        if found != self._found:
            # Rows of interfaces that move nothing are kept encoded.
            self._found, self._cache = found, RowCache(self._encode)

    def _place(self, name: str, routes: set[str] | None) -> Link:
        is_default = None if routes is None else name in routes
        return Link(interface_kind(self._links, name), is_default, link_speed(self._links, name))


def interface_kind(links: Path, name: str) -> str | None:
    """Whether an interface is a device of the machine; None where sysfs does not show it (sysfs-class-net)."""
    folder = links / name
    if not folder.exists():
        return None
    if (folder / "device").exists():
        # On Azure a virtual function lies below the interface that has the address, itself a device.
        return "lower" if (folder / "master/device").exists() else "physical"
    return "loopback" if name == "lo" else "virtual"


def link_speed(links: Path, name: str) -> int | None:
    """Megabits a second; None where the driver does not know, or there is no link."""
    text = read_text(links / name / "speed") or ""
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) > 0 else None


def default_routes(folder: Path) -> set[str] | None:
    """The interfaces that default routes lead through; None where routes cannot be read."""
    texts = [read_text(folder / name) for name in ("route", "ipv6_route")]
    if texts == [None, None]:
        return None
    return {*_ipv4_defaults(texts[0] or ""), *_ipv6_defaults(texts[1] or "")}


def _ipv4_defaults(text: str) -> Iterator[str]:
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == "00000000" and not int(words[3], 16) & _RTF_REJECT:
            yield words[0]


def _ipv6_defaults(text: str) -> Iterator[str]:
    for line in text.splitlines():
        words = line.split()
        is_default = len(words) == 10 and words[:2] == [_NO_ADDRESS, "00"]
        if is_default and not int(words[8], 16) & _RTF_REJECT:
            yield words[9]


def _interface_file(host: Host) -> Path:
    """The file that speaks of the host: below another root, `net` would be that of our own namespace."""
    of_init = host.proc / "1" / "net" / "dev"
    return of_init if not host.is_this_machine and of_init.exists() else host.proc / "net" / "dev"
