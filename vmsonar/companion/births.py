"""Hears of new control groups of containers before anything runs in them (inotify(7))."""

import ctypes
import os
import struct
from collections.abc import Iterable

from vmsonar.host.cgroups import membership

_IN_CREATE = 0x100
_IN_ONLYDIR = 0x01000000
_EVENT = struct.Struct("iIII")
_READ_SIZE = 64 * 1024


class Births:
    """Watches the folders below which containers are made; `take` tells what came.

    Those are the root's own folders, and others that `watch` is told of.
    """

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) if root else -1
        self._paths: dict[int, str] = {}
        for path in ("", *self._below("")):
            self.watch(path)

    def fileno(self) -> int:
        """-1 where nothing can be heard."""
        return self._descriptor

    def watch(self, path: str) -> None:
        """Listens below one more group, given by its path below the root; one that is watched already stays so."""
        if self._descriptor < 0 or path in self._paths.values():
            return
        folder = os.fsencode(f"{self._root}{path}")
        number = self._libc.inotify_add_watch(self._descriptor, folder, _IN_CREATE | _IN_ONLYDIR)
        if number >= 0:
            self._paths[number] = path

    def take(self) -> Iterable[tuple[str | None, str]]:
        """The groups that were made since the last call: whose, None for no container's, and their paths."""
        try:
            data = os.read(self._descriptor, _READ_SIZE)
        except OSError:
            return
        place = 0
        while place < len(data):
            number, _mask, _cookie, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size + length
            name = data[place - length : place].rstrip(b"\0")
            if not name:  # the watched group itself is gone
                self._paths.pop(number, None)
                continue
            path = f"{self._paths.get(number, '')}/{os.fsdecode(name)}"
            yield _container_at(path), path
            if path.count("/") == 1:
                self.watch(path)
                # The first container may have been faster.
                yield from ((_container_at(found), found) for found in self._below(path))

    def _below(self, path: str) -> list[str]:
        try:
            return [f"{path}/{entry.name}" for entry in os.scandir(f"{self._root}{path}") if entry.is_dir()]
        except OSError:
            return []

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _container_at(path: str) -> str | None:
    """The id of the container whose group lies at a path."""
    found = membership(f"0::{path}\n".encode(errors="surrogateescape"))
    return found.container_id if found.path == path else None
