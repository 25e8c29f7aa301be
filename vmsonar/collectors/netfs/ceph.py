"""CephFS clients of the kernel, from debugfs, which is root's (metric_show of fs/ceph/debugfs.c).

Up to Linux 5.15 one file `metrics`, later a folder with `latency` and `size`. Times are averages since the mount, of
which no sum can be made that never falls: they are not recorded.
"""

import re
from pathlib import Path

from vmsonar.collectors.netfs.client import FolderClient, Share
from vmsonar.host.files import counter, listed
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
    if not told:
        raise ValueError("no table")
    return told


class CephClient(FolderClient):
    """A folder for each client: the cluster's id and the client's number."""

    source = "ceph"
    item = "CephFS clients"
    remedy = "only root may read debugfs: run the recorder as root, or do without"

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._root = host.sys / "kernel/debug/ceph"

    def find(self, share: Share, shares: list[Share]) -> list[Path] | str:
        folders = listed(self._root)
        if len(folders) > 1:  # the newer form of a source names the cluster
            folders = [
                each for each in folders if each.name.partition(".client")[0].encode() in share.mount.source
            ]
            if len(folders) != 1:
                return "ambiguous"
        if not folders or len(shares) > len(listed(self._root)):
            return "ambiguous" if folders else "permission"
        metrics = folders[0] / "metrics"
        return [metrics / "latency", metrics / "size"] if metrics.is_dir() else [metrics]

    def told(self, contents: list[bytes]) -> dict[str, int | None]:
        return parse_metrics(b"".join(contents))
