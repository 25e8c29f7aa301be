"""The kernel's own peak of a control group that holds one job and nothing else, page cache included (cgroups(7))."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from vmsonar.collectors.process.model import Job, Process

# Nanoseconds between two readings; a job is read when it is first seen and at its end too.
_PATIENCE = 60 * 10**9


class ControlGroups:
    """Knows which jobs were seen in a group or below it, for as long as there is such a group."""

    def __init__(self, sys: Path) -> None:
        v1, v2 = sys / "fs/cgroup/memory/memory.max_usage_in_bytes", sys / "fs/cgroup/memory.peak"
        self._root, self._leaf = os.path.split(v1 if v1.exists() else v2)
        #: The one job in a group, None where there are several; and the number that tells it from a later group.
        self._owners: dict[str, tuple[Job | None, int]] = {}
        #: The group that all members of a job are in.
        self._paths: dict[Job, str | None] = {}
        self._due = 0

    def note(self, process: Process) -> None:
        """Takes in a process that is new in its job or in its group."""
        job, path = process.job, process.identity and process.identity.membership.memory_path
        if job is None or not path or path == "/" or "/.." in path:
            return
        if self._paths.setdefault(job, path) != path:
            self._paths[job] = job.memory.charged = None
        while path:
            owner, inode = self._owners.get(path) or (job, self._inode(path))
            if owner is not job and owner is not None:
                now = self._inode(path)
                owner, inode = (job if now != inode else None), now
            self._owners[path] = owner, inode
            path = path.rpartition("/")[0]

    def read(self, jobs: Iterable[Job], now: int) -> None:
        """Brings the peaks up to date; of jobs that ended for the last time."""
        is_due = now >= self._due
        for job in jobs:
            if (is_due or not job.members or job.memory.charged is None) and job in self._paths:
                self._read(job)
        if is_due:
            self._due = now + _PATIENCE
            self._owners = {
                path: one for path, one in self._owners.items() if one[1] == self._inode(path) > 0
            }
            self._paths = {job: path for job, path in self._paths.items() if job.members}

    def _read(self, job: Job) -> None:
        path, before = self._paths[job], job.memory.charged
        if path is not None and self._owners.get(path, (None, 0))[0] is not job:
            job.memory.charged = None
        elif path is not None:
            self._paths[job] = None  # until it can be read: it may be gone, or without the controller
            with suppress(OSError, ValueError), open(f"{self._root}{path}/{self._leaf}", "rb", 0) as file:
                job.memory.charged = max(int(file.read()), before or 0)
                self._paths[job] = path
        job.is_dirty = job.is_dirty or job.memory.charged != before

    def _inode(self, path: str) -> int:
        with suppress(OSError):
            return os.stat(self._root + path).st_ino
        return 0
