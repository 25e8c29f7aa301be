"""CephFS clients of the kernel, from debugfs, which is root's (metric_show of fs/ceph/debugfs.c).

Up to Linux 5.15 one file `metrics`, later a folder with `latency` and `size`. Times are averages since the mount, of
which no sum can be made that never falls: they are not recorded.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.host.files import KeptFile, counter, listed
from vmsonar.host.roots import Host

#: Item, total, average, least, most, and what is last: the deviation of times, the sum of sizes.
_LINE = re.compile(rb"^(read|write|metadata|copyfrom) +(\d+) +\d+ +\d+ +\d+ +(\d+)", re.MULTILINE)
_OPERATIONS = {
    b"read": "read_operations",
    b"write": "write_operations",
    b"metadata": "metadata_operations",
    b"copyfrom": "other_operations",
}
_SIZES = {b"read": "server_read_bytes", b"write": "server_write_bytes"}


def parse_metrics(content: bytes) -> dict[str, int | None]:
    """The tables of `metrics`, or of `latency` and `size` together; raises ValueError where a number is none."""
    told: dict[str, int | None] = {}
    head, sizes, tail = content.partition(b"total_sz(bytes)")
    for name, total, _ in _LINE.findall(head):
        told[_OPERATIONS[name]] = counter(total)
    for name, _, size in _LINE.findall(tail) if sizes else ():
        if name in _SIZES:
            told[_SIZES[name]] = counter(size)
    return told


class CephClient(Client):
    """A folder for each client: the cluster's id and the client's number."""

    source = "ceph"
    item = "CephFS clients"
    remedy = "only root may read debugfs: run the recorder as root, or do without"

    def __init__(self, host: Host) -> None:
        self._root = host.sys / "kernel/debug/ceph"
        self._shares: list[Share] = []
        self._folders: list[Path] = []
        self._files: dict[Path, list[KeptFile]] = {}

    def read(self, shares: list[Share]) -> Iterator[Trouble]:
        if shares is not self._shares:
            self.close()
            self._shares, self._folders = shares, listed(self._root)
        folders = self._folders
        for share in shares:
            mine = [
                folder for folder in folders if len(folders) == 1 or _cluster(folder) in share.mount.source
            ]
            share.forget()
            if not folders:
                yield "permission", f"{share.name}: no counters in debugfs for this user"
            elif len(mine) != 1 or len(shares) != len(folders):
                yield "ambiguous", f"{share.name}: several clients, whose counters name no mount"
            else:
                yield from self._read_one(share, mine[0])

    def _read_one(self, share: Share, folder: Path) -> Iterator[Trouble]:
        if folder not in self._files:
            metrics = folder / "metrics"
            paths = [metrics / "latency", metrics / "size"] if metrics.is_dir() else [metrics]
            self._files[folder] = [KeptFile(path) for path in paths]
        try:
            told = parse_metrics(b"".join(file.read() for file in self._files[folder]))
        except OSError as error:
            self._shares = []  # mounted anew, perhaps: look again at the next sample
            yield "io_error", f"{share.name}: {error.strerror}"
        except ValueError:
            yield "format", f"{share.name}: metrics have another form"
        else:
            if told:
                share.tell(told)
            else:
                yield "format", f"{share.name}: metrics have another form"

    def close(self) -> None:
        for file in chain.from_iterable(self._files.values()):
            file.close()
        self._files = {}


def _cluster(folder: Path) -> bytes:
    return folder.name.partition(".client")[0].encode()
