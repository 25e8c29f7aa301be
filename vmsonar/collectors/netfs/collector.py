"""Network file systems: what the client of each counted, at every sample; the table of mounts says which there are."""

from collections.abc import Iterator
from contextlib import suppress

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles, capability, readable
from vmsonar.collectors.netfs.ceph import CephClient
from vmsonar.collectors.netfs.cifs import CifsClient
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.collectors.netfs.lustre import LustreClient
from vmsonar.collectors.netfs.nfs import NfsClient
from vmsonar.host.mounts import Mount, parse_mounts

#: What has no counters is told once a minute.
_ROW_EVERY = 60_000_000_000
_MOST_SHARES = 64
_CLIENTS = {
    **dict.fromkeys((b"nfs", b"nfs4"), "nfs"),
    **dict.fromkeys((b"lustre", b"lustre_lite"), "lustre"),
    **dict.fromkeys((b"cifs", b"smb3"), "cifs"),
    b"ceph": "ceph",
}
_UNTOLD = "its client counts nothing, or only for root's own tools"


class NetfsCollector(Collector):
    """A row for each network file system, once, however often it is mounted."""

    name = "netfs"
    kinds = ("netfs",)

    def __init__(self, setup: Setup) -> None:
        self._table, self._clock = setup.mounts, setup.clock
        self._clients: dict[str, Client] = {
            "nfs": NfsClient(self._table.path),
            "lustre": LustreClient(setup.host),
            "ceph": CephClient(setup.host),
            "cifs": CifsClient(setup.host),
        }
        self._content = b""
        #: The shares of each client; of "" those that nobody counts.
        self._shares: dict[str, list[Share]] = {}
        self._left_out = False
        self._rows_due = 0
        self._troubles = Troubles(self.name)

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        changed = self._follow(tick.boottime)
        if not self._shares and not changed:
            return rows
        every = tick.fresh or changed or tick.boottime >= self._rows_due
        if every:
            self._rows_due = tick.boottime + _ROW_EVERY
        self._troubles.tell(list(self._read()), tick, rows)
        due = [share for own in self._shares.values() for share in own if every or share.has_counters]
        rows.extend("netfs", [encode_row(share.row) for share in due])
        return rows

    def _read(self) -> Iterator[Trouble]:
        """Brings all rows up to date; says what could not be read."""
        for name in self._shares:
            yield from self._read_of(name)
        if self._left_out:
            yield "too_many", f"no more than {_MOST_SHARES} network file systems are recorded"

    def _read_of(self, name: str) -> Iterator[Trouble]:
        if not name:
            return
        try:
            yield from self._clients[name].read(self._shares[name])
        except OSError as error:
            for share in self._shares[name]:
                share.forget()
            reason = "permission" if isinstance(error, PermissionError) else "io_error"
            yield reason, f"{self._clients[name].item}: {error.strerror}"

    def _follow(self, now: int) -> bool:
        """Takes up what was mounted and unmounted; whether there was anything."""
        content = self._table.content_at(now)
        if content is self._content:
            return False
        self._content = content
        found = shared_mounts(content)
        before = {share.mount: share for own in self._shares.values() for share in own}
        self._left_out = self._table.is_cut or len(found) > _MOST_SHARES
        shares: dict[str, list[Share]] = {}
        for mount in found[:_MOST_SHARES]:
            name = _CLIENTS.get(mount.kind, "")
            share = before.get(mount) or Share(mount, self._clients[name].source if name else "none")
            shares.setdefault(name, []).append(share)
        changed = before.keys() != {share.mount for own in shares.values() for share in own}
        if changed:
            self._shares = shares
        return changed

    def capabilities(self) -> list[Capability]:
        found = [readable(self.name, "network file systems", self._table.path)]
        with suppress(OSError):
            self._follow(self._clock.boottime_ns())
        for name, shares in self._shares.items():
            if name:
                client, why = self._clients[name], [detail for _, detail in self._read_of(name)]
                found.append(capability(self.name, client.item, *((why[0], client.remedy) if why else ())))
            else:
                kinds = sorted({share.row.fs_type or "" for share in shares})
                found += [capability(self.name, f"counters of {kind}", _UNTOLD) for kind in kinds]
        return found

    def close(self) -> None:
        self._table.close()
        for client in self._clients.values():
            client.close()


def shared_mounts(content: bytes) -> list[Mount]:
    """Each network file system once: the whole of it, at the shortest path."""
    by_device: dict[bytes, Mount] = {}
    for mount in filter(is_share, parse_mounts(content)):
        best = by_device.setdefault(mount.device, mount)
        if _order(mount) < _order(best):
            by_device[mount.device] = mount
    return list(by_device.values())


def is_share(mount: Mount) -> bool:
    """Whether somebody beyond this kernel serves it; of FUSE we cannot know where."""
    return mount.is_network or (mount.kind.startswith(b"fuse.") and mount.has_room)


def _order(mount: Mount) -> tuple[bool, int, bytes]:
    return mount.root != b"/", len(mount.point), mount.point
