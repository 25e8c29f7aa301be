"""Free loopback ports for servers that cannot choose their own, and who can be reached where."""

import os
import random
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

# Below the range that the kernel hands to clients (ip(7), ip_local_port_range): a client that keeps calling a
# stopped server on a port of that range may in the end connect to itself, and then the server cannot return.
FIRST, LAST = 20000, 32000


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports that were free just now: all are held at once before any is released."""
    with ExitStack() as held:
        return [_hold_one(held) for _ in range(count)]


def _hold_one(held: ExitStack) -> int:
    for _ in range(200):
        holder = held.enter_context(socket.socket())
        port = random.randrange(FIRST, LAST)
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise OSError(f"no free port between {FIRST} and {LAST}")


def accepts(port: int) -> bool:
    """Does a server accept connections on this port?"""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def listening(pids: Iterable[int]) -> list[str]:
    """The sockets of these processes that others can reach: listening ones, and UDP with a port (proc(5))."""
    pids = list(pids)
    own = {target for pid in pids for target in _open_files(pid)}
    found = []
    for name, column, inode in (("tcp", 3, 9), ("tcp6", 3, 9), ("udp", 3, 9), ("udp6", 3, 9), ("unix", 3, 6)):
        for line in Path(f"/proc/{pids[0]}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            # LISTEN, a UDP socket that is not connected, SO_ACCEPTCON
            is_open = fields[column] in ("0A", "07", "00010000")
            if is_open and f"socket:[{fields[inode]}]" in own:
                found.append(f"{name} {fields[1]}")
    return found


def _open_files(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(link)
