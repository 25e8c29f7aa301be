"""FUSE file systems: all that the kernel counts is how many requests wait (Documentation/filesystems/fuse.rst)."""

from collections.abc import Iterator

from vmsonar.collectors.base import Trouble
from vmsonar.collectors.netfs.client import Client, Share
from vmsonar.host.files import counter
from vmsonar.host.roots import Host


class FuseClient(Client):
    """A folder for each mount, by the minor number of its device; its owner and root may read it."""

    source = "fuse"
    item = "requests to FUSE file systems"
    remedy = "only root and whoever mounted them may read that: run the recorder as root, or do without"

    def __init__(self, host: Host) -> None:
        self._root = host.sys / "fs/fuse/connections"

    def read(self, shares: list[Share]) -> Iterator[Trouble]:
        for share in shares:
            share.forget()
            try:
                waiting = (self._root / str(share.row.device_minor) / "waiting").read_bytes()
                share.tell({"in_flight": counter(waiting)})
            except OSError:
                yield "permission", "requests to FUSE file systems are shown to root and to who mounted them"
            except ValueError:
                yield "format", f"{share.name}: waiting is no number"
