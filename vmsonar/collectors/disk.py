"""Block devices: /proc/diskstats (Documentation/admin-guide/iostats.rst)."""

from pathlib import Path

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import DISK_COUNTERS, Capability, DiskRow

from vmsonar.collectors.base import Collector, RowCache, Rows, Setup, Tick, readable
from vmsonar.host.files import KeptFile

_PLACEHOLDERS = (b"loop", b"ram", b"zram", b"nbd")


def parse_disk(line: bytes) -> DiskRow:
    """One line; the columns that an older kernel lacks stay unknown."""
    major, minor, name, *counters = line.split()
    fields = dict(zip(DISK_COUNTERS, map(int, counters), strict=False))
    return DiskRow(
        device=name.decode(errors="replace"), device_major=int(major), device_minor=int(minor), **fields
    )


def is_unused_placeholder(line: bytes) -> bool:
    """Whether it is one of the devices that a kernel sets up in advance, and nothing ever used it."""
    _, _, name, *counters = line.split()
    return name.startswith(_PLACEHOLDERS) and not any(map(int, counters))


class DiskCollector(Collector):
    """One row per whole device; partitions are left out, because they would count twice."""

    name = "disk"
    kinds = ("disk",)

    def __init__(self, setup: Setup) -> None:
        self._file = KeptFile(setup.host.proc / "diskstats")
        self._block: Path = setup.host.sys / "block"
        self._cache = RowCache(self._encode)
        self._whole: dict[bytes, bool] = {}

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        encoded = self._cache.rows(filter(None, self._file.read().split(b"\n")))
        rows.extend("disk", [row for row in encoded if row])
        return rows

    def _encode(self, line: bytes) -> bytes:
        """The row, or nothing for what is not recorded."""
        if not self._is_whole(line.split(None, 3)[2]) or is_unused_placeholder(line):
            return b""
        return encode_row(parse_disk(line))

    def _is_whole(self, name: bytes) -> bool:
        if name not in self._whole:
            # sysfs writes a slash in a name as an exclamation mark
            entry = name.decode(errors="replace").replace("/", "!")
            self._whole[name] = (self._block / entry).exists() or not self._block.is_dir()
        return self._whole[name]

    def capabilities(self) -> list[Capability]:
        return [readable(self.name, "block devices", self._file.path)]

    def close(self) -> None:
        self._file.close()


def make(setup: Setup) -> Collector:
    return DiskCollector(setup)
