"""Lustre clients: calls by llite, requests to targets by osc and mdc.

Up to 2.11 the counters lie below /proc/fs/lustre, later in debugfs, which is root's (Lustre Operations Manual,
"Lustre Parameters"). A line is `NAME COUNT samples [UNIT] MIN MAX SUM SUMSQUARE`.
"""

import re
from pathlib import Path

from vmsonar.collectors.netfs.client import FolderClient, Share
from vmsonar.host.files import counter, listed
from vmsonar.host.roots import Host

#: Name, count, unit, and the sum where there is one.
_LINE = re.compile(rb"^(\w+) +(\d+) samples \[(\w+)\](?: \d+ \d+ (\d+))?", re.MULTILINE)
Line = tuple[int, bytes, int | None]
_METADATA = frozenset(
    b"open close create lookup getattr setattr truncate readdir mkdir rmdir mknod link unlink symlink rename readlink "
    b"statfs setxattr getxattr listxattr removexattr flock".split()
)
_OTHER = frozenset((b"fsync", b"ioctl", b"fallocate"))
_MICROSECONDS = (b"usec", b"usecs")


def parse_stats(content: bytes) -> dict[bytes, Line]:
    """The lines of a file, by their names; raises ValueError where a number is none."""
    return {
        name: (counter(count), unit, counter(total) if total else None)
        for name, count, unit, total in _LINE.findall(content)
    }


def calls(stats: dict[bytes, Line]) -> dict[str, int | None]:
    """What programs asked of a file system. What was never asked has no line, so that its count is 0."""
    metadata = [line for name, line in stats.items() if name in _METADATA]
    return {
        "read_bytes": _sum(stats, b"read_bytes"),
        "write_bytes": _sum(stats, b"write_bytes"),
        "read_operations": _count(stats, b"read_bytes"),
        "write_operations": _count(stats, b"write_bytes"),
        "metadata_operations": sum(line[0] for line in metadata),
        "other_operations": sum(line[0] for name, line in stats.items() if name in _OTHER),
        "read_execute_time": _milliseconds([stats[b"read"]]) if b"read" in stats else None,
        "write_execute_time": _milliseconds([stats[b"write"]]) if b"write" in stats else None,
        "metadata_execute_time": _milliseconds(metadata),
    }


def requests(every: list[dict[bytes, Line]]) -> dict[str, int | None]:
    """What went to the targets, all together."""
    waits = [stats[b"req_waittime"] for stats in every if b"req_waittime" in stats]
    return {
        "server_read_bytes": sum(_sum(stats, b"read_bytes") for stats in every),
        "server_write_bytes": sum(_sum(stats, b"write_bytes") for stats in every),
        "rpc_operations": sum(line[0] for line in waits),
        "rpc_time": _milliseconds(waits),
    }


def _sum(stats: dict[bytes, Line], name: bytes) -> int:
    return stats[name][2] or 0 if name in stats else 0


def _count(stats: dict[bytes, Line], name: bytes) -> int:
    return stats[name][0] if name in stats else 0


def _milliseconds(lines: list[Line]) -> int | None:
    """Their time; None where one of them is counted but not timed, as before 2.13."""
    if not lines or any(unit not in _MICROSECONDS or total is None for _, unit, total in lines):
        return None
    return sum(total or 0 for _, _, total in lines) // 1000


class LustreClient(FolderClient):
    """A folder for each mount and for each of its targets, which have the same number behind their names."""

    source = "llite"
    item = "Lustre clients"
    remedy = "from Lustre 2.12 on only root may read debugfs: run the recorder as root, or do without"

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._roots = (host.proc / "fs/lustre", host.sys / "kernel/debug/lustre")

    def find(self, share: Share, shares: list[Share]) -> list[Path] | str:
        name = _name(share)
        mine = [
            each
            for root in self._roots
            for each in listed(root / "llite")
            if each.name.startswith(f"{name}-")
        ]
        if len(mine) > 1 or sum(_name(other) == name for other in shares) > 1:
            return "ambiguous"
        if not mine:
            return "permission"
        number, root = mine[0].name.removeprefix(name), mine[0].parent.parent
        targets = [
            each
            for kind in ("osc", "mdc")
            for each in listed(root / kind)
            if each.name.startswith(f"{name}-") and each.name.endswith(number)
        ]
        return [folder / "stats" for folder in (mine[0], *targets)]

    def told(self, contents: list[bytes]) -> dict[str, int | None]:
        own, *targets = map(parse_stats, contents)
        return calls(own) | (requests(targets) if targets else {})


def _name(share: Share) -> str:
    """The name of the file system: the first part of the export."""
    return (share.row.export or "").strip("/").partition("/")[0]
