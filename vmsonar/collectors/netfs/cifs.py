"""SMB clients of the kernel, from /proc/fs/cifs/Stats (cifs_stats_proc_show of fs/smb/client/cifs_debug.c)."""

import re
from collections.abc import Iterator

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.host.files import KeptFile, counter
from vmsonar.host.roots import Host

_SECTION = re.compile(rb"^\d+\) (\\\\\S+).*$", re.MULTILINE)
#: SMB 2 and 3; what SMB 1 counts has another form, and is not read.
_COUNTED = re.compile(rb"^(\w+): (\d+) (?:total|sent) (\d+) failed", re.MULTILINE)
_MOVED = re.compile(rb"^Bytes read: (\d+) +Bytes written: (\d+)", re.MULTILINE)
_IN_FLIGHT = re.compile(rb"^Operations \(MIDs\): (\d+)", re.MULTILINE)
_RECONNECTS = re.compile(rb"^(\d+) session (\d+) share reconnects", re.MULTILINE)
_CLASSES = {
    b"Reads": "read",
    **dict.fromkeys((b"Writes", b"Flushes"), "write"),
    **dict.fromkeys(b"Creates Closes QueryDirectories QueryInfos SetInfos Locks".split(), "metadata"),
}


def parse_share(section: bytes) -> dict[str, int | None]:
    """What was counted of one share; raises ValueError where nothing was."""
    moved = _MOVED.search(section)
    if moved is None:
        raise ValueError("no bytes")
    counted = [(name, counter(total), counter(failed)) for name, total, failed in _COUNTED.findall(section)]
    sums = dict.fromkeys(("read", "write", "metadata", "other"), 0)
    for name, total, _ in counted:
        sums[_CLASSES.get(name, "other")] += total
    return {
        "server_read_bytes": counter(moved[1]),
        "server_write_bytes": counter(moved[2]),
        **{f"{name}_operations": total for name, total in sums.items()},
        "errors": sum(failed for *_, failed in counted),
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
