"""What the clients of network file systems have in common: a share with its row, and who fills in its counters."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from vmsonar_archive.records import NetfsRow

from vmsonar.collectors.base import Trouble
from vmsonar.host.files import KeptFile
from vmsonar.host.mounts import Mount

#: The fields of a row that are counters or tell of now.
COUNTERS = NetfsRow.__struct_fields__[NetfsRow.__struct_fields__.index("age") :]


class Share:
    """One mounted network file system."""

    def __init__(self, mount: Mount, source: str) -> None:
        self.mount = mount
        major, _, minor = mount.device.partition(b":")
        server, export = named(mount.kind, mount.source.decode(errors="replace"))
        versions = (each for each in mount.options.split(b",") if each.startswith(b"vers="))
        self.row = NetfsRow(
            device_major=int(major),
            device_minor=int(minor),
            fs_type=mount.kind.decode(errors="replace"),
            mount_point=mount.point.decode(errors="replace"),
            server=server,
            export=export,
            protocol=next(versions, b"")[5:].decode(errors="replace") or None,
            netfs_source=source,
        )
        #: Type and device: a gap's detail is no place for a path.
        self.name = f"{self.row.fs_type} {self.row.device_major}:{self.row.device_minor}"
        self.has_counters = False
        self._figures: Mapping[str, int | None] = {}

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

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds."""


class FolderClient(Client):
    """A client that has files of their own for each share, where they can be told apart."""

    def __init__(self) -> None:
        self._shares: list[Share] = []
        self._files: dict[Share, list[KeptFile]] = {}

    @abstractmethod
    def find(self, share: Share, shares: list[Share]) -> list[Path] | str:
        """The files of a share among these, or the reason of the gap why there are none."""

    @abstractmethod
    def told(self, contents: list[bytes]) -> dict[str, int | None]:
        """What they tell; raises ValueError where their form is another."""

    def read(self, shares: list[Share]) -> Iterator[Trouble]:
        if shares is not self._shares:
            self.close()
            self._shares = shares
        for share in shares:
            if share not in self._files:
                found = self.find(share, shares)
                if isinstance(found, str):
                    share.forget()
                    yield found, f"{share.name}: {_WHY[found]}"
                    continue
                self._files[share] = [KeptFile(path) for path in found]
            try:
                share.tell(self.told([file.read() for file in self._files[share]]))
            except (OSError, ValueError) as error:
                share.forget()
                self._shares = []  # mounted anew, perhaps: look again at the next sample
                if isinstance(error, OSError):
                    yield "io_error", f"{share.name}: {error.strerror}"
                else:
                    yield "format", f"{share.name}: another form than any that is known"

    def close(self) -> None:
        for files in self._files.values():
            for file in files:
                file.close()
        self._files = {}


_WHY = {
    "permission": "no counters that this user may read",
    "ambiguous": "counters of several mounts, which name none of them",
}


def named(kind: bytes, source: str) -> tuple[str | None, str | None]:
    """Server and export of what is mounted: `files:/export`, `//server/share`, `mgs@tcp:/fs`, `user@fsid.fs=/path`."""
    if source.startswith("//"):
        server, _, export = source[2:].partition("/")
    elif kind == b"ceph" and "=" in source:
        server, _, export = source.partition("=")
    elif ":/" in source:
        server, _, export = source.rpartition(":/")
        export = f"/{export}"
    else:
        server, export = "", source
    # A user stands before the server; of Lustre the network follows it.
    return (server if kind.startswith(b"lustre") else server.rpartition("@")[2]) or None, export or None
