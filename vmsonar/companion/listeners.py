"""The sockets of a companion: where it listens, and what its listeners hear and say."""

import os
import socket
from pathlib import Path

from vmsonar_archive.system.errors import VmsonarError


def listen_on(path: str) -> socket.socket:
    """The listening socket, open to our user and our group only: the sampler is of that group."""
    Path(path).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o117)
    try:
        server.bind(path)
    except OSError as error:
        raise VmsonarError(
            f"cannot listen on {path}: {error.strerror}: is its folder ours to write?"
        ) from None
    finally:
        os.umask(mask)
    server.listen(8)
    return server


def heard(listener: socket.socket) -> bytes | None:
    """What a listener said; None when it is gone."""
    try:
        return listener.recv(4096) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None


def sent(listener: socket.socket, backlog: bytearray) -> bool:
    """Sends what fits and keeps the rest; False when the listener is gone."""
    try:
        while backlog:
            del backlog[: listener.send(backlog)]
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True
