"""Reads a control group once more when its container has ended and before it is removed (pidfd_open(2)).

When the first process of a PID namespace is gone, so are all others: what the group then counts is final.
"""

import os

from vmsonar_archive.records import ContainerRow

from vmsonar.containers.hierarchy import Group, Hierarchies
from vmsonar.containers.reader import Descriptors, GroupReader
from vmsonar.host import Host


class Endings:
    """The first processes of running containers, each held by a descriptor that tells its end."""

    def __init__(self, host: Host, limit: int) -> None:
        self._hierarchies = Hierarchies(host)
        self._limit = limit
        self._groups: dict[int, tuple[str, Group]] = {}
        self._watched: dict[str, int] = {}
        self.totals: dict[str, int] = {}

    def watch(self, container_id: str, pid: int) -> int | None:
        """Holds a container's first process; returns the descriptor to wait for."""
        if container_id in self._watched or len(self._watched) >= self._limit:
            return None
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return None
        # Only now is it certain that the process in this group is the one held.
        group = self._hierarchies.of_process(pid, container_id)
        if group is None:
            os.close(descriptor)
            return None
        self._watched[container_id] = descriptor
        self._groups[descriptor] = (container_id, group)
        self.totals.pop(container_id, None)
        return descriptor

    def ended(self, descriptor: int) -> ContainerRow | None:
        """The last reading of the container whose first process has ended; None if it came too late."""
        container_id, group = self._groups.pop(descriptor)
        del self._watched[container_id]
        os.close(descriptor)
        reader = GroupReader(container_id, group, Descriptors(0))
        if not reader.read(everything=True):
            return None
        # A zombie still counts; others left mean a shared PID namespace and a total that is not final.
        if reader.row.cpu_time is not None and (reader.row.processes or 0) <= 1:
            self.totals[container_id] = reader.row.cpu_time
        return reader.row
