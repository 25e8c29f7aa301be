"""What passed through a process's network namespace, from /proc/PID/net/dev (proc_pid_net(5)).

The inode of that file is one per namespace and needs no privilege, unlike /proc/PID/ns/net. The file is not
kept open: an open one would keep the namespace, and a network card moved into it, alive after the container.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_FIRST_SIZE = 2048
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
        #: By namespace: the container seen first in it, and when that one started.
        self._owners: dict[int, tuple[str, int | None]] = {}
        self._inodes: dict[str, tuple[int, int]] = {}
        #: By namespace: what its file said, and what that means.
        self._traffic: dict[int, tuple[bytes, Traffic]] = {}
        self._seen: set[int] = set()

    def begin(self, alive: Collection[str]) -> None:
        """A new tick: forgets containers that are gone, and their namespaces: the kernel gives numbers anew."""
        self._seen = set()
        if self._inodes.keys() - alive:
            self._inodes = {name: found for name, found in self._inodes.items() if name in alive}
            self._forget_namespaces()

    def of(
        self, container_id: str, pid: int, since: int | None = None
    ) -> dict[str, int | bool | None] | None:
        """The network fields of a container that started then, by one of its processes; None when that one is gone."""
        inode = self._inode(container_id, pid)
        if inode is None:
            return None
        if inode not in self._seen:
            try:
                text = _read(f"{self._proc}/{pid}/net/dev")
            except OSError:
                return None
            self._seen.add(inode)
            if inode not in self._traffic or self._traffic[inode][0] != text:
                self._traffic[inode] = (text, parse_net_dev(text))
        # The first one seen in a namespace owns it: asked in order of age, that is the one that made it.
        owner, begun = self._owners.get(inode, ("", 0 if inode == self._host else since))
        if owner not in self._inodes:
            owner = container_id
        self._owners[inode] = owner, begun
        return self._traffic[inode][1]._asdict() | {
            "network_namespace": inode,
            "network_since": begun,
            "network_shared": inode == self._host or owner != container_id,
        }

    def _forget_namespaces(self) -> None:
        left = {inode for _, inode in self._inodes.values()}
        self._owners = {inode: found for inode, found in self._owners.items() if inode in left}
        self._traffic = {inode: found for inode, found in self._traffic.items() if inode in left}

    def _inode(self, container_id: str, pid: int) -> int | None:
        known = self._inodes.get(container_id)
        if known is not None and known[0] == pid:
            return known[1]
        inode = namespace_of(self._proc, pid)
        if known is not None and known[1] != inode:
            # Started again, in another network: what it had may be somebody else's next.
            del self._inodes[container_id]
            self._forget_namespaces()
        if inode is not None:
            self._inodes[container_id] = (pid, inode)
        return inode


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, _FIRST_SIZE)
        if len(text) < _FIRST_SIZE // 2:
            return text
        parts = [text]
        while part := os.read(descriptor, _FIRST_SIZE * 8):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
