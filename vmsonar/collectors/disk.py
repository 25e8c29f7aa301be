"""Block devices, from /proc/diskstats (Documentation/admin-guide/iostats.rst)."""

from collections.abc import Iterable

from vmsonar_archive.records import DISK_COUNTERS, DiskRow

from vmsonar.collectors.base import LineCollector, Setup, SharedFile

# Devices that a kernel sets up in advance.
_PLACEHOLDERS = (b"loop", b"ram", b"zram", b"nbd")


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
