"""The parts of the machine one by one: CPUs, disks, network interfaces, and time lost waiting for them.

/proc/stat and /proc/net/dev (proc(5)), /proc/diskstats (Documentation/admin-guide/iostats.rst), /proc/pressure
(Documentation/accounting/psi.rst).
"""

import errno
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import DISK_COUNTERS, Capability, CpuRow, DiskRow, NetRow, PressureRow, Row

from vmsonar.collectors.base import Collector, Rows, Setup, SharedFile, Tick, readable
from vmsonar.host.files import KeptFile
from vmsonar.host.roots import Host

# Devices that a kernel sets up in advance.
_PLACEHOLDERS = (b"loop", b"ram", b"zram", b"nbd")
_INTERFACE_COUNTERS = NetRow.__struct_fields__[1:]
_INTERFACE_HEADER_LINES = 2
_PRESSURED = ("cpu", "memory", "io", "irq")
_PRESSURE_REMEDY = "boot with psi=1 on the kernel command line (Linux 4.20 or later)"


class RowCache:
    """Encoded rows by the text they were made from: unchanged text is not parsed or encoded again."""

    __slots__ = ("_encode", "_last")

    def __init__(self, encode: Callable[[bytes], bytes]) -> None:
        self._encode = encode
        self._last: dict[bytes, bytes] = {}

    def rows(self, lines: Iterable[bytes]) -> list[bytes]:
        """The rows of this tick's lines, which replace those of the last tick."""
        last, encode = self._last, self._encode
        self._last = {line: last[line] if line in last else encode(line) for line in lines}
        return list(self._last.values())


class LineCollector(Collector):
    """One row for each line of one file."""

    #: What `vmsonar doctor` calls it.
    item: ClassVar[str]

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._cache = RowCache(self._encode)

    @abstractmethod
    def lines(self, content: bytes) -> Iterable[bytes]:
        """The lines that are rows."""

    @abstractmethod
    def parse(self, line: bytes) -> Row | None:
        """One line; None for what is not recorded."""

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        encoded = self._cache.rows(self.lines(self._file.read_at(tick)))
        rows.extend(self.name, list(filter(None, encoded)))
        return rows

    def _encode(self, line: bytes) -> bytes:
        row = self.parse(line)
        return b"" if row is None else encode_row(row)

    def capabilities(self) -> list[Capability]:
        return [readable(self.name, self.item, self._file.path)]

    def close(self) -> None:
        self._file.close()


class CpuCollector(LineCollector):
    """One row per CPU; one that is offline has no line."""

    name = "cpu"
    kinds = ("cpu",)
    item = "time of each CPU"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.proc_stat)

    def lines(self, content: bytes) -> Iterable[bytes]:
        end = content.find(b"\nintr ")
        return [line for line in content[:end].split(b"\n")[1:] if line.startswith(b"cpu")]

    def parse(self, line: bytes) -> CpuRow:
        """One line; the columns that an older kernel lacks stay unknown."""
        name, *columns = line.split()
        times: list[int | None] = [int(column) for column in columns]
        times += [None] * (10 - len(times))
        # Written out: a machine may have hundreds of CPUs, and this is twice as fast as by names.
        return CpuRow(
            cpu_index=int(name[3:]),
            user_ticks=times[0],
            nice_ticks=times[1],
            system_ticks=times[2],
            idle_ticks=times[3],
            iowait_ticks=times[4],
            irq_ticks=times[5],
            softirq_ticks=times[6],
            steal_ticks=times[7],
            guest_ticks=times[8],
            guest_nice_ticks=times[9],
        )


class DiskCollector(LineCollector):
    """One row per whole device that was ever used; partitions are left out, because they would count twice."""

    name = "disk"
    kinds = ("disk",)
    item = "block devices"

    def __init__(self, setup: Setup) -> None:
        super().__init__(SharedFile(setup.host.proc / "diskstats"))
        self._block = setup.host.sys / "block"
        self._whole: dict[bytes, bool] = {}

    def lines(self, content: bytes) -> Iterable[bytes]:
        return filter(None, content.split(b"\n"))

    def parse(self, line: bytes) -> DiskRow | None:
        """One line; the columns that an older kernel lacks stay unknown."""
        major, minor, name, *rest = line.split()
        counters = [int(number) for number in rest]
        if not self._is_whole(name) or (name.startswith(_PLACEHOLDERS) and not any(counters)):
            return None
        fields = dict(zip(DISK_COUNTERS, counters, strict=False))
        device = name.decode(errors="replace")
        return DiskRow(device=device, device_major=int(major), device_minor=int(minor), **fields)

    def _is_whole(self, name: bytes) -> bool:
        if name not in self._whole:
            # sysfs writes a slash in a name as an exclamation mark
            entry = name.decode(errors="replace").replace("/", "!")
            self._whole[name] = (self._block / entry).exists() or not self._block.is_dir()
        return self._whole[name]


class NetCollector(LineCollector):
    """One row per network interface of the host."""

    name = "net"
    kinds = ("net",)
    item = "network interfaces"

    def __init__(self, setup: Setup) -> None:
        super().__init__(SharedFile(_interface_file(setup.host)))

    def lines(self, content: bytes) -> Iterable[bytes]:
        return filter(None, content.split(b"\n")[_INTERFACE_HEADER_LINES:])

    def parse(self, line: bytes) -> NetRow:
        """One line; a name may be glued to its first number by the colon."""
        name, _, rest = line.rpartition(b":")
        counters = [int(number) for number in rest.split()]
        fields = dict(zip(_INTERFACE_COUNTERS, counters[:4] + counters[8:12], strict=True))
        return NetRow(interface=name.strip().decode(errors="replace"), **fields)


def _interface_file(host: Host) -> Path:
    """The file that speaks of the host: below another root, `net` would be that of our own namespace."""
    of_init = host.proc / "1" / "net" / "dev"
    return of_init if not host.is_this_machine and of_init.exists() else host.proc / "net" / "dev"


class PressureCollector(Collector):
    """One row per resource that the kernel knows."""

    name = "pressure"
    kinds = ("pressure",)

    def __init__(self, setup: Setup) -> None:
        self._folder = setup.host.proc / "pressure"
        paths = {resource: self._folder / resource for resource in _PRESSURED}
        self._files = {resource: KeptFile(path) for resource, path in paths.items() if path.exists()}
        self._cache = RowCache(lambda text: encode_row(parse_pressure(text)))

    def collect(self, tick: Tick) -> Rows:
        if not self._files:
            raise OSError(errno.EOPNOTSUPP, f"the kernel reports no pressure: {_PRESSURE_REMEDY}")
        rows = Rows()
        texts = [b"%b\n%b" % (resource.encode(), file.read()) for resource, file in self._files.items()]
        rows.extend("pressure", self._cache.rows(texts))
        return rows

    def capabilities(self) -> list[Capability]:
        return [
            readable(self.name, f"pressure on {resource}", self._folder / resource, _PRESSURE_REMEDY)
            for resource in _PRESSURED
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
