"""Keeps the prepared answers up with the archives of a fleet: one process of all replicas does it, in children.

Where more comes in than one child can prepare, nobody is left behind: what was never prepared and what has changed take
turns, of the first the latest days come first, of the others those that were prepared longest ago.
"""

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
from vmsonar_archive.format.layout import JOURNAL_FILE
from vmsonar_archive.system.children import python
from vmsonar_archive.system.files import held
from vmsonar_archive.write.lock import try_lock

from vmsonar.fleet.serve.combine import combined
from vmsonar.fleet.serve.prepare import Task
from vmsonar.fleet.serve.prepared import Prepared
from vmsonar.fleet.store import Fleet

#: How many machines are asked together: planning a query costs as much for one.
_TOGETHER = 24
_LONGEST = 900.0
_PAUSE = 5.0
_SETTLED = 60.0


class Preparer:
    """Finds the days that changed, and has them prepared: the latest first."""

    def __init__(self, fleet: Fleet, prepared: Prepared, tell: Callable[[str], None]) -> None:
        self.fleet = fleet
        self._prepared = prepared
        self._tell = tell
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        #: What said last time when an archive has changed, and its days then.
        self._scanned: dict[str, tuple[Any, Mapping[date, str]]] = {}
        #: Days that wait, for /metrics and /readyz; None until the first look.
        self.waiting: int | None = None
        self._was_new = False

    def run(self) -> None:
        """Until stopped."""
        while not self._stop.is_set():
            try:
                worked = self.catch_up()
            except Exception as error:
                self._tell(f"cannot prepare answers: {type(error).__name__}: {error}")
                worked = False
            self._stop.wait(0 if worked else _PAUSE)

    def stop(self) -> None:
        self._stop.set()
        child = self._child
        if child is not None:
            child.terminate()

    def catch_up(self) -> bool:
        """One batch, where another replica is not at it; whether there was something to do."""
        tasks = self._due()
        self.waiting = sum(len(task.archives) for task in tasks)
        if not tasks:
            return False
        lock = try_lock(self._prepared.path.parent / "prepare.lock")
        if lock is None:
            return False
        with held(lock):
            task = min(tasks, key=lambda task: task.is_new == self._was_new)
            self._was_new = task.is_new
            self._work(task)
        return True

    def _due(self) -> list[Task]:
        archives = {archive: self.fleet.archive(archive) for archive in self.fleet.ids()}
        known = self._prepared.units()
        self._scanned = {archive: self._scan(archive, path) for archive, path in archives.items()}
        for gone in {archive for archive, _ in known} - archives.keys():
            self._prepared.forget(gone)
        kept_days: dict[str, set[str]] = {}
        for archive, kept in known:
            kept_days.setdefault(archive, set()).add(kept)
        #: Of each day: when it was prepared (0: never), and the stamps of its archives now.
        changed: dict[tuple[bool, date, bool], list[tuple[float, str, str]]] = {}
        for archive, (_, stamps) in self._scanned.items():
            last = max(stamps, default=None)
            for gone in kept_days.get(archive, set()) - {str(day) for day in stamps}:
                self._prepared.replace(archive, gone, [], None, combined)
            for day, stamp in stamps.items():
                stamp = f"{stamp}{'.' if day == last else ''}"
                before = known.get((archive, str(day)), ("", 0.0))
                if before[0] != stamp:
                    which = (before[1] == 0, day, day == last)
                    changed.setdefault(which, []).append((before[1], archive, stamp))
        tasks = [
            (some[0][0], Task(
                day, is_last, {archive: str(archives[archive]) for _, archive, _ in some},
                {archive: stamp for _, archive, stamp in some}, is_new,
            ))
            for (is_new, day, is_last), mine in sorted(changed.items(), reverse=True)
            for some in _batches(sorted(mine))
        ]  # fmt: skip
        return [task for _, task in sorted(tasks, key=lambda each: each[0])]

    def _scan(self, archive: str, path: Path) -> tuple[Any, Mapping[date, str]]:
        """The days of an archive, looked at only where something was filed or a day came or went."""
        watched = [path / JOURNAL_FILE, *path.glob("[0-9][0-9][0-9][0-9]/[0-9][0-9]")]
        mark = {one: one.stat().st_mtime for one in watched if one.exists()}
        before = self._scanned.get(archive)
        if before is not None and before[0] == mark:
            return before
        # A file comes to its place a little after its line in the journal.
        is_settled = max(mark.values(), default=0.0) < time.time() - _SETTLED
        return mark if is_settled else None, day_stamps(path)

    def _work(self, task: Task) -> None:
        environment = {**os.environ, "VMSONAR_CACHE": str(self._prepared.path.parent / "tables")}
        child = subprocess.Popen(
            [*python("-m", "vmsonar.fleet.serve.prepare"), str(self._prepared.path)],
            stdin=subprocess.PIPE,
            env=environment,
        )
        self._child = child
        try:
            child.communicate(msgspec.json.encode(task), timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        finally:
            self._child = None
        if child.returncode and not self._stop.is_set():
            self._give_up(task, child.returncode)

    def _give_up(self, task: Task, code: int) -> None:
        """Of many one may be to blame: each is asked alone. One that fails alone waits until it has changed."""
        if len(task.archives) > 1:
            for archive, path in task.archives.items():
                self._work(Task(task.day, task.is_last, {archive: path}, {archive: task.stamps[archive]}))
            return
        for archive, stamp in task.stamps.items():
            self._tell(f"cannot prepare {task.day} of {archive}: the process that reads it ended with {code}")
            unit = (stamp, time.time(), f"the process that reads it ended with {code}")
            self._prepared.replace(archive, str(task.day), [], unit, combined)


def _batches(mine: list[tuple[float, str, str]]) -> list[list[tuple[float, str, str]]]:
    return [mine[at : at + _TOGETHER] for at in range(0, len(mine), _TOGETHER)]


def day_stamps(archive: Path) -> Mapping[date, str]:
    """For each day of an archive what changes when its files do."""
    found = {}
    for folder in archive.glob("[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]"):
        with suppress(ValueError, FileNotFoundError):
            day = date(*map(int, folder.parts[-3:]))
            with os.scandir(folder) as entries:
                files = sorted(
                    (each.name, (found_at := each.stat()).st_size, found_at.st_mtime_ns) for each in entries
                )
            if files:
                found[day] = hashlib.sha256(repr(files).encode()).hexdigest()[:32]
    return found
