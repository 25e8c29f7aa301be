"""What the clients of network file systems have in common: a share with its row, and who fills in its counters."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from vmsonar_archive.records import NetfsRow

from vmsonar.collectors.base import Trouble
from vmsonar.host.mounts import Mount

#: The fields of a row that are counters or tell of now.
COUNTERS = NetfsRow.__struct_fields__[NetfsRow.__struct_fields__.index("age") :]


class Share:
    """One mounted network file system."""

    def __init__(self, mount: Mount, source: str) -> None:
        self.mount = mount
        major, _, minor = mount.device.partition(b":")
        server, export = named(mount.kind, mount.source.decode(errors="replace"))
        self.row = NetfsRow(
            device_major=int(major),
            device_minor=int(minor),
            fs_type=mount.kind.decode(errors="replace"),
            mount_point=mount.point.decode(errors="replace"),
            server=server,
            export=export,
            protocol=_option(mount.options, b"vers="),
            netfs_source=source,
        )
        self.has_counters = False
        self._figures: Mapping[str, int | None] = {}

    @property
    def name(self) -> str:
        """Type and device: a gap's detail is no place for a path."""
        return f"{self.row.fs_type} {self.row.device_major}:{self.row.device_minor}"

    def tell(self, figures: Mapping[str, int | None]) -> None:
        """Takes over what its client counted, of rows' names; what is not among it is not known."""
        row = self.row
        if figures is not self._figures:  # else it has the names that it had
            self._figures = figures
            for name in COUNTERS:
                setattr(row, name, None)
        for name, value in figures.items():
            setattr(row, name, value)
        self.has_counters = True

    def forget(self) -> None:
        """Nothing is known of it now."""
        if self.has_counters:
            self.tell({})
            self.has_counters = False


class Client(ABC):
    """The counters of all shares of some types."""

    #: What rows say of where their counters are from.
    source: ClassVar[str]
    #: What `vmsonar doctor` calls it, and what helps where it may not be read.
    item: ClassVar[str]
    remedy: ClassVar[str | None] = None

    @abstractmethod
    def read(self, shares: list[Share]) -> Iterable[Trouble]:
        """Brings the rows of these shares up to date and says what is wrong; may raise OSError."""

    def close(self) -> None:  # noqa: B027 - not all hold something
        """Gives back what it holds."""


def named(kind: bytes, source: str) -> tuple[str | None, str | None]:
    """Server and export of what is mounted: `files:/export`, `//server/share`, `mgs@tcp:/fs`, `user@fsid.fs=/path`."""
    if source.startswith("//"):
        server, _, share = source[2:].partition("/")
        return server or None, share or None
    if kind == b"ceph" and "=" in source:
        server, _, export = source.partition("=")
        return server.rpartition("@")[2] or None, export or None
    server, sign, export = source.rpartition(":/")
    if sign:
        # sshfs and others put a user before the server; of Lustre the network follows it.
        user = "" if kind.startswith(b"lustre") else server.rpartition("@")[0]
        return server.removeprefix(f"{user}@") if user else server or None, f"/{export}"
    return None, source or None


def _option(options: bytes, name: bytes) -> str | None:
    found = next((each for each in options.split(b",") if each.startswith(name)), b"")
    return found.removeprefix(name).decode(errors="replace") or None
