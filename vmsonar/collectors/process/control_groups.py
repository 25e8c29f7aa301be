"""What the kernel counts for a control group that holds one job and nothing else (cgroups(7))."""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from vmsonar.collectors.cgroup_files import V1_SOURCES, V2_SOURCES, CgroupSource, read_sources
from vmsonar.collectors.process.model import Job, Process
from vmsonar.host.cgroups import CHARGED

# Nanoseconds between two readings of everything; a job is read when it is first seen and at its end too.
_PATIENCE = 60 * 10**9
#: Read at each sample in which the job ran: these date an end, or are lost with a group that ends with its job.
_OFTEN = ("memory.events", "memory.oom_control", "memory.failcnt", "pids.events", "cpu.stat")
_RARELY = ("memory.peak", "memory.max_usage_in_bytes", "memory.max", "memory.limit_in_bytes", "pids.max")
_PEAK = "memory_charged_peak"
#: The fields of a job's row by their names in the row of a container, for each controller that counts them.
_FIELDS = {
    "memory": {"memory_peak": _PEAK}
    | {name: name for name in ("memory_limit", "memory_max_events", "oom_kills")},
    "pids": {"processes_limit": "pids_limit", "pids_max_events": "pids_max_events"},
    "cpu": {name: name for name in ("throttled_periods", "throttled_time")},
}


class ControlGroups:
    """The groups of jobs in each hierarchy: the one of v2, or one per controller of v1."""

    def __init__(self, sys: Path) -> None:
        root = sys / "fs/cgroup"
        v1 = [name for name in CHARGED if (root / name / "tasks").exists()]
        self._hierarchies = [
            (CHARGED.index(name), _Hierarchy(root / name, V1_SOURCES, (name,))) for name in v1
        ] or [(0, _Hierarchy(root, V2_SOURCES, CHARGED))]
        self._due = 0

    def note(self, process: Process) -> None:
        """Takes in a process that is new in its job or in its group."""
        paths = process.identity.membership.charged if process.identity else ()
        if process.job is None or not paths:
            return
        for place, hierarchy in self._hierarchies:
            path = paths[place]
            if path and path != "/" and "/.." not in path:
                hierarchy.note(process.job, path, process.pid)

    def read(self, jobs: Iterable[Job], now: int) -> None:
        """Brings up to date what the groups of these jobs count; of jobs that ended for the last time."""
        is_due = now >= self._due
        for job in jobs:
            if is_due or job.is_dirty:
                for _, hierarchy in self._hierarchies:
                    if path := hierarchy.paths.get(job):
                        hierarchy.read(job, path, is_due)
        if is_due:
            self._due = now + _PATIENCE
            for _, hierarchy in self._hierarchies:
                hierarchy.forget()


class _Hierarchy:
    """Knows which jobs were seen in a group or below it, for as long as there is such a group."""

    def __init__(self, root: Path, sources: Iterable[CgroupSource], controllers: Collection[str]) -> None:
        self._root = str(root)
        self._fields = {name: own for each in controllers for name, own in _FIELDS[each].items()}
        known = [source for source in sources if source.controller in controllers]
        self._often, self._rarely = (
            [source for source in known if source.files[0][0] in wanted] for wanted in (_OFTEN, _RARELY)
        )
        #: The one job in a group, None where there are several; the number that tells it from a later group; and the
        #: only process that was seen there, 0 where there were several.
        self._owners: dict[str, tuple[Job | None, int, int]] = {}
        #: The group that all members of a job are in, and those that were not read yet.
        self.paths: dict[Job, str | None] = {}
        self._new: set[Job] = set()

    def note(self, job: Job, path: str, pid: int) -> None:
        """Takes in that a job has a member in a group, which may be there already under another job."""
        is_new = job not in self.paths
        if is_new or self.paths[job] != path:
            if not is_new:
                self._drop(job)
            if is_new or len(job.members) == 1:  # then it moved as a whole
                self.paths[job] = path
                self._new.add(job)
        while path:
            owner, inode, only = self._owners.get(path) or (job, self._inode(path), pid)
            if owner is not job and owner is not None:
                now = self._inode(path)
                owner, inode = (job if now != inode or only == pid else None), now
            self._owners[path] = owner, inode, pid if only == pid else 0
            path = path.rpartition("/")[0]

    def read(self, job: Job, path: str, everything: bool) -> None:
        """Takes over what the group of a job says, as long as it has it for itself."""
        if self._owners.get(path, (None, 0))[0] is not job:
            self._drop(job)
            return
        everything = everything or job in self._new or not job.members
        self._new.discard(job)
        sources = self._often + self._rarely if everything else self._often
        found = read_sources(self._root + path, sources)
        told = {own: found[name] for name, own in self._fields.items() if name in found}
        if everything and not told:
            self.paths[job] = None  # it is gone, or without the controllers
        if _PEAK in told:
            told[_PEAK] = max(told[_PEAK] or 0, job.group.get(_PEAK) or 0)
        if not told.items() <= job.group.items():
            job.group.update(told)
            job.is_dirty = True

    def forget(self) -> None:
        """Leaves out groups that are gone, and jobs that ended."""
        self._owners = {path: one for path, one in self._owners.items() if one[1] == self._inode(path) > 0}
        self.paths = {job: path for job, path in self.paths.items() if job.members}
        self._new.clear()

    def _drop(self, job: Job) -> None:
        """What is counted for others too is not the job's, and never will be."""
        self.paths[job] = None
        for name in self._fields.values():
            job.is_dirty = job.group.pop(name, None) is not None or job.is_dirty

    def _inode(self, path: str) -> int:
        with suppress(OSError):
            return os.stat(self._root + path).st_ino
        return 0
