"""SMB clients of the kernel, from /proc/fs/cifs/Stats (cifs_stats_proc_show of fs/smb/client/cifs_debug.c)."""

import re
from collections.abc import Iterator

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.host.files import KeptFile, counter
from vmsonar.host.roots import Host

_SECTION = re.compile(rb"^\d+\) (\\\\\S+).*$", re.MULTILINE)
#: SMB 2 and 3: `Reads: 5 total 1 failed`.
_COUNTED = re.compile(rb"^(\w+): (\d+) (?:total|sent) (\d+) failed", re.MULTILINE)
_MOVED = re.compile(rb"^Bytes read: (\d+) +Bytes written: (\d+)", re.MULTILINE)
#: SMB 1: `Reads: 5 Bytes: 4096`, and other words before their numbers.
_OLD_MOVED = re.compile(rb"^(Reads|Writes): +(\d+) Bytes: (\d+)", re.MULTILINE)
_OLD_COUNTED = re.compile(rb"(\w+):? (\d+)")
_IN_FLIGHT = re.compile(rb"^Operations \(MIDs\): (\d+)", re.MULTILINE)
_RECONNECTS = re.compile(rb"^(\d+) session (\d+) share reconnects", re.MULTILINE)
_METADATA = frozenset(
    b"Creates Closes QueryDirectories QueryInfos SetInfos Locks Opens Deletes Mkdirs Rmdirs Renames HardLinks Symlinks "
    b"FindFirst FNext FClose".split()
)
_WRITES = frozenset((b"Writes", b"Flushes"))


def parse_share(section: bytes) -> dict[str, int | None]:
    """What was counted of one share; raises ValueError where nothing was."""
    counted = {name: (counter(total), counter(failed)) for name, total, failed in _COUNTED.findall(section)}
    moved = _MOVED.search(section)
    if moved is None:
        return _parse_old(section)
    metadata = sum(total for name, (total, _) in counted.items() if name in _METADATA)
    writes = sum(total for name, (total, _) in counted.items() if name in _WRITES)
    reads = counted[b"Reads"][0] if b"Reads" in counted else None
    every = sum(total for total, _ in counted.values())
    return {
        "server_read_bytes": counter(moved[1]),
        "server_write_bytes": counter(moved[2]),
        "read_operations": reads,
        "write_operations": writes,
        "metadata_operations": metadata,
        "other_operations": None if reads is None else every - metadata - writes - reads,
        "errors": sum(failed for _, failed in counted.values()),
    }


def _parse_old(section: bytes) -> dict[str, int | None]:
    moved = {name: (counter(times), counter(size)) for name, times, size in _OLD_MOVED.findall(section)}
    if len(moved) != 2:
        raise ValueError("no bytes")
    words = _OLD_COUNTED.findall(section)
    return {
        "read_operations": moved[b"Reads"][0],
        "server_read_bytes": moved[b"Reads"][1],
        "write_operations": moved[b"Writes"][0]
        + sum(counter(count) for name, count in words if name == b"Flushes"),
        "server_write_bytes": moved[b"Writes"][1],
        "metadata_operations": sum(counter(count) for name, count in words if name in _METADATA),
    }


class CifsClient(Client):
    """One file tells of all shares by their names."""

    source = "cifs"
    item = "SMB shares"
    remedy = "a kernel with CONFIG_CIFS_STATS, or do without"

    def __init__(self, host: Host) -> None:
        self._file = KeptFile(host.proc / "fs/cifs/Stats")

    def read(self, shares: list[Share]) -> Iterator[Trouble]:
        content = self._file.read()
        head, *parts = _SECTION.split(content)
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        common: dict[str, int | None] = {}
        if in_flight := _IN_FLIGHT.search(head):
            common["in_flight"] = int(in_flight[1]) % (1 << 32)
        if reconnects := _RECONNECTS.search(head):
            common["connects"] = int(reconnects[1]) % (1 << 32)
        for share in shares:
            name = _share_name(share)
            # Mounts of one share have one set of counters: the first has them.
            section = sections.pop(next((each for each in sections if each.lower() == name), b""), None)
            share.forget()
            if section is None:
                yield (
                    "missing",
                    f"{share.name}: no counters of its own, or those of another mount of the share",
                )
                continue
            try:
                share.tell(parse_share(section) | common)
            except ValueError:
                yield "format", f"{share.name}: Stats has another form"

    def close(self) -> None:
        self._file.close()


def _share_name(share: Share) -> bytes:
    """As Stats writes it: `\\\\server\\share`, without a folder below it."""
    words = share.mount.source.strip(b"/").split(b"/")[:2]
    return (b"\\\\" + b"\\".join(words)).lower()
