"""Lustre clients: calls by llite, requests to targets by osc and mdc.

Up to 2.11 the counters lie below /proc/fs/lustre, later in debugfs, which is root's (Lustre Operations Manual,
"Lustre Parameters"). A line is `NAME COUNT samples [UNIT] MIN MAX SUM SUMSQUARE`.
"""

import re
from collections.abc import Iterable, Iterator

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.host.files import KeptFile, counter, listed
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


def requests(targets: Iterable[dict[bytes, Line]]) -> dict[str, int | None]:
    """What went to the targets, all together."""
    every = list(targets)
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


class LustreClient(Client):
    """A folder for each mount and for each of its targets, which have the same number behind their names."""

    source = "llite"
    item = "Lustre clients"
    remedy = "from Lustre 2.12 on only root may read debugfs: run the recorder as root, or do without"

    def __init__(self, host: Host) -> None:
        self._roots = (host.proc / "fs/lustre", host.sys / "kernel/debug/lustre")
        self._shares: list[Share] = []
        #: The files of each share: its own and those of its targets.
        self._found: dict[Share, tuple[KeptFile, list[KeptFile]]] = {}

    def read(self, shares: list[Share]) -> Iterator[Trouble]:
        if shares is not self._shares:
            self._shares = shares
            self._look(shares)
        for share in shares:
            if share not in self._found:
                share.forget()
                yield self._why(share)
                continue
            own, targets = self._found[share]
            try:
                told = calls(parse_stats(own.read()))
                told |= requests(parse_stats(target.read()) for target in targets) if targets else {}
                share.tell(told)
            except ValueError:
                share.forget()
                yield "format", f"{share.name}: stats of llite, osc or mdc have another form"
            except OSError as error:
                share.forget()
                self._shares = []  # mounted anew, perhaps: look again at the next sample
                yield "io_error", f"{share.name}: {error.strerror}"

    def _look(self, shares: list[Share]) -> None:
        """Finds the files; two mounts of one file system cannot be told apart."""
        self.close()
        folders = [folder for root in self._roots for folder in listed(root / "llite")]
        for share in shares:
            prefix = f"{_name(share)}-"
            mine = [folder for folder in folders if folder.name.startswith(prefix)]
            if len(mine) == 1 and sum(_name(other) == _name(share) for other in shares) == 1:
                number_of = mine[0].name.removeprefix(prefix)
                root = mine[0].parent.parent
                targets = [
                    KeptFile(folder / "stats")
                    for kind in ("osc", "mdc")
                    for folder in listed(root / kind)
                    if folder.name.endswith(f"-{number_of}") and folder.name.startswith(prefix)
                ]
                self._found[share] = (KeptFile(mine[0] / "stats"), targets)

    def _why(self, share: Share) -> Trouble:
        if sum(_name(other) == _name(share) for other in self._shares) > 1:
            return "ambiguous", f"{share.name}: mounted more than once, and its counters name no mount"
        return (
            "permission",
            f"{share.name}: no counters below /proc/fs/lustre, and none in debugfs for this user",
        )

    def close(self) -> None:
        for own, targets in self._found.values():
            for file in (own, *targets):
                file.close()
        self._found = {}


def _name(share: Share) -> str:
    """The name of the file system: the first part of the export."""
    return (share.row.export or "").strip("/").partition("/")[0]
