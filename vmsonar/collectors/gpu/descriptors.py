"""Which descriptors of which processes are open on a DRM device; the known and the young come first."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_SECOND = 1_000_000_000
_FIRST_PAUSE, _LONGEST_PAUSE = 10 * _SECOND, 60 * _SECOND
# Looking through one process costs about 70 µs; the rest waits for the next tick.
_MOST_PER_TICK = 250


@dataclass(slots=True)
class _Watched:
    """What is known of one process."""

    start_ticks: int | None
    due: int = 0
    pause: int = _FIRST_PAUSE
    descriptors: list[str] = field(default_factory=list)


class Descriptors:
    """Remembers per process where its DRM descriptors are."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._watched: dict[int, _Watched] = {}
        #: Whether every process so far could be looked into.
        self.complete = True

    def find(self, processes: Iterable[tuple[int, int | None]], boottime: int) -> dict[int, list[str]]:
        """The descriptors by process id, of the processes given as id and start."""
        watched = {pid: self._watch(pid, start) for pid, start in processes}
        self._watched = watched
        due = sorted((each.due, pid) for pid, each in watched.items() if each.due <= boottime)
        for _, pid in due[:_MOST_PER_TICK]:
            self._look(pid, watched[pid], boottime)
        return {pid: each.descriptors for pid, each in watched.items() if each.descriptors}

    def _watch(self, pid: int, start_ticks: int | None) -> _Watched:
        before = self._watched.get(pid)
        if before is not None and before.start_ticks == start_ticks:
            return before
        return _Watched(start_ticks)

    def _look(self, pid: int, watched: _Watched, boottime: int) -> None:
        watched.descriptors = self._open_on_drm(self._proc / str(pid) / "fd")
        if watched.descriptors:
            watched.due = 0
        else:
            watched.due = boottime + watched.pause
            watched.pause = min(watched.pause * 2, _LONGEST_PAUSE)

    def _open_on_drm(self, folder: Path) -> list[str]:
        try:
            names = os.listdir(folder)
        except PermissionError:
            self.complete = False
            return []
        except OSError:
            return []
        return sorted((name for name in names if _is_drm(f"{folder}/{name}")), key=int)


def _is_drm(path: str) -> bool:
    try:
        return os.readlink(path).startswith(("/dev/dri/", "/dev/accel/"))
    except OSError:
        return False
