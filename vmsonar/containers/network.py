"""What passed through a process's network namespace, from /proc/PID/net/dev (proc_pid_net(5)).

The inode of that file is one per namespace and needs no privilege, unlike /proc/PID/ns/net. The file is not
kept open: an open one would keep the namespace, and a network card moved into it, alive after the container.
"""

import os
from pathlib import Path
from typing import NamedTuple

_READ_SIZE = 65536
# Packets of an inner engine pass the namespace's own interface as well.
_INNER = ("veth", "docker", "br-", "cni", "podman")


class Traffic(NamedTuple):
    """Totals of one namespace."""

    received_bytes: int
    received_packets: int
    sent_bytes: int
    sent_packets: int


def parse_net_dev(text: bytes) -> Traffic:
    """Sums the interfaces; loopback and what only passes packets on inside are left out."""
    totals = [0, 0, 0, 0]
    for line in text.decode("utf-8", "replace").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        words = numbers.split()
        if len(words) < 10 or name.strip() == "lo" or name.strip().startswith(_INNER):
            continue
        for place, column in enumerate((0, 1, 8, 9)):
            totals[place] += int(words[column])
    return Traffic(*totals)


def namespace_of(proc: Path, pid: int | str) -> int | None:
    """A number that is the same for processes in the same network namespace."""
    try:
        return os.stat(f"{proc}/{pid}/net/dev").st_ino
    except OSError:
        return None


class Networks:
    """Reads each namespace once per tick, however many containers share it."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._host = namespace_of(proc, 1) or namespace_of(proc, "self")
        self._owners: dict[int, str] = {}
        self._traffic: dict[int, Traffic] = {}
        self._texts: dict[int, bytes] = {}
        self._seen: set[int] = set()

    def begin(self, alive: set[str]) -> None:
        """A new tick: forgets namespaces that nobody was seen in, and owners that are gone."""
        self._traffic = {inode: self._traffic[inode] for inode in self._seen if inode in self._traffic}
        self._texts = {inode: self._texts[inode] for inode in self._traffic}
        self._owners = {inode: owner for inode, owner in self._owners.items() if owner in alive}
        self._seen = set()

    def of(self, container_id: str, pid: int) -> dict[str, int | bool] | None:
        """The network fields of a container, by one of its processes; None when that one is gone."""
        try:
            descriptor = os.open(f"{self._proc}/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            inode = os.fstat(descriptor).st_ino
            if inode not in self._seen:
                self._update(inode, os.read(descriptor, _READ_SIZE))
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return self._fields(container_id, inode)

    def _update(self, inode: int, text: bytes) -> None:
        self._seen.add(inode)
        if self._texts.get(inode) != text:
            self._texts[inode] = text
            self._traffic[inode] = parse_net_dev(text)

    def _fields(self, container_id: str, inode: int) -> dict[str, int | bool]:
        # The first one seen in a namespace owns it: asked in order of age, that is the one that made it.
        owner = self._owners.setdefault(inode, container_id)
        shared = inode == self._host or owner != container_id
        return self._traffic[inode]._asdict() | {"network_namespace": inode, "network_shared": shared}
