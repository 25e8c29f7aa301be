"""What of containers can be seen here, what not, and what would change that."""

import os
from importlib.util import find_spec

from vmsonar_archive.records import Capability

from vmsonar.collectors.setup import Setup
from vmsonar.containers.hierarchy import Hierarchies
from vmsonar.containers.link import COMPANION_SOCKET
from vmsonar.engine.sockets import engine_sockets

_COLLECTOR = "container"


def container_capabilities(setup: Setup, hierarchies: Hierarchies) -> list[Capability]:
    """The numbers, and the names."""
    return [_numbers(hierarchies.mode), _io(hierarchies), _names(setup)]


def _numbers(mode: str | None) -> Capability:
    item = "CPU and memory of containers"
    if mode is None:
        return _missing(item, "no control groups are mounted", "mount cgroup2 on /sys/fs/cgroup")
    return Capability(collector=_COLLECTOR, item=f"{item} (cgroup {mode})", available=True)


def _io(hierarchies: Hierarchies) -> Capability:
    item = "I/O of containers"
    if hierarchies.counts_io():
        return Capability(collector=_COLLECTOR, item=item, available=True)
    reason = "with cgroup v1 this kernel counts only disks that have a throttle rule"
    return _missing(item, reason, "boot with cgroup v2: systemd.unified_cgroup_hierarchy=1")


def _names(setup: Setup) -> Capability:
    item = "names, images and events of containers"
    if setup.config.containers.engine == "none":
        return _missing(item, "switched off by containers.engine: none", "set containers.engine: auto")
    if os.access(setup.host.run / COMPANION_SOCKET, os.R_OK | os.W_OK):
        return Capability(collector=_COLLECTOR, item=item, available=True)
    sockets = engine_sockets(setup.config.containers, setup.host.run)
    there = [path for path in sockets if os.path.exists(path)]
    if not there:
        remedy = "start Docker, or enable podman.socket, or set containers.socket"
        return _missing(item, f"no engine socket: {', '.join(sockets)}", remedy)
    if not any(os.access(path, os.R_OK | os.W_OK) for path in there):
        remedy = "enable the companion's unit, vmsonar-containers.service: it alone is in the engine's group"
        return _missing(item, f"no permission to use {there[0]}, and no companion runs", remedy)
    if find_spec("docker") is None:
        return _missing(item, "the docker SDK is not installed", "pip install 'vmsonar[docker]'")
    return Capability(collector=_COLLECTOR, item=item, available=True)


def _missing(item: str, reason: str, remedy: str) -> Capability:
    return Capability(collector=_COLLECTOR, item=item, available=False, reason=reason, remedy=remedy)
