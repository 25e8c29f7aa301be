"""NFS clients, from /proc/self/mountstats (show_stats of fs/nfs/super.c, rpc_clnt_show_stats of net/sunrpc/stats.c)."""

from collections.abc import Iterator
from operator import add, sub
from pathlib import Path
from typing import Annotated

import msgspec

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.host.files import MOST_COUNTED, KeptFile
from vmsonar.host.mounts import plain

#: The classes of operations, and the fields of rows that each has.
READ, WRITE, METADATA, OTHER = range(4)
_FIELDS = [
    (f"{name}_operations", f"{name}_queue_time", f"{name}_round_trip_time", f"{name}_execute_time")
    for name in ("read", "write", "metadata")
]
_CLASSES = {
    **dict.fromkeys((b"READ", b"READ_PLUS"), READ),
    **dict.fromkeys((b"WRITE", b"COMMIT"), WRITE),
    **dict.fromkeys(
        b"""NULL SEQUENCE RENEW EXCHANGE_ID CREATE_SESSION DESTROY_SESSION DESTROY_CLIENTID RECLAIM_COMPLETE SETCLIENTID
        SETCLIENTID_CONFIRM BIND_CONN_TO_SESSION GET_LEASE_TIME SECINFO SECINFO_NO_NAME FSID_PRESENT FS_LOCATIONS
        TEST_STATEID FREE_STATEID LAYOUTGET LAYOUTCOMMIT LAYOUTRETURN LAYOUTSTATS LAYOUTERROR GETDEVICEINFO
        GETDEVICELIST COPY COPY_NOTIFY OFFLOAD_CANCEL CLONE SEEK ALLOCATE DEALLOCATE""".split(),
        OTHER,
    ),
}
#: A line counts operations, transmissions, major timeouts, bytes sent and received, milliseconds in the queue, until
#: the reply, and from the call to its end; since Linux 5.3 errors too.
_WIDTH = 9
_NOTHING = [0] * _WIDTH
_BYTES = (
    *("read_bytes", "write_bytes", "direct_read_bytes", "direct_write_bytes"),
    *("server_read_bytes", "server_write_bytes"),
)
#: Where the line of a transport counts connections.
_CONNECTS = {b"tcp": 2, b"rdma": 2, b"local": 1}


class Statistics:
    """The sums over one mount, kept from sample to sample: only lines that changed are read."""

    def __init__(self, lines: list[bytes]) -> None:
        self.size = len(lines)
        self._lines = [b""] * self.size
        #: The lines that count operations: class and numbers by place; and those that count connections.
        self._operations: dict[int, tuple[int, list[int]]] = {}
        self._connects: dict[int, int] = {}
        self._sums = [_NOTHING] * 4
        self._has_errors = True
        self._figures: dict[str, int | None] = {}

    def take(self, lines: list[bytes]) -> dict[str, int | None]:
        """The figures of a section, always the same mapping; raises ValueError where its form is another."""
        before = self._lines
        for place, line in enumerate(lines):
            if line != before[place]:
                self._take(place, line)
        self._lines = lines
        return self._told()

    def _take(self, place: int, line: bytes) -> None:
        if place in self._operations:
            self._add(place, line[line.index(b":") + 1 :])
            return
        name, _, rest = line.lstrip().partition(b":")
        if name == b"age":
            (self._figures["age"],) = numbers(rest)
        elif name == b"bytes":
            self._figures |= zip(_BYTES, numbers(rest), strict=False)
        elif name == b"xprt":
            kind, *words = rest.split()
            if kind in _CONNECTS:
                (self._connects[place],) = numbers(words[_CONNECTS[kind]])
        elif name.isupper() and b"/" not in rest:
            self._operations[place] = _CLASSES.get(name, METADATA), _NOTHING
            self._add(place, rest)

    def _add(self, place: int, text: bytes) -> None:
        new = numbers(text)
        if len(new) < _WIDTH:
            if len(new) < _WIDTH - 1:
                raise ValueError(f"too few counters: {text[:80]!r}")
            self._has_errors = False
            new.append(0)
        own, old = self._operations[place]
        self._sums[own] = list(map(add, self._sums[own], map(sub, new, old)))
        self._operations[place] = own, new

    def _told(self) -> dict[str, int | None]:
        found, sums = self._figures, self._sums
        for (operations, queue, round_trip, execute), own in zip(_FIELDS, sums, strict=False):
            found[operations], found[queue], found[round_trip], found[execute] = own[0], *own[5:8]
        found["other_operations"] = sums[OTHER][0]
        read, write, metadata, other = sums
        count, sent, timeouts, errors = (
            read[at] + write[at] + metadata[at] + other[at] for at in (0, 1, 2, 8)
        )
        # A call that never found a connection was not sent at all.
        found["retransmissions"] = max(sent - count, 0)
        found["timeouts"] = timeouts
        found["errors"] = errors if self._has_errors else None
        found["connects"] = sum(self._connects.values()) if self._connects else None
        return found


class NfsClient(Client):
    """One file tells of all mounts; it asks no server."""

    source = "mountstats"
    item = "NFS shares"

    def __init__(self, mounts: Path) -> None:
        self._file = KeptFile(mounts.with_name("mountstats"))
        self._statistics: dict[Share, Statistics] = {}

    def read(self, shares: list[Share]) -> Iterator[Trouble]:
        # All about a mount is one record, and longer than a page.
        sections = sections_of(self._file.read(surely_all=0))
        before, self._statistics = self._statistics, {}
        for share in shares:
            lines = sections.get((share.mount.source, share.mount.point))
            if lines is None:
                share.forget()
                yield "missing", f"{share.name}: not in mountstats"
                continue
            statistics = before.get(share)
            if statistics is None or statistics.size != len(lines):
                statistics = Statistics(lines)
            try:
                share.tell(statistics.take(lines))
                self._statistics[share] = statistics
            except (ValueError, IndexError):
                share.forget()
                yield "format", f"{share.name}: mountstats has another form"

    def close(self) -> None:
        self._file.close()


def sections_of(content: bytes) -> dict[tuple[bytes, bytes], list[bytes]]:
    """The lines about each NFS mount, by what is mounted and where."""
    found = {}
    for section in (b"\n" + content).split(b"\ndevice ")[1:]:
        head, _, body = section.partition(b"\n")
        words = head.split(b" ")
        # SOURCE mounted on POINT with fstype TYPE statvers=VERSION
        if len(words) == 8 and words[7].startswith(b"statvers="):
            found[plain(words[0]), plain(words[3])] = body.split(b"\n")
    return found


_decode = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, lt=MOST_COUNTED)]]).decode


def numbers(text: bytes) -> list[int]:
    """Counters with blanks between them; raises ValueError for what is none. Thrice as fast as int."""
    return _decode(b"[%b]" % text.strip().replace(b" ", b","))
