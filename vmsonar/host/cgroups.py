"""Which container, batch job and unit a process is in, from /proc/PID/cgroup (cgroups(7))."""

import re
from collections.abc import Iterator
from typing import NamedTuple

# A full id is 64 hexadecimal digits: bare below the engine's own group, or with the engine's prefix.
_CONTAINER = re.compile(
    r"/(?:[^/:]*:)?(?:(?P<prefix>[a-z][a-z_-]*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)", re.ASCII
)
# Up to 25.11 the group is named after the job's number, from 26.05 on after its SLUID. A step daemon has a group beside
# that of the tasks.
_SLURM = re.compile(
    r"/(?:[^/]*slurmstepd\.scope|slurm(?:_[^/]*)?/uid_\d+)/"
    r"(?:job_(?P<job>\d{1,10})|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{8,24}))(?=/|$)"
    r"(?:/step_(?P<step>\w{1,24})(?=/|$)(?:(?P<daemon>/slurm$)|(?:/user)?/task_(?P<task>\d{1,9})(?=/|$))?)?",
    re.ASCII,
)
# Below their own manager users name groups as they like.
_USERS_OWN = re.compile(r"/user(?:\.slice|@\d+\.service)/", re.ASCII)
_POD = re.compile(r"/kubepods[^/]*/(?:[^/]*/)?[^/]*pod[0-9a-f_-]{32,36}(?:\.slice)?(?=/|$)", re.ASCII)
_UNIT = re.compile(r"/(?P<name>[^/]+)\.(?P<type>service|scope)(?=/|$)")

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


class BatchStep(NamedTuple):
    """The step of a batch job that a process works for, by its number or its SLUID, and what told it.

    The task is its number in the whole step, on whatever node: the rank of MPI, as a rule.
    """

    job: str | None
    step: str | None
    sluid: str | None = None
    source: str = "cgroup"
    task: int | None = None


class Unit(NamedTuple):
    """A control group that people have a name for and that is no container; its kind is one of UNITS."""

    kind: str
    path: str


#: Kinds of units: jobs and steps of Slurm, services, login sessions and other scopes of systemd, Kubernetes' pods.
UNITS = ("slurm", "service", "session", "scope", "pod")


class Membership(NamedTuple):
    """Where a process belongs; `path` ends at the container's own group, where there is one."""

    container_id: str | None
    engine: str | None
    batch: BatchStep | None
    path: str | None
    #: The groups that its memory, its tasks and its CPU time are charged to.
    charged: tuple[str | None, ...] = ()
    units: tuple[Unit, ...] = ()


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
    # With v1 only some controllers have groups for tasks.
    steps = (told for path in distinct if (told := batch_step(path)) is not None)
    batch = max(steps, key=lambda told: told.task is not None, default=None)
    charged = tuple(by_controller.get(name, by_controller.get("")) for name in CHARGED)
    units = tuple(dict.fromkeys(unit for path in distinct for unit in _units_in(path)))
    if found is None:
        return Membership(None, None, batch, _own_path(by_controller), charged, units)
    return Membership(found["id"], _engine(found), batch, found.string[: found.end()], charged, units)


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


def batch_step(path: str) -> BatchStep | None:
    """The innermost one; a step daemon works for no job."""
    told = [match for match in _slurm_in(path) if not match["daemon"]]
    if not told:
        return None
    job, step, sluid, task = told[-1].group("job", "step", "sluid", "task")
    return BatchStep(job, step, sluid, task=int(task) if task else None)


def _slurm_in(path: str) -> list[re.Match[str]]:
    return [] if _USERS_OWN.search(path) else list(_SLURM.finditer(path))


def _units_in(path: str) -> Iterator[Unit]:
    """The units on a path, the inner ones first; of systemd's own the innermost that is around no container."""
    for match in _slurm_in(path):
        if match["step"]:
            yield Unit("slurm", path[: match.end("step")])
        yield Unit("slurm", path[: match.end("job") if match["job"] else match.end("sluid")])
        return
    if (pod := _POD.search(path)) is not None:
        yield Unit("pod", path[: pod.end()])
    elif next(_containers_in(path), None) is None:
        for match in list(_UNIT.finditer(path))[-1:]:
            kind = (
                "session"
                if match["type"] == "scope" and match["name"].startswith("session-")
                else match["type"]
            )
            yield Unit(kind, path[: match.end()])


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
