"""Which container and which batch job a process is in, from /proc/PID/cgroup (cgroups(7))."""

import re
from collections.abc import Iterator
from typing import NamedTuple

# A full id is 64 hexadecimal digits: bare below the engine's own group, or with the engine's prefix.
_CONTAINER = re.compile(
    r"/(?:[^/:]*:)?(?:(?P<prefix>[a-z][a-z_-]*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)", re.ASCII
)
_SLURM = re.compile(r"/(?:[^/]*slurmstepd\.scope|slurm(?:_[^/]*)?/uid_\d+)/job_(\d+)(?=/|$)", re.ASCII)

_ENGINES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "crio",
}
# The kernel marks the path of a group that was removed under a process on its way out.
_DELETED = " (deleted)"

#: The controllers whose group may end a job, or slow it down.
CHARGED = ("memory", "pids", "cpu")


class Membership(NamedTuple):
    """Where a process belongs; `path` ends at the container's own group, where there is one."""

    container_id: str | None
    engine: str | None
    slurm_job: int | None
    path: str | None
    #: The groups that its memory, its tasks and its CPU time are charged to.
    charged: tuple[str | None, ...] = ()


def membership(text: bytes) -> Membership:
    """The container and the batch job named by the content of /proc/PID/cgroup.

    The innermost container wins: an engine may run inside another one's container.
    """
    by_controller = controller_paths(text)
    distinct = list(dict.fromkeys(by_controller.values()))
    depth, found = 0, None
    for path in distinct:
        matches = list(_containers_in(path))
        if len(matches) > depth:
            depth, found = len(matches), matches[-1]
    job = next((int(jobs[-1]) for path in distinct if (jobs := _SLURM.findall(path))), None)
    charged = tuple(by_controller.get(name, by_controller.get("")) for name in CHARGED)
    if found is None:
        return Membership(None, None, job, _own_path(by_controller), charged)
    return Membership(found["id"], _engine(found), job, found.string[: found.end()], charged)


def controller_paths(text: bytes) -> dict[str, str]:
    """The path of each v1 controller by its name, and that of the v2 hierarchy by an empty name."""
    paths = {}
    for line in text.splitlines():
        fields = line.decode("utf-8", "backslashreplace").split(":", 2)
        if len(fields) == 3:
            path = fields[2].removesuffix(_DELETED)
            paths.update(dict.fromkeys(fields[1].split(","), path))
    return paths


def container_path(path: str, container_id: str) -> str | None:
    """The part of a path that ends at the group of this container, or None if it does not pass there."""
    for match in _containers_in(path):
        if match["id"] == container_id:
            return path[: match.end()]
    return None


def _containers_in(path: str) -> Iterator[re.Match[str]]:
    # The monitor of a podman or CRI-O container has the container's id but is not in it.
    return (match for match in _CONTAINER.finditer(path) if "conmon" not in (match["prefix"] or ""))


def _engine(match: re.Match[str]) -> str:
    if match["prefix"] is not None:
        return _ENGINES.get(match["prefix"], "unknown")
    parent = match.string[: match.start()].rpartition("/")[2]
    return {"docker": "docker", "libpod_parent": "podman"}.get(parent, "unknown")


def _own_path(by_controller: dict[str, str]) -> str | None:
    """The v2 path, or that of systemd's v1 hierarchy where v2 is mounted but not used."""
    unified = by_controller.get("")
    if unified is None or unified == "/":
        return by_controller.get("name=systemd", unified)
    return unified
