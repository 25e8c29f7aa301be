"""Free loopback ports for servers that cannot choose their own."""

import random
import socket
from contextlib import ExitStack

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
