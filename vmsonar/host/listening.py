"""Where a server listens: an address of the network, or a UNIX socket (unix(7))."""

import os
import re
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from vmsonar_archive.system.errors import UsageError, VmsonarError

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\[\]:/]+)):(?P<port>[0-9]{1,5})")
# For a proxy in the group that the server runs in.
_SOCKET_MODE = 0o660
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port, or the path of a UNIX socket."""

    text: str
    host: str = ""
    port: int = 0
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        path = text.removeprefix("unix:")
        if path and (path != text or path.startswith("/")):
            return cls(text, path=Path(path))
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise UsageError(
                f"--listen {text}: give ADDR:PORT, such as 127.0.0.1:9798 or [::1]:9798, or unix:PATH"
            )
        return cls(text, match["six"] or match["name"], int(match["port"]))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can ask."""
        with suppress(ValueError):
            return self.path is not None or self.host == "localhost" or ip_address(self.host).is_loopback
        return False

    def bound(self) -> socket.socket:
        """A socket that listens there; one that nobody serves any more is replaced, nothing else ever."""
        try:
            if self.path is not None:
                return _bound_path(self.path)
            family, *_, place = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(place[:2], family=family, backlog=_BACKLOG)
        except OSError as error:
            # Without what Python appends: the address again, in its own notation.
            said = str(error.strerror or error).partition(" (while")[0]
            raise VmsonarError(f"cannot listen on {self.text}: {said}") from None

    def remove(self) -> None:
        """Takes a UNIX socket's name away."""
        if self.path is not None:
            with suppress(OSError):
                os.unlink(self.path)


def _bound_path(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        with socket.socket(socket.AF_UNIX) as client, suppress(ConnectionRefusedError):
            client.connect(str(path))
            raise VmsonarError(f"cannot listen on {path}: another process serves it")
        path.unlink()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    path.chmod(_SOCKET_MODE)
    server.listen(_BACKLOG)
    return server
